"""docs/add-a-method.md, followed to the letter on a small random network."""

import sys
from pathlib import Path

import pytest
import torch
from docs_text import ROOT, code_blocks, command_lines
from typer.testing import CliRunner

from fewshift.cli.app import app
from fewshift.evaluation.scores import read_scores
from fewshift.nets.backbone import freeze
from fewshift.nets.kit import ImageSettings, Kit, save_kit
from fewshift.nets.resnet import ResNet18


def test_the_example_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "add-a-method.md").read_text()
    module, contract = code_blocks(text, "python")
    (tmp_path / "shrunken.py").write_text(module)
    torch.manual_seed(0)
    save_kit(Kit(freeze(ResNet18(4, 1)), ImageSettings(16, "practical")), tmp_path / "my.kit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    exec(compile(contract, "add-a-method.md", "exec"), {})
    assert "shrunken passed 15 checks" in capsys.readouterr().out

    for line in command_lines(text):
        done = CliRunner().invoke(app, line.split()[1:])
        assert done.exit_code == 0, done.output
    scores = [read.score for read in read_scores([tmp_path / "mine.jsonl"])]
    assert {score.method for score in scores} == {"ncc", "shrunken"}
    assert len(scores) == 2 * 2 * 3  # methods, domains, tasks
    assert "shrunken" in done.output
    monkeypatch.delitem(sys.modules, "shrunken")
