"""Complete settings of `fewshift train bohb`: how many configurations, and the longest run among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fewshift.presets.training import Recipe, paper_backbone, quick_backbone
from fewshift.training.settings import BackboneSettings

PAPER_CONFIGURATIONS, QUICK_CONFIGURATIONS = 27, 3


def paper_bohb(domains: Sequence[str]) -> Recipe[BackboneSettings]:
    """A whole trial is as long as the published extractor's training (inferred: the budget is not known)."""
    return paper_backbone(domains)


def quick_bohb(domains: Sequence[str]) -> Recipe[BackboneSettings]:
    """At most 450 updates per trial: about four minutes on two CPU cores."""
    recipe = quick_backbone(domains)
    return replace(recipe, settings=replace(recipe.settings, updates=450, period=450))
