"""Where a small task may start and how fast it may go: what `own_grid` tries."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fewshift.benchmarks.own_tasks import OwnTask
from fewshift.core.precond import blend_sites
from fewshift.core.starts import part_way, task_start
from fewshift.core.updates import Preconditioned, site_rates
from fewshift.errors import FewshiftError
from fewshift.methods.build import coefficients_of, start_shares
from fewshift.nets.kit import Kit
from fewshift.types import Labelled, Preconditioner, Task, TaskParams


@dataclass(frozen=True)
class Candidate:
    """Where to start and how fast to go."""

    start: str  # see `start_of`
    preconditioned: bool
    adapters: float
    last: float

    @property
    def name(self) -> str:
        """A short name, such as `certainty P 0.25 0.05`."""
        return f"{self.start} {'P' if self.preconditioned else 'I'} {self.adapters:g} {self.last:g}"


def candidate(text: str) -> Candidate:
    """The candidate of this name."""
    try:
        start, matrix, adapters, last = text.split()
        return Candidate(start, matrix == "P", float(adapters), float(last))
    except ValueError:
        raise FewshiftError(
            f"{text.strip()!r} is no candidate: give a start, P or I, and two rates: 'usual I 0.5 0.05'"
        ) from None


@dataclass(frozen=True)
class Facts:
    """What a task's images say before anything moves."""

    coefficients: Tensor | None
    share: float  # of the domains' own starts, as the kit says
    common: float  # of the common start, likewise
    matrices: dict[str, Preconditioner | None]  # "P" and "I"


@torch.no_grad()
def facts_of(kit: Kit, task: OwnTask) -> Facts:
    """Coefficients, the shares of the learned starts, and preconditioners."""
    there = coefficients_of(kit)(task.support)
    own: Preconditioner | None = None
    if task.support.is_cuda:  # a matrix in either case, so that one graph serves both
        own = {site: torch.eye(len(v), device=v.device) for site, v in kit.backbone.init().items()}
    if there is None:
        return Facts(None, 0.0, 0.0, {"I": own, "P": own})
    known = Task(Labelled(task.support, task.labels), task.way)
    share, common = start_shares(kit, "tsp_start", known, there)
    blended = own if kit.preconditioners is None else dict(blend_sites(there, kit.preconditioners.matrices()))
    return Facts(there, share, common, {"I": own, "P": blended})


def start_of(kit: Kit, which: Candidate, facts: Facts) -> TaskParams:
    """The usual one, or a learned one: common to all domains, their own blend, or between the two.

    `certainty` takes the shares that the kit says, `0.3` is a share itself, `half` half-way from usual there.
    """
    usual = kit.backbone.init()
    if which.start == "usual" or facts.coefficients is None:
        return usual
    known = {"common": 0.0, "own": 1.0, "certainty": facts.share, "half": facts.share}
    share = known[which.start] if which.start in known else float(which.start)
    common = facts.common if which.start in ("certainty", "half") else 1.0
    found = task_start(usual, kit.starts, facts.coefficients, share, common)
    return part_way(usual, found, 0.5) if which.start == "half" else found


def rule_of(which: Candidate, facts: Facts, kit: Kit) -> Preconditioned:
    """The update of a candidate."""
    rates = site_rates(kit.backbone.sites, which.adapters, which.last, last_site=kit.backbone.sites[-1])
    return Preconditioned(facts.matrices["P" if which.preconditioned else "I"], rates)
