"""Complete settings of feature selectors, modulators and BOHB: as published, and small ones for a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fewshift.data.protocol import VARYING
from fewshift.presets.training import Recipe, paper_backbone, quick_backbone
from fewshift.training.augment import Augmentation
from fewshift.training.blender import BlenderSettings
from fewshift.training.flute import TemplateSettings
from fewshift.training.loop import Watch
from fewshift.training.modulators import ModulatorSettings, Which
from fewshift.training.selector import SelectorSettings
from fewshift.training.settings import BackboneSettings

CNAPS_TASKS = replace(VARYING, max_way=40, max_support=400)  # what CNAPs and its heirs train on
PAPER_CONFIGURATIONS, QUICK_CONFIGURATIONS = 27, 3  # how many BOHB tries


def paper_selector() -> Recipe[SelectorSettings]:
    """URT as published: 10,000 tasks one by one, half of them ImageNet's; the last state counts."""
    return Recipe(SelectorSettings(), Watch(log_every=50, checkpoint_every=1_000))


def quick_selector() -> Recipe[SelectorSettings]:
    """Seconds on a CPU, once the features are extracted."""
    settings = SelectorSettings(updates=400, period=400, hidden=128, validation_tasks=10)
    return Recipe(settings, Watch(log_every=20, checkpoint_every=100))


def paper_modulator(which: Which) -> Recipe[ModulatorSettings]:
    """Simple CNAPS: 110,000 tasks at 0.0005. tri-M: 150,000 tasks at 0.002. Both 16 per update."""
    settings = ModulatorSettings() if which == "cnaps" else ModulatorSettings(updates=9_375, rate=2e-3)
    return Recipe(settings, Watch(log_every=10, checkpoint_every=250, validate_every=625))


def quick_modulator(which: Which) -> Recipe[ModulatorSettings]:
    """A minute or two on two CPU cores: few tasks, so larger steps, and a gate that is heard."""
    settings = ModulatorSettings(
        updates=60,
        tasks_per_update=4,
        rate=2e-3,
        sampling="stratified",
        code=32,
        gate=0.1 if which == "cnaps" else 2.0,
        validation_tasks=5,
    )
    return Recipe(settings, Watch(log_every=5, checkpoint_every=20, validate_every=20))


def paper_template() -> Recipe[TemplateSettings]:
    """FLUTE as published: 640,000 updates of 128 images, from fresh weights."""
    return Recipe(TemplateSettings(), Watch(log_every=50, checkpoint_every=2_000, validate_every=5_000))


def quick_template() -> Recipe[TemplateSettings]:
    """About two minutes on two CPU cores; it goes on from the kit's backbone, for fresh weights need more."""
    settings = TemplateSettings(
        updates=250,
        period=250,
        rate=0.05,
        start="backbone",
        augmentation=Augmentation(pad=4),
        validation_tasks=10,
    )
    return Recipe(settings, Watch(log_every=10, checkpoint_every=100, validate_every=125))


def paper_blender() -> Recipe[BlenderSettings]:
    """FLUTE's dataset classifier as published: 3,000 updates of 8 sets of 16 images."""
    return Recipe(BlenderSettings(), Watch(log_every=50, checkpoint_every=1_000, validate_every=1_000))


def quick_blender() -> Recipe[BlenderSettings]:
    """Half a minute on two CPU cores."""
    settings = BlenderSettings(
        updates=150, period=150, rate=5e-3, code=32, augmentation=Augmentation(pad=4), validation_sets=10
    )
    return Recipe(settings, Watch(log_every=10, checkpoint_every=50, validate_every=50))


def paper_bohb(domains: Sequence[str]) -> Recipe[BackboneSettings]:
    """BOHB: a whole trial is as long as the published extractor's training (inferred: no budget is known)."""
    return paper_backbone(domains)


def quick_bohb(domains: Sequence[str]) -> Recipe[BackboneSettings]:
    """At most 450 updates per trial: about four minutes on two CPU cores."""
    recipe = quick_backbone(domains)
    return replace(recipe, settings=replace(recipe.settings, updates=450, period=450))
