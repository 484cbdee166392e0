"""Training on images that are not held in memory learns the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_world import Fewshift, options

from fewshift.nets.kit import load_kit


def test_streamed_and_resident_runs_learn_the_same(
    fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path
) -> None:
    few = options(preset="quick", updates=2, tasks_per_update=3, validation_tasks=1, device="cpu")
    for how in ("resident", "stream"):
        words = ("--kit", tiny_kit, "--records", records, "--out", tmp_path / f"{how}.kit", "--vary", *few)
        done = fewshift("train", "preconditioners", *words, f"--{how}")
        assert done.code == 0, done.err
    found = [load_kit(tmp_path / f"{how}.kit").preconditioners for how in ("resident", "stream")]
    assert found[0] is not None
    assert found[1] is not None
    for site, roots in found[0].roots.items():
        assert torch.equal(roots, found[1].roots[site])


def test_a_backbone_that_does_not_fit_is_trained_on_streamed_images(
    fewshift: Fewshift, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = options(preset="quick", width=2, image_size=16, updates=2, validation_tasks=1, device="cpu")
    words = ("train", "backbone", "--records", records, *few)
    held = fewshift(*words, "--out", tmp_path / "held.kit")
    assert (held.code, "too large" in held.err) == (0, False), held.err
    monkeypatch.setattr("fewshift.training.streamed.free_memory", lambda device: 0)
    streamed = fewshift(*words, "--out", tmp_path / "streamed.kit")
    assert streamed.code == 0, streamed.err
    assert "too large for the memory, so read for every update: squares, tiles" in streamed.err
    assert (tmp_path / "held.kit").read_bytes() == (tmp_path / "streamed.kit").read_bytes()
