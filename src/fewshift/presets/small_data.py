"""Recipes for suites of small domains, a few thousand images each, on one GPU in minutes.

Images are varied more than the published extractors' are, and so are the images of the tasks that
preconditioners and starting values are learned from: a network has memorised so few images after a minute,
and unvaried tasks of known images leave nothing to learn. The inner steps are five times the paper's, so that
five of them go about as far as the forty test steps. A third of the tasks are in made-up styles, for what a
new domain needs. Chosen on VALID classes and valid_unseen domains.
"""

from __future__ import annotations

from collections.abc import Sequence

from fewshift.data.protocol import Protocol
from fewshift.presets.training import Recipe
from fewshift.training.augment import Augmentation
from fewshift.training.loop import Watch
from fewshift.training.settings import (
    BackboneSettings,
    ClassifierSettings,
    InnerLevel,
    PreconditionerSettings,
)

SMALL_TASKS = Protocol(max_way=20, max_support=120, max_query=5)
SMALL_WIDTH = 32
VARIED = Augmentation(flip=True, zoom=0.4, saturation=0.4, contrast=0.4)
# Drawings and letters: a mirrored letter is another letter.
LETTERS = ("omniglot", "quickdraw", "mnist", "devanagari", "glyphs")
INNER = InnerLevel(rate=0.5, last_rate=0.2)
STRANGERS = 4  # made-up domains beside eight real ones


def small_backbone(domains: Sequence[str]) -> Recipe[BackboneSettings]:
    """2,000 updates of 64 images per domain: 40 seconds for eight domains on an H200."""
    settings = BackboneSettings(
        updates=2_000,
        period=2_000,
        rate=0.05,
        width=SMALL_WIDTH,
        precision="bfloat16",
        augmentation=VARIED,
        never_mirrored=tuple(name for name in domains if name in LETTERS),
        validation_tasks=10,
    )
    return Recipe(settings, Watch(log_every=200, checkpoint_every=1_000, validate_every=1_000))


def small_preconditioners(domains: Sequence[str]) -> Recipe[PreconditionerSettings]:
    """Preconditioners of rank 16 and starting values around a common one, learned together.

    About ten minutes on an H200 in float16 beside another run. Without the bound so long a run overshoots.
    """
    settings = PreconditionerSettings(
        updates=3_000,
        period=3_000,
        inner=INNER,
        design="bounded",
        rank=16,
        rate=0.01,
        weight_decay=0.0,
        normalise=True,
        train_starts=True,
        common_start=True,
        validation_tasks=0,
    )
    return Recipe(settings, Watch(log_every=25, checkpoint_every=100))


def small_classifier(domains: Sequence[str]) -> Recipe[ClassifierSettings]:
    """150 updates of a narrower set encoder, with the paper's λ."""
    settings = ClassifierSettings(updates=150, period=150, width=64, inner=INNER, validation_tasks=8)
    return Recipe(settings, Watch(log_every=25, checkpoint_every=50))
