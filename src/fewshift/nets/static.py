"""A step of the inner loop for one task or many on fixed buffers, rates and preconditioners among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fewshift.core.updates import Adadelta, AdadeltaState, Preconditioned, TwoSided
from fewshift.nets.cells import Shape, moved
from fewshift.nets.frozen_net import FrozenNet
from fewshift.nets.precision import Precision, arithmetic
from fewshift.nets.stacks import Stack
from fewshift.nets.static_batch import Asked, StaticBatch
from fewshift.types import TaskParams

Rule: TypeAlias = Preconditioned | TwoSided | Adadelta  # the rules that a graph knows how to feed


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
        self.matrices = None if rule.preconditioner is None else net.stacks.matrices(shape.tasks, own, "left")
        self.inputs = net.stacks.matrices(shape.tasks, own, "right") if isinstance(rule, TwoSided) else None
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
        self._set_rates(rules)
        if self.matrices is not None:
            stacks.fill(self.matrices, [matrices_of(rule) for rule in rules])
            if not isinstance(self.rule, Adadelta):  # β P: a step is then one product, added in place
                torch._foreach_mul_(list(self.matrices), list(self.rates))
        if self.inputs is not None:
            stacks.fill(self.inputs, [rule.inputs for rule in rules if isinstance(rule, TwoSided)])
        for stack in (*self.state, *([self.summed] if self.summed else [])):
            torch._foreach_zero_(list(stack))
        self.taken.zero_()

    def _set_rates(self, rules: Sequence[Rule]) -> None:
        """One copy to the device for all sites and tasks."""
        groups, own = self.frozen.stacks.groups, self.frozen.last
        wanted = [[rule.rates[site] for rule in rules] for group in groups for site in group]
        there = moved(torch.tensor(wanted, dtype=own.dtype), own.device)  # (sites, tasks)
        parts = torch.split(there, [len(group) for group in groups])
        for rates, part in zip(self.rates, parts, strict=True):
            rates[:, : len(rules), 0, 0].copy_(part)

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
        if self.inputs is not None:
            found = tuple(gradient @ right for gradient, right in zip(found, self.inputs, strict=True))
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
    bare = replace(rule, rates={str(g): 1.0 for g in range(groups)}, preconditioner=None)
    return replace(bare, inputs={}) if isinstance(bare, TwoSided) else bare


def matrices_of(rule: Rule) -> Mapping[str, Tensor]:
    """A rule's preconditioner, which it must have."""
    assert rule.preconditioner is not None
    return rule.preconditioner


def kind_of(rule: Rule) -> tuple[Any, ...]:
    """What a graph is captured for: rules of one kind differ in buffers only."""
    numbers = (rule.rho, rule.eps) if isinstance(rule, Adadelta) else ()
    return (type(rule).__name__, rule.preconditioner is None, *numbers)
