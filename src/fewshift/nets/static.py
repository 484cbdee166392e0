"""The inner loop of one task or many on fixed buffers, which a CUDA graph can replay over.

Everything that differs between tasks is a buffer: images, labels, weights, ways, parameters, rates,
preconditioners. Images of weight zero pad a batch, and the logits of classes that a task does not have are
pushed away, so that a handful of graphs serve every task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.centroids import unit
from fewshift.core.updates import Adadelta, AdadeltaState, Preconditioned
from fewshift.nets.adapters import LAST
from fewshift.nets.cells import Cells, Shape, moved
from fewshift.nets.precision import Precision, arithmetic
from fewshift.nets.stacks import Stack
from fewshift.nets.task_net import FrozenNet, Head, Kept, TaskNet
from fewshift.types import Labelled, TaskParams

Rule: TypeAlias = Preconditioned | Adadelta  # the rules that a graph knows how to feed

MAX_WAY = 50  # the protocol's
FAR = -1e4  # added to the logits of classes that a task does not have: their share underflows to zero
SCALE = 10.0  # of the cosines


def cell_losses(
    features: Tensor, labels: Tensor, known: Tensor, asked: Tensor, far: Tensor, cells: Cells
) -> tuple[Tensor, Tensor]:  # (cells, n, d), (cells, n) thrice, (tasks, MAX_WAY) -> (tasks,), (tasks,)
    """Mean cross-entropy and accuracy of each task's `asked` rows against the centroids of its `known` rows.

    Both are weights of 0 or 1. With the same rows in both it is L_in, with support and query it is L_out.
    """
    one_hot = (labels[..., None] == torch.arange(MAX_WAY, device=labels.device)).to(features.dtype)
    members = one_hot * known[..., None]
    totals = cells.total(members.sum(dim=1, keepdim=True))  # (tasks, 1, way)
    sums = cells.total(members.mT @ features)  # (tasks, way, d)
    centres = cells.spread(unit(sums / totals.mT.clamp_min(1.0)))
    logits = SCALE * (unit(features) @ centres.mT) + cells.spread(far[:, None])
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(asked)
    right = (logits.detach().argmax(dim=-1) == labels).to(asked.dtype)
    values = torch.stack([losses * asked, right * asked, asked], dim=-1).sum(dim=1, keepdim=True)
    loss, accuracy, count = cells.total(values)[:, 0].unbind(dim=-1)
    return loss / count.clamp_min(1.0), accuracy / count.clamp_min(1.0)


@dataclass(frozen=True)
class Asked:
    """A task as a batch holds it: images that the centroids are made of, and images that are asked about."""

    support: Labelled
    way: int
    query: Labelled | None = None  # None: the support set itself is asked about

    @property
    def images(self) -> int:
        """How many images it needs room for."""
        return len(self.support.labels) + (len(self.query.labels) if self.query else 0)


class StaticBatch:
    """Losses of the tasks in a batch and their gradients, on fixed buffers."""

    def __init__(self, net: FrozenNet, shape: Shape, pixels: tuple[int, int], precision: Precision) -> None:
        own = net.last  # its type and device are those of everything but activations
        self.frozen, self.shape, self.precision = net, shape, precision
        self.cells = Cells(shape, own.device)
        self.net = TaskNet(net, self.cells)
        empty = torch.zeros(shape.images, 3, *pixels, dtype=own.dtype, device=own.device)
        self.images = empty.contiguous(memory_format=torch.channels_last)
        self.labels = torch.zeros(shape.cells, shape.cell, dtype=torch.int64, device=own.device)
        self.rows = torch.zeros(2, shape.cells, shape.cell, dtype=own.dtype, device=own.device)
        self.far = torch.zeros(shape.tasks, MAX_WAY, dtype=own.dtype, device=own.device)
        self.params = net.stacks.zeros(shape.tasks, own)
        self.head = self.fresh_head()
        self.losses = torch.zeros(shape.tasks, dtype=own.dtype, device=own.device)
        self.accuracies = torch.zeros_like(self.losses)

    def fresh_head(self) -> Head:
        """What no parameter changes of the images now in the buffer."""
        with torch.no_grad(), arithmetic(self.precision):
            return self.net.head(self.images)

    def load(self, tasks: Sequence[Asked]) -> None:
        """Put images and labels into the buffers; nothing waits for the device."""
        cell, device = self.shape.cell, self.labels.device
        targets, values, counts, first = [], [], [], 0
        rows, far = torch.zeros(2, self.shape.images), torch.full((self.shape.tasks, MAX_WAY), FAR)
        flat = self.labels.view(-1)
        for number, task in enumerate(tasks):
            place = first
            asked = task.support if task.query is None else task.query
            for part in (task.support,) if task.query is None else (task.support, task.query):
                end = place + len(part.labels)
                targets += [self.images[place:end], flat[place:end]]
                values += [part.images, part.labels]
                rows[0 if part is task.support else 1, place:end] = 1.0
                if part is asked:
                    rows[1, place:end] = 1.0
                place = end
            far[number, : task.way] = 0.0
            counts.append(-(-task.images // cell))
            first += counts[-1] * cell
        self.labels.zero_()
        self.images.zero_()
        for target, value in zip(targets, values, strict=True):
            target.copy_(value)
        self.rows.copy_(moved(rows.to(self.rows.dtype), device).view_as(self.rows))
        self.far.copy_(moved(far.to(self.far.dtype), device))
        self.cells.assign(counts)
        for buffer, value in zip(self.head, self.fresh_head(), strict=True):
            buffer.copy_(value)

    def gradients(self) -> Stack:
        """The gradients of all parameters; losses and accuracies are left in their buffers."""
        with torch.no_grad(), arithmetic(self.precision):
            self.net.set(self.params)
            pooled, kept = self.net.forward(self.head)
            found = self.parameter_gradients(pooled, kept)
            self.net.branches = {}  # a graph's memory: the next graph may use it
            return found

    def parameter_gradients(self, pooled: Tensor, kept: list[Kept]) -> Stack:
        """Back from the pooled activations to the parameters."""
        with torch.enable_grad(), arithmetic("float32"):
            pooled.requires_grad_()
            last = self.cells.spread(self.frozen.stacks.site(self.params, LAST)).detach()
            last.requires_grad_()
            losses, accuracies = self.objective(pooled, last)
            at_pooled, at_last = torch.autograd.grad(losses.sum(), (pooled, last))
        self.losses.copy_(losses.detach())
        self.accuracies.copy_(accuracies)
        found = self.net.backward(at_pooled, kept)
        self.frozen.stacks.site(found, LAST).copy_(self.cells.total(at_last))
        return found

    def objective(self, pooled: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Losses and accuracies from pooled activations and each cell's last map."""
        features = pooled.view(self.shape.cells, self.shape.cell, -1) @ last.mT
        return cell_losses(features, self.labels, self.rows[0], self.rows[1], self.far, self.cells)


