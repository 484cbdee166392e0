"""The demo from data to report, very small."""

from pathlib import Path

import pytest

from fewshift.cli import demo_steps
from fewshift.data.drawn import drawn_domain
from fewshift.data.pixels import practical
from fewshift.errors import MissingExtra
from fewshift.evaluation.html import page
from fewshift.evaluation.report import make_report
from fewshift.evaluation.scores import read_scores
from fewshift.nets.kit import load_kit
from fewshift.presets.demo import DEMO_METHODS, DemoPlan, run_demo
from fewshift.progress import silent
from fewshift.training.settings import (
    BackboneSettings,
    ClassifierSettings,
    InnerLevel,
    PreconditionerSettings,
)

ONE_STEP = InnerLevel(steps=1)
TINY = DemoPlan(
    rule=practical(28, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    backbone=BackboneSettings(updates=2, period=2, default_batch=4, width=4, validation_tasks=0),
    preconditioners=PreconditionerSettings(
        updates=1, tasks_per_update=2, period=1, inner=ONE_STEP, validation_tasks=0
    ),
    classifier=ClassifierSettings(
        updates=1, tasks_per_update=2, period=1, width=4, inner=ONE_STEP, validation_tasks=0
    ),
    suite="drawn",
    tasks=1,
)


@pytest.mark.slow
def test_every_stage_leaves_what_the_next_one_needs_and_a_second_run_repeats_nothing(tmp_path: Path) -> None:
    domains = [drawn_domain(name, images=8) for name in ("shapes", "glyphs", "dots", "cells")]
    said: list[str] = []
    made = run_demo(domains, tmp_path, TINY, say=said.append)
    kit = load_kit(made.kit)
    assert kit.domains == ("shapes", "glyphs")
    assert kit.preconditioners is not None
    assert kit.classifier is not None
    reads = list(read_scores([made.results]))
    assert {(r.score.method, r.score.domain) for r in reads} == {
        (method, domain) for method in DEMO_METHODS for domain in ("shapes", "glyphs", "cells")
    }
    assert {r.score.domain: r.score.seen for r in reads} == {"shapes": True, "glyphs": True, "cells": False}
    assert len(said) == 4
    assert "tsp" in page(make_report(reads), "demo")

    before = made.results.read_text()
    assert run_demo(domains, tmp_path, TINY) == made
    assert made.results.read_text() == before


def test_the_seed_names_all_training_too() -> None:
    plan = DemoPlan(seed=3)
    assert [plan.backbone.seed, plan.preconditioners.seed, plan.classifier.seed] == [3, 3, 3]


def test_the_drawn_suite_takes_the_place_of_the_open_one_and_the_remedy_is_said_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacks(*_: object, **__: object) -> None:
        raise MissingExtra("npm", "data")

    monkeypatch.setattr(demo_steps, "build_open_suite", lacks)
    assert demo_steps._suite(None, silent).name == "drawn"
    assert "pip install 'fewshift[data]'" in " ".join(capsys.readouterr().out.split())
