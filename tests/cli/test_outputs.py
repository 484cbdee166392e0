"""No command writes over what it reads, or over a file that is no older output of its own."""

import json
import shutil
from pathlib import Path

import pytest
from tiny_world import Fewshift, options


@pytest.fixture
def kit(tiny_kit: Path, tmp_path: Path) -> Path:
    """A copy that a command may spoil."""
    return Path(shutil.copy(tiny_kit, tmp_path / "own.kit"))


def refused(fewshift: Fewshift, kept: Path, *words: object) -> str:
    """The sentence by which a command refuses at once, with this file as it was."""
    before = kept.read_bytes()
    done = fewshift(*words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert kept.read_bytes() == before
    return done.err


def test_a_report_does_not_take_the_place_of_its_results(fewshift: Fewshift, tmp_path: Path) -> None:
    lines, others = tmp_path / "r.jsonl", tmp_path / "o.jsonl"
    for path in (lines, others):
        path.write_text("what was scored in a week\n")
    err = refused(fewshift, others, "report", lines, others, "--out", others)
    assert f"--out {others} is the results file itself: give another name, such as report.md" in err


def test_a_spectrum_does_not_take_the_place_of_its_kit(fewshift: Fewshift, kit: Path) -> None:
    assert "is the kit itself" in refused(fewshift, kit, "spectrum", kit, "--out", kit)


def test_rates_go_into_their_own_kit_and_no_other_that_is_read(
    fewshift: Fewshift, kit: Path, tiny_kit: Path, records: Path
) -> None:
    words = options(records=records, methods="pa", tasks=1, protocol="one-shot", begin_at=kit, out=kit)
    err = refused(fewshift, kit, "train", "rates", "--kit", tiny_kit, *words)
    assert f"--out {kit} is the kit of --begin-at itself" in err
    assert fewshift("train", "rates", "--kit", kit, *words).code == 0


@pytest.mark.parametrize("command", ["fit", "gate", "own-images", "kits", "adapt"])
def test_results_of_a_benchmark_take_the_place_of_older_ones_only(
    command: str, fewshift: Fewshift, kit: Path
) -> None:
    given = {"fit": ("--kit", kit), "gate": ("--kit", kit), "own-images": ("--records", "nowhere")}
    more = given.get(command, ("--records", "nowhere") if command == "kits" else ())
    err = refused(fewshift, kit, "bench", command, *more, "--json", kit)
    assert f"--json {kit} is there and is not the results of a benchmark: give another name" in err


def test_older_results_of_a_benchmark_are_replaced(fewshift: Fewshift, tmp_path: Path) -> None:
    out = tmp_path / "adapt.json"
    words = "--sizes 5 --steps 1 --width 2 --image-size 16 --repeats 1 --engines folded"
    for _ in range(2):
        assert fewshift("bench", "adapt", *words.split(), "--json", out).code == 0
    assert json.loads(out.read_text())["settings"]["steps"] == 1


def test_arrays_do_not_take_the_place_of_a_kit(fewshift: Fewshift, kit: Path) -> None:
    words = ("--records", "nowhere", "--candidates", "usual I 0.5 0.05", "--kit", kit, "--out", kit)
    assert "is not a file of arrays" in refused(fewshift, kit, "bench", "own-grid", *words)


def test_a_sheet_does_not_take_the_place_of_records(
    fewshift: Fewshift, records: Path, tmp_path: Path
) -> None:
    own = tmp_path / "records"
    shutil.copytree(records, own)
    images = own / "far" / "0.tfrecords"
    err = refused(fewshift, images, "data", "inspect", own, "--sheet", images)
    assert f"--sheet {images} is there and is not a PNG picture: give another name, such as sheet.png" in err
    sheet = tmp_path / "sheet.png"
    for _ in range(2):
        assert fewshift("data", "inspect", own, "--sheet", sheet).code == 0