class StaticStep(StaticBatch):
    """One step of one kind of rule. Rates and preconditioners are buffers as well."""

    def __init__(
        self,
        net: FrozenNet,
        shape: Shape,
        pixels: tuple[int, int],
        precision: Precision,
        rule: Rule,
        steps: int,
        sums: bool = False,
    ) -> None:
        super().__init__(net, shape, pixels, precision)
        own = net.last
        self.rule = at_rate_one(rule, len(self.params))
        self.rates = tuple(values.new_zeros(*values.shape[:2], 1, 1) for values in self.params)
        self.matrices = (
            None if rule.preconditioner is None else net.stacks.zeros(shape.tasks, own, square=True)
        )
        self.state = [
            net.stacks.zeros(shape.tasks, own) for _ in range(2 if isinstance(rule, Adadelta) else 0)
        ]
        self.summed = net.stacks.zeros(shape.tasks, own) if sums else None  # Σ_t g_t, where it is wanted
        self.history = torch.zeros(steps, shape.tasks, dtype=own.dtype, device=own.device)
        self.numbers = torch.arange(steps, device=own.device)
        self.taken = torch.zeros(1, dtype=torch.int64, device=own.device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def begin(self, tasks: Sequence[Asked], params: Sequence[TaskParams], rules: Sequence[Rule]) -> None:
        """Load tasks with their rules, all of this step's kind."""
        self.load(tasks)
        stacks = self.frozen.stacks
        stacks.fill(self.params, params)
        for g, (rates, group) in enumerate(zip(self.rates, stacks.groups, strict=True)):
            wanted = torch.zeros(self.rates[g].shape, dtype=rates.dtype)
            for task, rule in enumerate(rules):
                wanted[:, task, 0, 0] = torch.tensor([rule.rates[site] for site in group], dtype=rates.dtype)
            rates.copy_(moved(wanted, rates.device))
        if self.matrices is not None:
            stacks.fill(self.matrices, [matrices_of(rule) for rule in rules])
            if isinstance(self.rule, Preconditioned):  # β P: a step is then one product, added in place
                torch._foreach_mul_(list(self.matrices), list(self.rates))
        for stack in (*self.state, *([self.summed] if self.summed else [])):
            torch._foreach_zero_(list(stack))
        self.taken.zero_()

    def run(self) -> None:
        """Take the step, in place."""
        found = self.gradients()
        with torch.no_grad(), arithmetic(self.precision):
            if self.summed is not None:
                torch._foreach_add_(list(self.summed), list(found))
            self._move(found)
            now = (self.numbers == self.taken)[:, None]
            self.history.copy_(torch.where(now, self.losses, self.history))
            self.taken.add_(1)

    def _move(self, found: Stack) -> None:
        """What the rule makes of these gradients."""
        if isinstance(self.rule, Adadelta):
            if self.matrices is not None:
                found = tuple(m @ f for m, f in zip(self.matrices, found, strict=True))
            self._adadelta(found)
        elif self.matrices is not None:
            for param, matrix, gradient in zip(self.params, self.matrices, found, strict=True):
                factors = matrix.flatten(0, 1), gradient.flatten(0, 1)
                param.view(-1, *param.shape[2:]).baddbmm_(*factors, alpha=-1)
        else:
            for param, gradient, rate in zip(self.params, found, self.rates, strict=True):
                param.addcmul_(gradient, rate, value=-1)

    def _adadelta(self, found: Stack) -> None:
        params, gradients, squares, deltas = (
            {str(g): values for g, values in enumerate(stack)} for stack in (self.params, found, *self.state)
        )
        reached, state = self.rule.step(params, gradients, AdadeltaState(squares, deltas))  # type: ignore[arg-type]
        for g, param, rate in zip(params, self.params, self.rates, strict=True):
            param.lerp_(reached[g], rate)
            squares[g].copy_(state.squares[g])  # type: ignore[union-attr]
            deltas[g].copy_(state.deltas[g])  # type: ignore[union-attr]

    def __call__(self) -> None:
        """Replay the graph; without one, take the step as it is written."""
        self.run() if self.graph is None else self.graph.replay()


def at_rate_one(rule: Rule, groups: int) -> Rule:
    """The same kind of rule for stacked parameters, every rate 1; gradients come preconditioned."""
    return replace(rule, rates={str(g): 1.0 for g in range(groups)}, preconditioner=None)


def matrices_of(rule: Rule) -> Mapping[str, Tensor]:
    """A rule's preconditioner, which it must have."""
    assert rule.preconditioner is not None
    return rule.preconditioner


def kind_of(rule: Rule) -> tuple[Any, ...]:
    """What a graph is captured for: rules of one kind differ in buffers only."""
    numbers = (rule.rho, rule.eps) if isinstance(rule, Adadelta) else ()
    return (type(rule).__name__, rule.preconditioner is None, *numbers)
