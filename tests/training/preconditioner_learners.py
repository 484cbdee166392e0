"""Learners of Algorithm 1 on two small domains."""

from __future__ import annotations

from torch import Tensor

from fewshift.nets.backbone import Backbone
from fewshift.training.distributed import ALONE
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.metagradients import (
    MetaGradients,
)
from fewshift.training.preconditioner_learner import PreconditionerLearner
from fewshift.training.settings import PreconditionerSettings
from fewshift.training.tasks import ResidentTasks


def learner_of(
    backbone: Backbone,
    tasks: ResidentTasks,
    settings: PreconditionerSettings,
    meta_gradients: MetaGradients | None = None,
) -> PreconditionerLearner:
    return PreconditionerLearner(
        backbone, tasks, settings, meta_gradients or best_meta_gradients(backbone), ALONE
    )


def copied(learner: PreconditionerLearner) -> dict[str, dict[str, Tensor]]:
    return {d: {s: root.clone() for s, root in roots.items()} for d, roots in learner.roots.items()}
