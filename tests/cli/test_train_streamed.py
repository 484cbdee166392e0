"""Training on images that are not held in memory learns the same."""

from __future__ import annotations

from pathlib import Path

import torch
from tiny_world import fewshift, write_kit, write_records

from fewshift.nets.kit import load_kit


def test_streamed_and_resident_runs_learn_the_same(tmp_path: Path) -> None:
    records, kit = write_records(tmp_path / "records"), write_kit(tmp_path / "tsp.kit")
    few = (
        "--preset",
        "quick",
        "--updates",
        2,
        "--tasks-per-update",
        3,
        "--validation-tasks",
        1,
        "--device",
        "cpu",
    )

    for how in ("resident", "stream"):
        words = ("--kit", kit, "--records", records, "--out", tmp_path / f"{how}.kit", *few)
        done = fewshift("train", "preconditioners", *words, f"--{how}")
        assert done.exit_code == 0, done.output
    found = [load_kit(tmp_path / f"{how}.kit").preconditioners for how in ("resident", "stream")]
    assert found[0] is not None
    assert found[1] is not None
    for site, roots in found[0].roots.items():
        assert torch.equal(roots, found[1].roots[site])
