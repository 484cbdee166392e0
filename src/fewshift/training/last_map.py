"""Algorithm 1 for the last map alone, on features and at exact second order.

P_k = I + R_kᵀR_k (`low_rank`), and theta_0^k is learned beside it as theta_0 + D_k, or with a common start as
theta_0 + C + D_k, where C learns from the tasks of all domains. At the end D_k is cut to its largest
`start_rank` directions: learned as two factors from the beginning it fitted the training classes and not the
domain. Our own variant: the paper learns P alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fewshift.core.precond import DomainPreconditioners, init_root, low_rank
from fewshift.core.spectrum import largest_eigenvalue_estimate
from fewshift.core.starts import DomainStarts, LowRankStarts, shortened
from fewshift.core.updates import Preconditioned
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.last_map import LastMapEngine, why_not_last_only
from fewshift.nets.tensor_file import part
from fewshift.training.checkpoint import Kept
from fewshift.training.distributed import Team
from fewshift.training.last_map_descent import after_descent, features_of
from fewshift.training.loop import Metrics, Validation
from fewshift.training.named import add_where, length, zeros
from fewshift.training.schedule import cosine_restarts, take_step
from fewshift.training.settings import PreconditionerSettings
from fewshift.training.tasks import TaskSource, chosen_tasks, validation_addresses
from fewshift.training.validation import adapted_accuracy, by_domain
from fewshift.types import Address

OF_DOMAINS = ("roots", "starts")  # R, D
COMMON = "common"  # C, under one name beside the domains'


class LastMapLearner(Kept):
    """R_k and D_k of every domain, moved by its tasks, which hold features; and C, moved by all."""

    kind, unit = "preconditioners", "tasks"

    def __init__(
        self, backbone: Backbone, tasks: TaskSource, settings: PreconditionerSettings, team: Team
    ) -> None:
        check_last_map(backbone, settings)
        self.backbone, self.tasks, self.settings, self.team = backbone, tasks, settings, team
        self.units, self.device = settings.tasks_per_update, backbone.device
        self.checked_on = validation_addresses(
            self.kind, settings.seed, tasks, settings.validation_split, settings.validation_tasks
        )
        self.site = backbone.sites[-1]
        self.base = backbone.init()[self.site]
        self.engine = LastMapEngine(backbone)
        self.learned = self._first()
        self.optimizers: dict[str, torch.optim.Optimizer] = {
            name: torch.optim.AdamW(
                list(tensors.values()), lr=settings.start_rate, weight_decay=settings.start_weight_decay
            )
            for name, tensors in self.learned.items()
        }
        self.optimizers["roots"] = torch.optim.SGD(
            list(self.learned["roots"].values()),
            lr=settings.rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        self.parts = self.learned
        self.moved_by = {f"optimizer of {w}": (rule, self.learned[w]) for w, rule in self.optimizers.items()}

    def update(self, step: int) -> Metrics:
        """Lines 6 to 12 of Algorithm 1: the mean over a batch of tasks, one optimizer step."""
        settings = self.settings
        addresses = chosen_tasks(self.kind, settings, self.tasks.domains, step)
        summed = {name: zeros(tensors) for name, tensors in self.learned.items()}
        totals = torch.zeros(3, device=self.device)  # loss, accuracy, tasks that count
        for address in self.team.share(addresses):
            root, own = leaves = [self.learned[name][address.domain].requires_grad_() for name in OF_DOMAINS]
            episode = self.tasks.episode(address)
            above = features_of(episode) @ (self._shared() + own).mT
            scored = after_descent(episode, above, settings.inner, root)
            found = torch.autograd.grad(scored.loss, leaves)
            finite = torch.stack([scored.loss.detach(), *(g.sum() for g in found)]).isfinite().all()
            for name, gradient in zip(OF_DOMAINS, found, strict=True):
                add_where(finite, {"": summed[name][address.domain]}, {"": gradient})
            if COMMON in summed:  # theta_0 is a sum, so its derivative is that of each part
                add_where(finite, summed[COMMON], {COMMON: found[1]})
            numbers = torch.stack([scored.loss.detach(), scored.accuracy, torch.ones_like(scored.accuracy)])
            totals += torch.where(finite, numbers, torch.zeros_like(numbers))
        gradients = [tensor for tensors in summed.values() for tensor in tensors.values()]
        self.team.add_up([totals, *gradients])
        for tensor in gradients:
            tensor.div_(totals[2].clamp_min(1))
        self._move(step, summed, {COMMON, *(address.domain for address in addresses)})
        mean = totals[:2] / totals[2]  # not a number when no task counts, which ends the run
        metrics: dict[str, Tensor | float] = {
            "loss": mean[0],
            "accuracy": mean[1],
            "skipped": settings.tasks_per_update - totals[2],
            "root_norm": length(root.detach() for root in self.learned["roots"].values()),
            "start_norm": length(own.detach() for own in self.learned["starts"].values()),
            "rate": cosine_restarts(settings.rate, step, settings.period),
        }
        if step % settings.spectrum_every == 0:
            roots = torch.stack([root.detach() for root in self.learned["roots"].values()])
            metrics["largest_eigenvalue"] = largest_eigenvalue_estimate(low_rank(roots)).max()
        return metrics

    def validate(self) -> Validation | None:
        """Accuracy with P and theta_0 of each task's own domain, on VALID tasks at the validation rate."""
        settings = self.settings
        rates = {self.site: settings.validation_rates[1]}

        def accuracy_of(address: Address) -> Tensor:
            root, own = (self.learned[name][address.domain].detach() for name in OF_DOMAINS)
            start, rule = (
                {self.site: self._shared() + own},
                Preconditioned({self.site: low_rank(root)}, rates),
            )
            episode = self.tasks.episode(address)
            return adapted_accuracy(self.engine, episode, start, rule, settings.validation_steps)

        return by_domain(self.checked_on, accuracy_of, self.device, self.team)

    def _first(self) -> dict[str, dict[str, Tensor]]:
        settings, generator = self.settings, torch.Generator().manual_seed(self.settings.seed)
        root = init_root(
            "low_rank", len(self.base), scale=settings.scale, rank=settings.rank, generator=generator
        )
        first = {"roots": root, "starts": torch.zeros_like(self.base)}
        domains = self.tasks.domains
        found = {name: {d: value.to(self.base).clone() for d in domains} for name, value in first.items()}
        return found | ({COMMON: {COMMON: torch.zeros_like(self.base)}} if settings.common_start else {})

    def _shared(self) -> Tensor:  # (d, d)
        """theta_0 + C: where a task of no domain starts."""
        found = self.learned.get(COMMON)
        return self.base if found is None else self.base + found[COMMON].detach()

    def _move(self, step: int, summed: dict[str, dict[str, Tensor]], present: set[str]) -> None:
        settings = self.settings
        for name, tensors in self.learned.items():
            for domain, tensor in tensors.items():
                gradient = summed[name][domain]
                if name == "roots" and settings.normalise:
                    gradient = gradient / gradient.norm().clamp_min(1e-30)
                tensor.grad = gradient if domain in present else None
        for what, optimizer in self.optimizers.items():
            rate = settings.rate if what == "roots" else settings.start_rate
            take_step(optimizer, cosine_restarts(rate, step, settings.period))


def learned_maps(
    learner: LastMapLearner, state: Mapping[str, Tensor]
) -> tuple[DomainPreconditioners, LowRankStarts]:
    """What a checkpoint of this learner holds, on the CPU."""
    domains, site = learner.tasks.domains, learner.site
    roots, own = ({site: torch.stack([part(state, n)[d] for d in domains])} for n in OF_DOMAINS)
    base = {site: learner.base.cpu() + part(state, COMMON).get(COMMON, 0.0)}
    whole = DomainStarts(domains, {site: base[site] + own[site]})
    rank = learner.settings.start_rank or len(base[site])
    return DomainPreconditioners(domains, roots, "low_rank"), shortened(whole, base, rank)


def check_last_map(backbone: Backbone, settings: PreconditionerSettings) -> None:
    """Refuse what this way of training cannot do."""
    more = why_not_last_only(backbone)
    if more:
        raise FewshiftError(f"starting values of a rank are for the last map alone, but {more}: --sites last")
    if settings.design != "low_rank" or not settings.train_starts or settings.inner.order != 2:
        raise FewshiftError(
            "starting values of a rank are learned beside low_rank preconditioners at order 2: "
            "choose --design low_rank --train-starts --order 2, or leave --start-rank out"
        )
