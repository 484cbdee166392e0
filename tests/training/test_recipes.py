"""The presets say what was published."""

from __future__ import annotations

import pytest

from fewshift.data.official import SEEN
from fewshift.presets.baselines import quick_selector, quick_template
from fewshift.presets.maml import paper_maml
from fewshift.presets.training import (
    SINGLE_DOMAIN,
    changed,
    paper_backbone,
    paper_classifier,
    paper_preconditioners,
    quick_backbone,
    quick_classifier,
    quick_preconditioners,
)

EIGHT = tuple(SEEN)


# batch, rate, updates, restart period, as in the public code of the single-domain networks
ROWS = {
    "ilsvrc_2012": (64, 0.03, 480_000, 48_000),
    "omniglot": (16, 0.03, 50_000, 3_000),
    "aircraft": (8, 0.03, 50_000, 3_000),
    "cu_birds": (16, 0.03, 50_000, 3_000),
    "dtd": (32, 0.03, 50_000, 1_500),
    "quickdraw": (64, 0.01, 480_000, 48_000),
    "fungi": (32, 0.03, 480_000, 15_000),
    "vgg_flower": (8, 0.03, 50_000, 1_500),
}


def test_the_table_of_single_domain_networks_is_the_published_one() -> None:
    assert set(SINGLE_DOMAIN) == set(EIGHT)
    assert dict(SINGLE_DOMAIN) == ROWS


def test_several_domains_are_half_imagenet() -> None:
    settings = paper_backbone(EIGHT).settings
    batches = [settings.batch(name) for name in EIGHT]
    assert sum(batches) == 896 == 2 * settings.batch("ilsvrc_2012")
    assert (settings.updates, settings.period, settings.rate) == (240_000, 48_000, 0.03)
    assert (settings.momentum, settings.weight_decay, settings.validation_tasks) == (0.9, 7e-4, 300)
    assert not settings.augmentation.flip


def test_teachers_fade_as_published() -> None:
    plan = paper_backbone(EIGHT).settings.distillation
    ends = {
        name: next(t for t in range(0, 300_000, 48_000) if plan.weight(name, t) == 0) // 48_000
        for name in EIGHT
    }
    assert ends == {
        **dict.fromkeys(EIGHT, 1),
        **dict.fromkeys(("omniglot", "quickdraw", "fungi"), 2),
        "ilsvrc_2012": 5,
    }
    assert [plan.weight(name, 0) for name in EIGHT] == [
        4.0 if name == "ilsvrc_2012" else 1.0 for name in EIGHT
    ]
    assert (plan.temperature, plan.adaptor_rate, plan.adaptor_weight_decay) == (4.0, 0.1, 5e-4)


@pytest.mark.parametrize("name", sorted(SINGLE_DOMAIN))
def test_one_domain_has_its_own_row(name: str) -> None:
    recipe = paper_backbone([name])
    settings = recipe.settings
    row = (settings.batch(name), settings.rate, settings.updates, settings.period)
    assert row == ROWS[name]
    assert recipe.watch.validate_every == settings.period


def test_iterations_of_algorithm_1_are_tasks() -> None:
    several, one = paper_preconditioners(EIGHT).settings, paper_preconditioners(["ilsvrc_2012"]).settings
    assert several.updates * several.tasks_per_update == 160_000
    assert one.updates * one.tasks_per_update == 40_000
    assert several.updates % several.period == one.updates % one.period == 0
    assert (several.inner.rate, several.inner.steps, several.inner.order) == (0.1, 5, 1)
    assert (several.rate, several.momentum, several.weight_decay, several.scale) == (0.1, 0.9, 7e-4, 0.1)
    assert (several.validation_rates, one.validation_rates) == ((0.05, 0.30), (0.05, 0.20))


def test_iterations_of_algorithm_2_are_updates() -> None:
    recipe = paper_classifier(EIGHT)
    settings = recipe.settings
    assert (settings.updates, settings.period, settings.tasks_per_update) == (4_000, 500, 16)
    assert (settings.rate, settings.weight_decay, settings.auxiliary, settings.width) == (
        1e-3,
        7e-4,
        0.1,
        256,
    )
    assert recipe.watch.patience is not None


@pytest.mark.parametrize("domains", [EIGHT, ("one",)])
def test_quick_recipes_are_small(domains: tuple[str, ...]) -> None:
    assert quick_backbone(domains).settings.updates < 1_000
    assert quick_preconditioners(domains).settings.updates < 100
    assert quick_classifier(domains).settings.updates < 100


def test_changes_leave_the_rest_alone() -> None:
    recipe = quick_preconditioners(EIGHT)
    other = changed(recipe, 7, rate=0.5, rank=None, seed=3)
    assert (other.settings.rate, other.settings.seed, other.watch.checkpoint_every) == (0.5, 3, 7)
    assert other.settings.rank is recipe.settings.rank
    assert changed(recipe) == recipe


def test_a_run_of_another_length_ends_at_a_low_rate() -> None:
    """One cosine is stretched over a longer run; restarting ones keep their period, or fit a shorter run."""
    for recipe in (quick_backbone(EIGHT), quick_selector(), quick_template(), quick_preconditioners(EIGHT)):
        for updates in (10, recipe.settings.updates + 1):
            assert changed(recipe, updates=updates).settings.period == updates
    paper = paper_classifier(EIGHT)
    assert [changed(paper, updates=updates).settings.period for updates in (100, 8_000)] == [100, 500]
    assert changed(paper_maml("sgd", EIGHT), updates=5).settings.period is None
