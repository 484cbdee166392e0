"""`fewshift train maml` and `train bohb` end to end on the drawn suite: train, stop, go on, evaluate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny_world import Fewshift, Outcome, options

from fewshift.core.rules import RULES
from fewshift.nets.backbone import freeze
from fewshift.nets.kit import ImageSettings, Kit, load_kit, save_kit
from fewshift.nets.resnet import ResNet18


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit with an untrained network, which is all that these commands ask for."""
    path = tmp_path_factory.mktemp("kits") / "backbone.kit"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = ResNet18(width=2)
    images = ImageSettings(size=16, kind="practical")
    save_kit(Kit(freeze(net), images), path)
    return path


DATA = ("--suite", "drawn", "--domains", "shapes", "--device", "cpu", "--quiet")
SMALL = options(preset="quick", updates=2, tasks_per_update=1, inner_steps=1, validation_tasks=1)


@pytest.mark.slow
def test_rules_train_into_one_kit_and_are_evaluated(
    fewshift: Fewshift, backbone: Path, tmp_path: Path
) -> None:
    kit = backbone
    for rule in ("alfa", "gap"):
        out = tmp_path / f"{rule}.kit"
        done = fewshift("train", "maml", "--rule", rule, "--kit", kit, "--out", out, *DATA, *SMALL)
        assert done.code == 0, done.err
        assert f"trained {RULES[rule].method} on shapes" in done.err
        kit = out
    found = load_kit(kit)
    assert set(found.parts) == {"alfa", "gap"}
    assert found.info["gap"]["settings"]["rule"] == "gap"
    methods = ["alfa", "gap", "gap_eigen", "mokd", "logistic", "linear_probe", "norm_tune"]
    scores = tmp_path / "scores.jsonl"
    words = ("--kit", kit, "--methods", ",".join(methods), "--suite", "drawn", "--domains", "shapes")
    few = (*options(tasks=1, protocol="one-shot", device="cpu"), "--quiet")
    done = fewshift("evaluate", *words, *few, "--out", scores)
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in scores.read_text().splitlines()]
    named = {line["method"] for line in lines if "method" in line}
    assert named == set(methods)


def test_a_run_goes_on_to_the_same_kit(fewshift: Fewshift, backbone: Path, tmp_path: Path) -> None:
    def train(out: Path, updates: int, *more: object) -> Outcome:
        words = ("train", "maml", "--rule", "meta-sgd", "--kit", backbone, "--out", out, *DATA, *SMALL)
        return fewshift(*words, "--updates", updates, "--validation-tasks", 0, *more)

    assert train(tmp_path / "whole.kit", 2).code == 0
    assert train(tmp_path / "half.kit", 1).code == 0
    assert train(tmp_path / "half.kit", 2, "--resume").code == 0
    whole, half = (load_kit(tmp_path / f"{name}.kit").parts["meta_sgd"] for name in ("whole", "half"))
    assert all(torch.equal(value, half.tensors[name]) for name, value in whole.tensors.items())


@pytest.mark.slow
def test_a_search_ends_in_an_extractor(fewshift: Fewshift, backbone: Path, tmp_path: Path) -> None:
    out = tmp_path / "bohb.kit"
    words = options(preset="quick", updates=9, configurations=2, batch=4, validation_tasks=1)
    done = fewshift("train", "bohb", "--kit", backbone, "--out", out, *DATA, *words)
    assert done.code == 0, done.err
    assert "tried 4 runs" in done.err
    part = load_kit(out).parts["bohb"]
    assert len(part.settings["trials"]) == 4
    assert not torch.equal(part.tensors["conv1.weight"], load_kit(backbone).backbone.frozen["conv1.weight"])


def test_help_has_examples_and_a_wrong_rule_its_sentence(
    fewshift: Fewshift, backbone: Path, tmp_path: Path
) -> None:
    for words in (("train", "maml"), ("train", "bohb"), ("bench", "gap")):
        assert "Example" in fewshift(*words, "--help").out
    wrong = fewshift("train", "maml", "--rule", "adam", "--kit", backbone, "--out", tmp_path / "x.kit", *DATA)
    assert wrong.code == 2
    missing = fewshift(
        "evaluate", "--kit", backbone, "--methods", "alfa", *DATA[:2], "--out", tmp_path / "s.jsonl"
    )
    assert missing.code == 2
    assert "fewshift train maml --rule alfa" in missing.err
