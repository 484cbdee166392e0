"""Algorithm 1: meta-training the domain-specific preconditioners.

The paper's "max iteration" of 160,000 (40,000 with one domain) is read as a number of *tasks*: with 16 tasks
an update these are 10,000 (2,500) updates, four (one) cosine periods of T-max = 2,500 updates exactly. Read
as updates it would be 2.56 million five-step tasks, weeks on the paper's GPU. Both readings are one integer,
`updates`; for the other, set it to 160,000.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fewshift.core.precond import DomainPreconditioners
from fewshift.core.starts import DomainStarts, Starts
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.choice import choose_engine
from fewshift.nets.policy import PART, AdapterPolicy
from fewshift.nets.tensor_file import part
from fewshift.progress import Track, silent
from fewshift.training.checkpoint import identity_of
from fewshift.training.distributed import ALONE, Team
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.last_map import LastMapLearner, learned_maps
from fewshift.training.loop import Outcome, Watch, run
from fewshift.training.metagradients import MetaGradients, arithmetic_of
from fewshift.training.named import fingerprint, stacked
from fewshift.training.preconditioner_learner import PreconditionerLearner
from fewshift.training.settings import PreconditionerSettings
from fewshift.training.tasks import TaskSource
from fewshift.training.under_policy import ConfiguredEngine, UnderPolicy


@dataclass(frozen=True)
class TrainedPreconditioners:
    """What a run of Algorithm 1 gives, on the CPU."""

    preconditioners: DomainPreconditioners
    starts: Starts | None  # None: not learned
    outcome: Outcome


def train_preconditioners(
    backbone: Backbone,
    tasks: TaskSource,
    settings: PreconditionerSettings,
    folder: Path,
    *,
    watch: Watch,
    resume: bool = False,
    meta_gradients: MetaGradients | None = None,
    policy: AdapterPolicy | None = None,
    track: Track = silent,
    team: Team = ALONE,
) -> TrainedPreconditioners:
    """Algorithm 1, under a `policy` of adapters where one is given.

    The best validated state is returned; `folder` keeps the log and the checkpoints.
    """
    if policy is not None and (settings.train_starts or settings.start_rank is not None):
        raise FewshiftError(
            "train preconditioners: starting values are learned without a policy: leave one of the two out"
        )
    learner: PreconditionerLearner | LastMapLearner
    mark = backbone.fingerprint()
    identity = identity_of(settings, "updates", "spectrum_every", tasks=tasks.identity(), backbone=mark)
    if settings.start_rank is not None:
        learner = LastMapLearner(backbone, tasks, settings, team)
    else:
        ways, engine = meta_gradients or best_meta_gradients(backbone), choose_engine(backbone)
        identity |= arithmetic_of(ways)
        if policy is not None:
            identity[PART] = fingerprint({PART: policy.state_dict()})
            ways, engine = UnderPolicy(backbone, policy, ways), ConfiguredEngine(engine, policy)
        learner = PreconditionerLearner(backbone, tasks, settings, ways, team, engine)
    outcome = run(learner, folder, identity, settings.updates, watch, resume=resume, track=track, team=team)
    state = outcome.checkpoint().tensors
    if isinstance(learner, LastMapLearner):
        return TrainedPreconditioners(*learned_maps(learner, state), outcome)
    roots = stacked(part(state, "roots"), tasks.domains, backbone.sites)
    starts = None
    if settings.train_starts:
        values, common = stacked(part(state, "starts"), tasks.domains, backbone.sites), part(state, "common")
        whole = {site: value + common[site] if common else value for site, value in values.items()}
        starts = DomainStarts(tasks.domains, whole, common or None)
    found = DomainPreconditioners(tasks.domains, roots, settings.design)
    return TrainedPreconditioners(found, starts, outcome)
