"""The tour as a newcomer would follow it: its lines and blocks are run, in a folder with drawn images."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from docs_text import ROOT, code_blocks, command_lines
from PIL import Image

import fewshift as fs
from fewshift.nets.bundled import bundled_kits

SHOTS, NEW = 2, 4


@pytest.fixture
def garden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """support/daisy, support/fern and new/, as the tour has them."""
    assert bundled_kits()
    plants = fs.open_suite("drawn")["plants"]
    (tmp_path / "new").mkdir()
    for class_id, name in enumerate(("daisy", "fern")):
        (tmp_path / "support" / name).mkdir(parents=True)
        for place, pixels in enumerate(plants.source.read([(class_id, n) for n in range(SHOTS + NEW // 2)])):
            target = (
                f"support/{name}/{place}.jpg" if place < SHOTS else f"new/{2 * class_id + place - SHOTS}.jpg"
            )
            Image.fromarray(pixels).save(tmp_path / target)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tour_of_readme() -> str:
    text = (ROOT / "README.md").read_text()
    return text.split("## Your own images in five minutes")[1].split("\n## ")[0]


def run(blocks: list[str]) -> dict[str, object]:
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "the tour", "exec"), names)
    return names


@pytest.mark.slow
def test_the_python_of_the_readme(garden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = run(code_blocks(tour_of_readme(), "python"))
    again = fs.load(garden / "plants.fewshift")
    assert again.classes_.tolist() == ["daisy", "fern"]
    assert names["classifier"].predict("new/").tolist() == again.predict("new/").tolist()  # type: ignore[attr-defined]
    assert "daisy" in capsys.readouterr().out


@pytest.mark.slow
def test_the_commands_of_the_readme(garden: Path) -> None:
    """In a shell, and with the quick method: the descent is tried above, the lines are here."""
    lines = command_lines(tour_of_readme())
    assert [line.split()[1] for line in lines] == ["fit", "predict"]
    shell = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    lines[0] += " --method pa"
    for line in lines:
        done = subprocess.run(line, shell=True, env=shell, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert done.stdout.count("new/") == NEW


@pytest.mark.slow
@pytest.mark.parametrize("page", ["tour.md", "own-images.md"])
def test_the_python_of_the_pages(garden: Path, page: str) -> None:
    blocks = code_blocks((ROOT / "docs" / page).read_text(), "python")
    assert blocks
    run([block.replace("FewShotClassifier()", 'FewShotClassifier(method="pa")') for block in blocks])
    assert (garden / "plants.fewshift").exists()
