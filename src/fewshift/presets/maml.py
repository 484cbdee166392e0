"""Complete settings of `fewshift train maml`: the published ones, and small ones for minutes on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fewshift.presets.training import Recipe
from fewshift.training.loop import Watch
from fewshift.training.maml import MamlSettings

# inner steps in training and at test. Stated for GAP and ALFA on other data; inferred for the rest
STEPS = {
    "alfa": (5, 5),
    "gap": (5, 10),
    "gap-approximate": (5, 10),
    "meta-sgd": (5, 5),
    "meta-curvature": (5, 5),
}


def paper_maml(rule: str, domains: Sequence[str]) -> Recipe[MamlSettings]:
    """Proto-MAML as published, trained on one domain or on several; other rules with their own steps.

    75,000 updates of one task. The published validation every 500 updates is every 5,000 here, on as many
    tasks per domain as fit.
    """
    settings = MamlSettings(rule=rule)
    if len(domains) == 1:
        settings = replace(
            settings,
            rate=3.63e-4,
            weight_decay=2.74e-5,
            fall=0.648,
            fall_every=2_500,
            inner_rate=0.00544,
            steps=6,
        )
    steps, test_steps = STEPS.get(rule, (settings.steps, settings.test_steps))
    settings = replace(settings, steps=steps, test_steps=test_steps)
    return Recipe(settings, Watch(log_every=50, checkpoint_every=500, validate_every=5_000))


def quick_maml(rule: str, domains: Sequence[str]) -> Recipe[MamlSettings]:
    """About two minutes on two CPU cores: few updates, so three steps per task and a rate that stays."""
    settings = MamlSettings(
        rule=rule,
        updates=60,
        tasks_per_update=4,
        rate=3e-4,
        weight_decay=0.0,
        rule_rate=3e-3,
        fall=1.0,
        inner_rate=0.02,
        steps=3,
        test_steps=6,
        validation_tasks=5,
    )
    return Recipe(settings, Watch(log_every=5, checkpoint_every=20, validate_every=20))
