"""Rules that choose are judged by what they would have gained."""

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fewshift.benchmarks import own_grid, own_rules
from fewshift.benchmarks.own_candidates import candidate
from fewshift.benchmarks.own_rules import Measured
from fewshift.cli.app import app
from fewshift.errors import FewshiftError

NAMES = ("own P 0.25 0.05", "usual I 0.5 0.05")


def task(domain: str, gains: tuple[float, float], losses: tuple[float, float, float]) -> Measured:
    """Ten held-out images, all with the same losses: frozen, first, second."""
    frozen, *others = (torch.full((10,), loss) for loss in losses)
    return Measured(domain, "seen", np.array(gains), others, frozen)


def test_rules_gain_what_their_choices_gain() -> None:
    tasks = [task("a", (4.0, 2.0), (0.9, 0.5, 0.6)), task("b", (-3.0, 1.0), (0.5, 0.9, 0.8))]
    found = own_rules.compare(tasks, own_rules.rules(NAMES))
    assert found["always own P 0.25 0.05"] == {"gain": 0.5, "worst": -3.0, "frozen": 0.0}
    assert found["always usual I 0.5 0.05"]["gain"] == 1.5
    assert found["lowest held-out loss"] == {"gain": 2.0, "worst": 0.0, "frozen": 0.5}
    assert found["first, unless worse by 2"] == {"gain": 2.0, "worst": 0.0, "frozen": 0.5}
    assert own_rules.agreement(tasks) == pytest.approx(1.0)


def test_the_command_reads_what_the_grid_wrote(md_mini: Path, kit_file: Path, tmp_path: Path) -> None:
    wanted = [candidate(text) for text in NAMES]
    found = own_grid.run(md_mini, str(kit_file), wanted, 2, 60.0, "cpu", names=["birds", "dtd10"], rounds=1)
    path = tmp_path / "grid.npz"
    own_grid.write(found, path)
    (first, _) = own_rules.read(path, NAMES)
    gained = own_grid.summary(found)["seen"]["gain"]
    assert first.gains == pytest.approx([gained[name]["20"] for name in NAMES], abs=0.01)
    assert all(len(losses) == 10 for losses in (first.frozen, *first.losses))
    said = CliRunner().invoke(app, ["bench", "own-rules", str(path), "--candidates", "; ".join(NAMES)])
    assert said.exit_code == 0, said.output
    assert "always own P 0.25 0.05" in said.output
    with pytest.raises(FewshiftError, match="no candidate"):
        own_rules.read(path, ["own P 9 9"])
