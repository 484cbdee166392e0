"""Complete settings of training runs: the published ones, and small ones that take minutes on a CPU.

Meta-Dataset's own domain names carry their published constants; other domains get the defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from fewshift.data.protocol import Protocol
from fewshift.training.augment import Augmentation
from fewshift.training.distill import Distillation
from fewshift.training.loop import Watch
from fewshift.training.policy import PolicySettings
from fewshift.training.settings import (
    BackboneSettings,
    ClassifierSettings,
    InnerLevel,
    PreconditionerSettings,
)

S = TypeVar("S")
QUICK_TASKS = Protocol(max_way=10, max_support=50, max_query=5)
LAST_MAP_TASKS = Protocol(max_way=20, max_support=100, max_query=5)  # on features: many small ones
QUICK_SIZE, QUICK_WIDTH = 42, 16


@dataclass(frozen=True)
class Recipe(Generic[S]):
    """What to do, and how often to look."""

    settings: S
    watch: Watch


# domain -> batch, rate, updates, restart period (which is also when to validate)
SINGLE_DOMAIN = {
    "ilsvrc_2012": (64, 0.03, 480_000, 48_000),
    "omniglot": (16, 0.03, 50_000, 3_000),
    "aircraft": (8, 0.03, 50_000, 3_000),
    "cu_birds": (16, 0.03, 50_000, 3_000),
    "dtd": (32, 0.03, 50_000, 1_500),
    "quickdraw": (64, 0.01, 480_000, 48_000),
    "fungi": (32, 0.03, 480_000, 15_000),
    "vgg_flower": (8, 0.03, 50_000, 1_500),
}
OTHER_DOMAIN = (32, 0.03, 50_000, 3_000)

# URL asks ImageNet's teacher four times as loudly and, of the others, the large sets' teachers twice as long
URL_CYCLE = 48_000
URL_LONGER = {"ilsvrc_2012": 5, "omniglot": 2, "quickdraw": 2, "fungi": 2}


def paper_backbone(domains: Sequence[str]) -> Recipe[BackboneSettings]:
    """The published extractor: of one domain (SDL), or of several with half of the images ImageNet's.

    With teachers the several-domain one is URL's. 240,000 updates of 896 images are about two hours of a
    data-centre GPU.
    """
    if len(domains) == 1:
        batch, rate, updates, period = SINGLE_DOMAIN.get(domains[0], OTHER_DOMAIN)
        settings = BackboneSettings(updates=updates, default_batch=batch, rate=rate, period=period)
        return Recipe(settings, Watch(log_every=50, checkpoint_every=1_000, validate_every=period))
    distillation = Distillation(
        weights={"ilsvrc_2012": 4.0},
        horizons={name: times * URL_CYCLE for name, times in URL_LONGER.items()},
        default_horizon=URL_CYCLE,
    )
    settings = BackboneSettings(batches={"ilsvrc_2012": 448}, distillation=distillation)
    return Recipe(settings, Watch(log_every=50, checkpoint_every=2_000, validate_every=48_000))


def paper_preconditioners(domains: Sequence[str]) -> Recipe[PreconditionerSettings]:
    """Algorithm 1 as published: 160,000 tasks (one domain: 40,000), 16 per update.

    "Max iteration" is read as tasks, so 10,000 (2,500) updates; first order, as a long run can afford.
    """
    one = len(domains) == 1
    settings = PreconditionerSettings(
        updates=2_500 if one else 10_000, validation_rates=(0.05, 0.20) if one else (0.05, 0.30)
    )
    return Recipe(settings, Watch(log_every=10, checkpoint_every=250, validate_every=2_500))


def paper_classifier(domains: Sequence[str]) -> Recipe[ClassifierSettings]:
    """Algorithm 2 as published: at most 4,000 updates of 16 tasks, fewer when validation stops improving."""
    watch = Watch(log_every=10, checkpoint_every=250, validate_every=500, patience=3)
    return Recipe(ClassifierSettings(), watch)


def paper_policy(domains: Sequence[str]) -> Recipe[PolicySettings]:
    """TA²-Net's policy as released: 10,000 tasks, one of each domain per update."""
    settings = PolicySettings(updates=10_000 // len(domains), tasks_per_update=len(domains))
    every = max(1, settings.updates // 10)
    return Recipe(settings, Watch(log_every=10, checkpoint_every=every, validate_every=every))


def quick_backbone(domains: Sequence[str]) -> Recipe[BackboneSettings]:
    """About three minutes on two CPU cores at 42 pixels; its numbers are not published ones."""
    settings = BackboneSettings(
        updates=900,
        default_batch=max(8, 128 // len(domains)),
        period=900,
        width=QUICK_WIDTH,
        augmentation=Augmentation(pad=4),
        validation_tasks=20,
    )
    return Recipe(settings, Watch(log_every=20, checkpoint_every=300, validate_every=900))


def quick_preconditioners(domains: Sequence[str]) -> Recipe[PreconditionerSettings]:
    """About a minute on two CPU cores: few updates, so each gradient is given length 1."""
    settings = PreconditionerSettings(
        updates=40,
        tasks_per_update=4,
        period=40,
        rate=0.03,
        weight_decay=0.0,
        normalise=True,
        validation_tasks=5,
        validation_steps=10,
        spectrum_every=5,
    )
    return Recipe(settings, Watch(log_every=5, checkpoint_every=20, validate_every=20))


def quick_classifier(domains: Sequence[str]) -> Recipe[ClassifierSettings]:
    """About a minute on two CPU cores: few updates, so larger ones."""
    settings = ClassifierSettings(
        updates=60,
        tasks_per_update=4,
        period=60,
        rate=0.01,
        width=32,
        inner=InnerLevel(steps=3),
        validation_tasks=5,
    )
    return Recipe(settings, Watch(log_every=5, checkpoint_every=20, validate_every=20))


def quick_policy(domains: Sequence[str]) -> Recipe[PolicySettings]:
    """About two minutes on a CPU: few updates, so larger ones and shorter trials."""
    settings = PolicySettings(
        updates=30,
        tasks_per_update=4,
        rate=3e-3,
        trial_steps=5,
        validation_tasks=5,
        validation_steps=10,
    )
    return Recipe(settings, Watch(log_every=5, checkpoint_every=10, validate_every=15))


def last_map_preconditioners(domains: Sequence[str]) -> Recipe[PreconditionerSettings]:
    """The last map alone on features, at order 2: starting values around a common one, P of rank 16. Ours.

    What each domain adds has rank 32. The rate of the starting values decides: ten times as fast they
    memorise the training classes.
    """
    settings = PreconditionerSettings(
        updates=240,
        tasks_per_update=16,
        inner=InnerLevel(rate=1.0, steps=5, order=2),
        design="low_rank",
        rank=16,
        rate=0.01,
        weight_decay=0.0,
        period=240,
        normalise=True,
        train_starts=True,
        common_start=True,
        start_rate=2e-4,
        start_rank=32,
        validation_tasks=10,
        validation_rates=(0.3, 0.3),
    )
    return Recipe(settings, Watch(log_every=10, checkpoint_every=60, validate_every=60))


def last_map_classifier(domains: Sequence[str]) -> Recipe[ClassifierSettings]:
    """A dataset classifier that reads features. Ours."""
    settings = ClassifierSettings(
        updates=200,
        tasks_per_update=16,
        inner=InnerLevel(rate=1.0, steps=5, order=2),
        width=64,
        reads="features",
        period=200,
    )
    return Recipe(settings, Watch(log_every=10, checkpoint_every=50, validate_every=50))


def changed(
    recipe: Recipe[S],
    save_every: int | None = None,
    validate_every: int | None = None,
    keep_last: bool = False,
    **values: object,
) -> Recipe[S]:
    """The recipe with other settings where a value is not None.

    With other `updates` a rate that falls once, over the whole run, does so still; a cosine that restarts
    keeps its period, but is no longer than the run.
    """
    if save_every is not None:
        recipe = replace(recipe, watch=replace(recipe.watch, checkpoint_every=save_every))
    if validate_every is not None:
        recipe = replace(recipe, watch=replace(recipe.watch, validate_every=validate_every))
    if keep_last:
        recipe = replace(recipe, watch=replace(recipe.watch, keep_last=True))
    given = {name: value for name, value in values.items() if value is not None}
    before: Any = recipe.settings
    period = getattr(before, "period", None)
    if period is not None and "updates" in given:
        once = period == before.updates
        given["period"] = given["updates"] if once else min(period, given["updates"])
    return replace(recipe, settings=replace(recipe.settings, **given))  # type: ignore[type-var]
