"""Training on images that are not held in memory learns the same."""

from __future__ import annotations

from pathlib import Path

import torch
from tiny_world import Fewshift, options

from fewshift.nets.kit import load_kit


def test_streamed_and_resident_runs_learn_the_same(
    fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path
) -> None:
    few = options(preset="quick", updates=2, tasks_per_update=3, validation_tasks=1, device="cpu")
    for how in ("resident", "stream"):
        words = ("--kit", tiny_kit, "--records", records, "--out", tmp_path / f"{how}.kit", *few)
        done = fewshift("train", "preconditioners", *words, f"--{how}")
        assert done.code == 0, done.err
    found = [load_kit(tmp_path / f"{how}.kit").preconditioners for how in ("resident", "stream")]
    assert found[0] is not None
    assert found[1] is not None
    for site, roots in found[0].roots.items():
        assert torch.equal(roots, found[1].roots[site])
