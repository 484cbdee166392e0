"""What Algorithm 1 moves and how: the roots of every domain's preconditioners, and its starting values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fewshift.core.metagrad import root_gradients
from fewshift.core.precond import design_named, initial_preconditioners
from fewshift.core.spectrum import largest_eigenvalue_estimate, sharpest_and_non_pd
from fewshift.core.updates import Preconditioned, site_rates
from fewshift.nets.backbone import Backbone
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import Engine
from fewshift.nets.tensor_file import join
from fewshift.training.checkpoint import Kept
from fewshift.training.distributed import Team
from fewshift.training.loop import Metrics, Validation
from fewshift.training.metagradients import Job, MetaGradients, only_finite
from fewshift.training.named import add_up, length, owned, square_zeros, together, zeros
from fewshift.training.schedule import cosine_restarts, take_step
from fewshift.training.settings import PreconditionerSettings
from fewshift.training.tasks import TaskSource, chosen_tasks, validation_addresses
from fewshift.training.validation import adapted_accuracy, by_domain
from fewshift.types import Address, Preconditioner, TaskParams


class PreconditionerLearner(Kept):
    """M_1 .. M_K, each moved by the tasks of its own domain only.

    A domain without a task in an update keeps its M and its momentum as they are; with `stratified` tasks
    that does not happen unless there are more domains than tasks per update.
    """

    kind, unit = "preconditioners", "tasks"

    def __init__(
        self,
        backbone: Backbone,
        tasks: TaskSource,
        settings: PreconditionerSettings,
        meta_gradients: MetaGradients,
        team: Team,
        engine: Engine | None = None,  # of validations; None: the fastest
    ) -> None:
        self.backbone, self.tasks, self.settings = backbone, tasks, settings
        self.meta_gradients, self.team = meta_gradients, team
        self.units, self.device = settings.tasks_per_update, backbone.device
        self.checked_on = validation_addresses(
            self.kind, settings.seed, tasks, settings.validation_split, settings.validation_tasks
        )
        self.start, self.engine = backbone.init(), engine or choose_engine(backbone)
        first = initial_preconditioners(
            tasks.domains,
            {site: len(value) for site, value in self.start.items()},
            settings.design,
            scale=settings.scale,
            rank=settings.rank,
            generator=torch.Generator().manual_seed(settings.seed),
        ).to(self.device)
        self.roots = {domain: owned(first.roots_of(domain)) for domain in tasks.domains}
        common = settings.train_starts and settings.common_start
        self.common = owned(self.start) if common else {}
        own = zeros(self.start) if common else self.start
        self.starts = {domain: owned(own) for domain in tasks.domains if settings.train_starts}
        self.design = design_named(settings.design)
        self.parts = {"roots": join(self.roots), "starts": join(self.starts), "common": self.common}
        self.optimizers: dict[str, torch.optim.Optimizer] = {
            "roots": torch.optim.SGD(
                list(self.parts["roots"].values()),
                lr=settings.rate,
                momentum=settings.momentum,
                weight_decay=settings.weight_decay,
            )
        }
        for what in ("starts", "common"):
            if values := list(self.parts[what].values()):
                self.optimizers[what] = torch.optim.Adam(values, lr=settings.start_rate)
        self.moved_by = {f"optimizer of {w}": (rule, self.parts[w]) for w, rule in self.optimizers.items()}

    def update(self, step: int) -> Metrics:
        """Lines 6 to 12 of Algorithm 1: the mean over a batch of tasks, one optimizer step."""
        settings = self.settings
        domains = (*self.tasks.domains, *self.tasks.strangers)
        addresses = chosen_tasks(self.kind, settings, domains, step)
        present = list(dict.fromkeys(address.domain for address in addresses))
        matrices = self._preconditioners(present)
        pulls = {domain: square_zeros(self.start) for domain in present}
        adjoints = {domain: zeros(self.start) for domain in present if settings.train_starts}
        totals = torch.zeros(4, device=self.device)  # loss, accuracy, first inner loss, tasks that count

        mine = self.team.share(addresses)
        jobs = (Job(self.tasks.episode(a), matrices[a.domain], self._start_of(a.domain)) for a in mine)
        for address, any_found in zip(
            mine, self.meta_gradients(jobs, settings.inner, settings.train_starts), strict=True
        ):
            found = only_finite(any_found, settings.train_starts)
            assert found.usable is not None
            add_up(pulls[address.domain], found.preconditioner)
            if settings.train_starts:
                add_up(adjoints[address.domain], found.start)
            accuracy = found.loss.new_zeros(()) if found.accuracy is None else found.accuracy
            numbers = torch.stack([found.loss, accuracy, found.inner_losses[0], torch.ones_like(found.loss)])
            totals += torch.where(found.usable, numbers, torch.zeros_like(numbers))
        summed = [t for sums in (*pulls.values(), *adjoints.values()) for t in sums.values()]
        self.team.add_up([totals, *summed])

        torch._foreach_div_(summed, totals[3].clamp_min(1))
        self._move(step, self._of_domains(pulls), adjoints)
        mean = totals[:3] / totals[3]  # not a number when no task counts, which ends the run
        metrics: dict[str, Tensor | float] = {
            "loss": mean[0],
            "accuracy": mean[1],
            "support_loss": mean[2],
            "skipped": settings.tasks_per_update - totals[3],
            "pull_norm": length(join(pulls).values()),
            "root_norm": length(join(self.roots).values()),
            "rate": self._rate(step),
        }
        if step % settings.spectrum_every == 0:
            metrics |= self._spectrum()
        return metrics

    def validate(self) -> Validation | None:
        """Accuracy after 40 steps with the P of each task's own domain, on VALID tasks."""
        settings = self.settings
        rates = site_rates(self.start, *settings.validation_rates, self.backbone.sites[-1])
        matrices = self._preconditioners(self.tasks.domains)

        def accuracy_of(address: Address) -> Tensor:
            start, rule = self._start_of(address.domain), Preconditioned(matrices[address.domain], rates)
            episode = self.tasks.episode(address)
            return adapted_accuracy(self.engine, episode, start, rule, settings.validation_steps)

        return by_domain(self.checked_on, accuracy_of, self.device, self.team)

    def _rate(self, step: int) -> float:
        return cosine_restarts(self.settings.rate, step, self.settings.period)

    def _move(
        self, step: int, pulls: dict[str, dict[str, Tensor]], adjoints: dict[str, dict[str, Tensor]]
    ) -> None:
        roots = join({domain: self.roots[domain] for domain in pulls})
        for name, gradient in together(self._root_gradients, roots, join(pulls)).items():
            roots[name].grad = gradient
        for domain, adjoint in adjoints.items():
            if domain in self.starts:
                for site, gradient in adjoint.items():
                    self.starts[domain][site].grad = gradient
        for site, value in self.common.items():
            value.grad = torch.stack([adjoint[site] for adjoint in adjoints.values()]).sum(dim=0)
        start_rate = cosine_restarts(self.settings.start_rate, step, self.settings.period)
        for what, optimizer in self.optimizers.items():
            take_step(optimizer, self._rate(step) if what == "roots" else start_rate)

    def _root_gradients(self, roots: Tensor, pulls: Tensor) -> Tensor:  # (k, r, m), (k, m, m) -> (k, r, m)
        found = root_gradients(self.design, roots, pulls)
        if self.settings.normalise:
            found = found / torch.linalg.matrix_norm(found, keepdim=True).clamp_min(1e-30)
        return found

    @torch.no_grad()
    def _preconditioners(self, domains: Sequence[str]) -> dict[str, Preconditioner]:
        """P of each domain; of a stranger, the mean of all."""
        strangers = [name for name in domains if name not in self.roots]
        wanted = self.roots if strangers else {domain: self.roots[domain] for domain in domains}
        found = together(self.design, join(wanted))
        of = {domain: {site: found[f"{domain}/{site}"] for site in self.start} for domain in wanted}
        if strangers:
            mean = {site: torch.stack([of[d][site] for d in of]).mean(dim=0) for site in self.start}
            of |= dict.fromkeys(strangers, mean)
        return of

    def _of_domains(self, pulls: dict[str, dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
        """Pulls on the domains' own P: each has its share of those on a stranger's, which is their mean."""
        strange = [pull for name, pull in pulls.items() if name not in self.roots]
        if not strange:
            return pulls
        share = {site: sum(pull[site] for pull in strange) / len(self.roots) for site in self.start}
        nothing = square_zeros(self.start)
        return {
            domain: {site: pull + share[site] for site, pull in pulls.get(domain, nothing).items()}
            for domain in self.roots
        }

    @torch.no_grad()
    def _start_of(self, domain: str) -> TaskParams:
        if domain not in self.roots:  # a stranger has no start of its own
            return self.common or self.start
        own = self.starts.get(domain, self.start)
        return {site: self.common[site] + value for site, value in own.items()} if self.common else own

    @torch.no_grad()
    def _spectrum(self) -> dict[str, Tensor]:
        """The largest eigenvalue; and where a design promises nothing, the share that is not definite."""
        of_domains = self.roots.values()
        stacks = [self.design(torch.stack([roots[site] for roots in of_domains])) for site in self.start]
        if self.settings.design != "free":
            values = [largest_eigenvalue_estimate(stack).max() for stack in stacks]
            return {"largest_eigenvalue": torch.stack(values).max()}
        largest, share = sharpest_and_non_pd(stacks)
        return {"largest_eigenvalue": largest, "non_pd_rate": share}
