"""The scores by which the default kit is chosen: the same tasks for every kit, kept where they are read."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from fewshift.benchmarks import kit_score
from fewshift.data.records_folder import open_records
from fewshift.errors import DataError
from fewshift.estimator.classifier import FewShotClassifier
from fewshift.nets import bundled
from fewshift.nets.kit import KIT, Kit, load_kit, save_kit
from fewshift.nets.tensor_file import read_tensors


def test_tasks_are_of_validation_classes_and_the_same_each_time(md_mini: Path) -> None:
    domains = open_records(md_mini, ["birds", "dtd10"])
    tasks = list(kit_score.drawn(domains, 3, seed=0))
    assert tasks == list(kit_score.drawn(domains, 3, seed=0))
    assert [len(task.support) for task in tasks] == [5, 10, 25] * 2
    for task in tasks:
        classes = {c for c, _ in task.support}
        assert classes <= {*task.domain.spec.splits[kit_score.SPLIT_OF[task.domain.role]]}
        assert {c for c, _ in task.query} == classes
        assert not {*task.support} & {*task.query}


def test_a_score_decides_which_kit_is_the_default(
    small_kit: Kit, md_mini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundled, "KITS", tmp_path)
    monkeypatch.setattr(kit_score, "open_records", lambda path: open_records(path, ["flowers", "dtd10"]))
    monkeypatch.setattr(kit_score, "FewShotClassifier", partial(FewShotClassifier, method="ncc"))
    one_number = torch.zeros_like(small_kit.backbone.frozen["last.weight"])
    one_number[:, 0] = 1
    blind = replace(small_kit.backbone, frozen={**small_kit.backbone.frozen, "last.weight": one_number})
    save_kit(small_kit, tmp_path / "seeing.kit")
    save_kit(replace(small_kit, backbone=blind), tmp_path / "blind.kit")
    outcome = kit_score.run(md_mini, ["seeing", "blind"], tasks=2, device="cpu")
    seeing, worse = outcome["kits"]["seeing"], outcome["kits"]["blind"]
    assert seeing["score"] == pytest.approx((seeing["seen"] + seeing["valid_unseen"]) / 2, abs=1e-4)
    assert worse["score"] < seeing["score"]
    assert worse["difference"] < 0
    assert "against seeing" in kit_score.table(outcome)
    before = read_tensors(tmp_path / "seeing.kit", KIT)[1]
    for name in ("blind", "seeing"):
        kit_score.write_score(name, outcome)
        assert bundled.default_kit_name() == name
    after = read_tensors(tmp_path / "seeing.kit", KIT)[1]
    assert all(before[name].equal(after[name]) for name in before)
    assert load_kit(tmp_path / "seeing.kit").info["validation"]["default_score"] == seeing["score"]


def test_both_kinds_of_domains_are_needed(md_mini: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit_score, "open_records", lambda path: open_records(path, ["birds"]))
    with pytest.raises(DataError, match="needs valid_unseen domains too"):
        kit_score.run(md_mini, ["narrow"])
