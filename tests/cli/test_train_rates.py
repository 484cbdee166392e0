"""`fewshift train rates` writes pairs that a kit keeps, and refuses what it cannot tune."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fewshift.cli.app import app
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import freeze
from fewshift.nets.kit import ImageSettings, Kit, load_kit, save_kit
from fewshift.nets.resnet import ResNet18


@pytest.fixture
def kit_file(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_kit(Kit(freeze(ResNet18(width=4)), ImageSettings(size=28)), tmp_path / "a.kit")
    return tmp_path / "a.kit"


@pytest.mark.slow
def test_rates_are_chosen_on_validation_tasks_and_kept(kit_file: Path) -> None:
    out = kit_file.with_name("b.kit")
    arguments = ["train", "rates", "--kit", str(kit_file), "--out", str(out), "--suite", "drawn"]
    options = ["--methods", "pa", "--tasks", "1", "--protocol", "one-shot", "--quiet"]
    result = CliRunner().invoke(app, [*arguments, *options])
    assert result.exit_code == 0, result.output
    assert "pa, seen: adapters 0" in result.output
    info = load_kit(out).info
    assert set(info["rates"]["pa"]) == {"seen", "unseen"}
    assert len(info["rates_tried"]["pa"]["unseen"]) > 3


def test_a_method_without_rates_is_answered_by_a_sentence(kit_file: Path) -> None:
    arguments = ["train", "rates", "--kit", str(kit_file), "--out", str(kit_file), "--suite", "drawn"]
    result = CliRunner().invoke(app, [*arguments, "--methods", "ncc", "--tasks", "1", "--quiet"])
    assert isinstance(result.exception, FewshiftError)
    assert "ncc has no rates to choose" in str(result.exception)
