"""The scores by which the default kit is chosen: the same tasks for every kit, kept where they are read."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fewshift.benchmarks import kit_score
from fewshift.benchmarks.own_images import SCALES
from fewshift.data.records_folder import open_records
from fewshift.errors import DataError
from fewshift.estimator.classifier import FewShotClassifier
from fewshift.estimator.unknown import Between, familiar_from_prototypes
from fewshift.nets import bundled
from fewshift.nets.kit import KIT, Kit, load_kit, save_kit
from fewshift.nets.tensor_file import read_tensors


def test_a_score_decides_which_kit_is_the_default(
    small_kit: Kit, md_mini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundled, "KITS", tmp_path)
    one_number = torch.zeros_like(small_kit.backbone.frozen["last.weight"])
    one_number[:, 0] = 1
    blind = replace(small_kit.backbone, frozen={**small_kit.backbone.frozen, "last.weight": one_number})
    save_kit(small_kit, tmp_path / "seeing.kit")
    save_kit(replace(small_kit, backbone=blind), tmp_path / "blind.kit")
    names = ("flowers", "dtd10")
    outcome = kit_score.run(md_mini, ["seeing", "blind"], 1, "cpu", method="ncc", domains=names)
    roles = {domain.name: domain.role for domain in open_records(md_mini, list(names))}
    for rows in outcome["tasks"].values():
        where = {(row["domain"], row["role"], row["shot"]) for row in rows}
        assert where == {(name, roles[name], shot) for name in names for shot in (1, 2, 5)}
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
    kit = load_kit(tmp_path / "seeing.kit")
    assert kit.info["validation"]["default_score"] == seeing["score"]
    assert kit.info["validation"]["scale"] == seeing["scale"]
    assert kit.info["validation"]["one_image"] == seeing["one_image"]
    pictures = [Image.new("RGB", (32, 32), colour) for colour in ("red", "navy")]
    fitted = FewShotClassifier(kit=kit, quiet=True).fit(pictures, [0, 1]).fitted_
    assert fitted.scale == seeing["scale"]
    assert fitted.familiar == familiar_from_prototypes(fitted.prototypes)  # of tsp nothing was measured
    frozen = FewShotClassifier(method="ncc", kit=kit, quiet=True).fit(pictures, [0, 1]).fitted_
    usual = Between(**seeing["one_image"]["ncc"])
    assert frozen.familiar == familiar_from_prototypes(frozen.prototypes, usual)


def test_the_scale_is_least_surprising_on_both_kinds_of_domains() -> None:
    def rows(role: str, count: int, best: float) -> list[dict[str, Any]]:
        losses = [math.log(scale / best) ** 2 for scale in SCALES]
        return [{"role": role, "cross_entropy_by_scale": losses} for _ in range(count)]

    assert kit_score.best_scale([*rows("seen", 9, 7.0), *rows("valid_unseen", 1, 7.0)]) == 7.0
    # however many there are of a kind, it has half of the say
    assert kit_score.best_scale([*rows("seen", 9, 20.0), *rows("valid_unseen", 1, 5.0)]) == 10.0
    assert kit_score.best_scale([*rows("seen", 1, 20.0), *rows("valid_unseen", 9, 5.0)]) == 10.0


def test_the_usual_place_is_that_of_all_images_of_both_kinds() -> None:
    places = {"seen": [[0.2, 0.4], [0.6, 0.4]], "valid_unseen": [[0.9, 0.7]]}  # of two images a task
    rows = [
        {"role": role, "shot": 1, "between": [np.mean(task), np.std(task)]}
        for role, tasks in places.items()
        for task in tasks
    ]
    rows.append({"role": "seen", "shot": 2, "between": [9.0, 9.0]})
    alike = [0.2, 0.4, 0.6, 0.4, 0.9, 0.7, 0.9, 0.7]
    usual = kit_score.usual_place(rows)
    assert usual.mean == pytest.approx(np.mean(alike), abs=1e-3)
    assert usual.spread == pytest.approx(np.std(alike), abs=1e-3)


def test_both_kinds_of_domains_are_needed(md_mini: Path, kit_file: Path) -> None:
    with pytest.raises(DataError, match="needs valid_unseen domains too"):
        kit_score.run(md_mini, [str(kit_file)], method="ncc", domains=("textures",))
