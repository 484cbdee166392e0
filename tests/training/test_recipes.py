"""The presets say what was published."""

from __future__ import annotations

import pytest

from fewshift.data.official import SEEN
from fewshift.presets.baselines import (
    CNAPS_TASKS,
    paper_blender,
    paper_modulator,
    paper_selector,
    paper_template,
    quick_selector,
    quick_template,
)
from fewshift.presets.maml import paper_maml
from fewshift.presets.training import (
    SINGLE_DOMAIN,
    changed,
    paper_backbone,
    paper_classifier,
    paper_policy,
    paper_preconditioners,
    quick_backbone,
    quick_classifier,
    quick_preconditioners,
)
from fewshift.training.modulators import Which

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


def values(settings: object, *names: str) -> tuple[object, ...]:
    return tuple(getattr(settings, name) for name in names)


def test_selector_and_modulators_learn_from_as_many_tasks_as_published() -> None:
    urt = paper_selector().settings
    assert values(urt, "updates", "tasks_per_update", "period", "favourite") == (10_000, 1, 10_000, EIGHT[0])
    assert values(urt, "rate", "weight_decay", "heads", "hidden", "penalty") == (0.01, 1e-5, 2, 1024, 0.1)
    kinds: tuple[tuple[Which, int, float], ...] = (("cnaps", 110_000, 5e-4), ("trim", 150_000, 2e-3))
    for which, tasks, rate in kinds:
        settings = paper_modulator(which).settings
        assert (settings.updates * settings.tasks_per_update, settings.rate) == (tasks, rate)
        assert values(settings, "tasks_per_update", "sampling", "code", "penalty") == (
            16,
            "uniform",
            64,
            1e-3,
        )
        assert values(settings, "gate", "weight_decay", "period") == (0.1, 0.0, None)
    assert (CNAPS_TASKS.max_way, CNAPS_TASKS.max_support) == (40, 400)


def test_flute_learns_as_published() -> None:
    """Decays are twice Keras's, whose penalty has no half."""
    template, blender = paper_template().settings, paper_blender().settings
    assert values(template, "updates", "sets_per_update", "set_size", "period") == (640_000, 8, 16, 5_000)
    assert values(template, "rate", "momentum", "weight_decay", "film_decay") == (0.01, 0.9, 1.4e-3, 2e-4)
    assert values(template, "favourite", "start") == ("ilsvrc_2012", "fresh")
    assert values(blender, "updates", "sets_per_update", "set_size", "period") == (3_000, 8, 16, 3_000)
    assert values(blender, "rate", "weight_decay", "code") == (1e-3, 1.4e-3, 64)


def test_proto_maml_learns_as_published() -> None:
    names = ("rate", "weight_decay", "fall", "fall_every", "inner_rate", "steps", "test_steps", "order")
    one, several = (paper_maml("sgd", domains).settings for domains in (EIGHT[:1], EIGHT))
    assert values(one, *names) == (3.63e-4, 2 * 1.37e-5, 0.648, 2_500, 0.00544, 6, 6, 1)
    assert values(several, *names) == (2.98e-4, 2 * 7.16e-4, 0.766, 500, 0.0199, 1, 6, 1)
    assert values(several, "updates", "tasks_per_update", "norm") == (75_000, 1, "support")
    for rule, steps in (("gap", (5, 10)), ("alfa", (5, 5))):
        assert values(paper_maml(rule, EIGHT).settings, "steps", "test_steps") == steps


def test_a_policy_learns_from_ten_thousand_tasks() -> None:
    for domains in (EIGHT, EIGHT[:1]):
        settings = paper_policy(domains).settings
        assert (settings.updates * settings.tasks_per_update, settings.tasks_per_update) == (
            10_000,
            len(domains),
        )
        assert values(settings, "rate", "temperature", "trial_rate", "trial_steps") == (1e-4, 10.0, 0.5, 10)


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
