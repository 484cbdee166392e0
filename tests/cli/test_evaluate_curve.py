"""`fewshift evaluate --folder DIR` as a shell sees it: tables, a page, lines to go on with, one sentence."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny_world import Fewshift

from fewshift.cli import outputs
from fewshift.data.drawn.suite import drawn_domain
from fewshift.nets.backbone import freeze
from fewshift.nets.kit import ImageSettings, Kit, save_kit
from fewshift.nets.resnet import ResNet18


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`small.kit`, and `shapes` with three classes of five pictures."""
    root = tmp_path_factory.mktemp("world")
    torch.manual_seed(0)
    save_kit(Kit(freeze(ResNet18(4, 1)), ImageSettings(size=32)), root / "small.kit")
    source = drawn_domain("shapes").source
    for c, name in enumerate(("circle", "žlutá & blue", "star")):
        (root / "shapes" / name).mkdir(parents=True)
        for i, image in enumerate(source.read([(c, i) for i in range(5)])):
            Image.fromarray(image).save(root / "shapes" / name / f"{i}.png")
    return root


@pytest.fixture
def run(fewshift: Fewshift, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fewshift:
    """The command in an empty folder; SHAPES, KIT and IMAGE are replaced."""
    monkeypatch.chdir(tmp_path)

    shapes = world / "shapes"
    places = {"SHAPES": shapes, "KIT": world / "small.kit", "IMAGE": shapes / "circle" / "0.png"}
    return lambda *words: fewshift("evaluate", *(places.get(str(word), word) for word in words))


QUICK = ("--kit", "KIT", "--methods", "ncc,linear_probe", "--tasks", 1)


def test_a_folder_alone_gives_a_curve_and_a_page(run: Fewshift, tmp_path: Path) -> None:
    code, out, err = run("--folder", "SHAPES", *QUICK)
    assert code == 0
    for word in (
        "1 image a class",
        "2 images a class",
        "nearest centroid",
        "over linear probe",
        "calibration",
    ):
        assert word in out
    assert "5 images a class" not in out
    assert out.count("1 task only: the intervals say next to nothing") == 2
    assert "3 classes, 15 images; 1 task of 3 classes with 1, 2 images a class" in err
    assert [path.name for path in tmp_path.iterdir()] == ["shapes-curve.html"]
    page = (tmp_path / "shapes-curve.html").read_text()
    assert "žlutá &amp; blue" in page
    assert page.count("data:image/jpeg;base64,") == page.count("<figure>") > 0
    assert "http" not in page


def test_a_curve_says_in_which_precision_it_computes(run: Fewshift, tmp_path: Path) -> None:
    words = ("--folder", "SHAPES", "--curve", "--kit", "KIT", "--methods", "gd,linear_probe", "--shots", 1)
    told = {"bfloat16": "folded in bfloat16", "float32": "folded"}
    for asked, engine in told.items():
        files = ("--out", f"{asked}.jsonl", "--html", f"{asked}.html", "--device", "cpu")
        done = run(*words, "--tasks", 1, "--precision", asked, *files)
        assert done.code == 0, done.err
        assert f"engine {engine} on cpu\n" in done.err
        assert f"{engine} on cpu<" in (tmp_path / f"{asked}.html").read_text()
        rows = map(json.loads, (tmp_path / f"{asked}.jsonl").read_text().splitlines())
        assert {row["method"]: row["engine"] for row in rows} == {"gd": engine, "linear_probe": "plain"}
    files = ("--out", "bfloat16.jsonl", "--html", "page.html", "--precision", "float32", "--device", "cpu")
    done = run(*words, "--tasks", 2, *files)
    assert done.code == 0
    assert "lines of gd that are there were computed by folded in bfloat16, new ones by folded:" in done.err


def test_a_page_that_cannot_be_written_costs_no_work(run: Fewshift, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(outputs, "write_whole", full)
    code, out, err = run("--folder", "SHAPES", *QUICK)
    assert code == 2
    assert "shapes-curve.html: cannot be written (No space left on device)" in err
    assert "over linear probe" in out  # the tables are there all the same

    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    code, out, err = run("--folder", "SHAPES", *QUICK)
    assert (code, out) == (2, "")
    assert "shapes-curve.html cannot be written (no right to write in its folder)" in err
    assert err.count("\n") == 1


def test_lines_are_gone_on_with_and_reported(run: Fewshift, tmp_path: Path) -> None:
    words = (
        "--folder",
        "SHAPES",
        "--curve",
        *QUICK,
        "--out",
        "lines.jsonl",
        "--html",
        "page.html",
        "--quiet",
    )
    assert run(*words) == (0, "", "")
    whole, page = Path("lines.jsonl").read_text(), Path("page.html").read_text()
    rows = [json.loads(line) for line in whole.splitlines()]
    assert len(rows) == 2 * 2
    for row in rows:
        assert row["method"] in ("ncc", "linear_probe")
        assert row["domain"] in ("shapes 1-shot", "shapes 2-shot")
        assert {"index", "accuracy", "seconds", "way", "support", "seed", "protocol", "oracle", "seen"} <= {
            *row
        }
    Path("lines.jsonl").write_text("".join(whole.splitlines(keepends=True)[:3]) + '{"method": "nc')
    assert run(*words)[0] == 0
    again = [json.loads(line) for line in Path("lines.jsonl").read_text().splitlines()]
    assert [(r["method"], r["domain"], r["index"], r["notes"]) for r in again] == [
        (r["method"], r["domain"], r["index"], r["notes"]) for r in rows
    ]
    assert Path("page.html").read_text().split("<h2>Cost")[0] == page.split("<h2>Cost")[0]
    code, _, err = run(*words, "--seed", 1)
    assert code == 2
    assert "belongs to another run" in err


def test_lines_of_a_folder_that_has_changed_are_refused(run: Fewshift, world: Path, tmp_path: Path) -> None:
    shutil.copytree(world / "shapes", tmp_path / "own")
    words = ("--folder", "own", "--shots", "1", *QUICK, "--out", "lines.jsonl", "--quiet")
    assert run(*words)[0] == 0
    (tmp_path / "own" / "star").rename(tmp_path / "own" / "sun")
    code, _, err = run(*words)
    assert code == 2
    assert "held other classes or images then" in err


def test_a_folder_with_out_alone_stays_a_domain_of_a_table(run: Fewshift, tmp_path: Path) -> None:
    code, _, _ = run(
        "--folder", "SHAPES", "--kit", "KIT", "--methods", "ncc", "--out", "x.jsonl", "--tasks", 1
    )
    said = [path.name for path in tmp_path.iterdir()]
    assert "shapes-curve.html" not in said
    assert code == 2  # three classes are too few for the standard protocol, which is what was asked for


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--folder", "nowhere"], "nowhere: this is not there"),
        (["--folder", "SHAPES", "--shots", "1,many"], "--shots is '1,many'"),
        (["--folder", "SHAPES", "--shots", "5"], "'circle' has 5; ask for 4 at most"),
        (["--folder", "SHAPES", "--way", "9"], "has 3 classes"),
        (["--folder", "SHAPES", "--methods", "magic"], "there is no method 'magic'"),
        (["--folder", "SHAPES", "--methods", ","], "--methods names none"),
        (["--folder", "SHAPES", "--methods", "tsp"], "tsp needs a kit with preconditioners"),
        (["--folder", "SHAPES", "--html", "."], "--html . is a folder"),
        (["--folder", "SHAPES", "--html", "x.html", "--out", "./x.html"], "--html x.html is --out, too"),
        (["--folder", "SHAPES", "--html", "IMAGE"], "is an image of"),
        (["--folder", "SHAPES", "--protocol", "one-shot"], "--protocol has no meaning for a learning curve"),
        (["--records", "SHAPES", "--shots", "1"], "--shots is for a learning curve"),
        (["--folder", "SHAPES", "--precision", "tf32", "--device", "cpu"], "tf32 cannot be had here"),
        (["--folder", "SHAPES", "--device", "abacus"], "device 'abacus' cannot be used"),
        (["--records", "SHAPES"], "--out results.jsonl is missing"),
    ],
)
def test_mistakes_get_one_sentence_and_leave_nothing(
    run: Fewshift, tmp_path: Path, words: list[str], sentence: str
) -> None:
    given = [*words, "--quiet"]
    for option, value in (("--kit", "KIT"), ("--methods", "ncc"), ("--tasks", "1")):
        given += [] if option in words else [option, value]
    code, out, err = run(*given)
    assert code == 2
    assert sentence in err
    assert err.startswith("fewshift: ")
    assert (err.count("\n"), out) == (1, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ({}, "no class folders"),
        ({"one": 3}, "there is one class only, 'one'"),
        ({"one": 3, "two": 1}, "the class 'two' has one image only"),
        ({"one": 3, "two": 0}, "the class 'two' has no image"),
        ({"one": 3, "two": -3}, "two/0.png: "),
    ],
)
def test_folders_that_cannot_be_asked_about_are_named(
    run: Fewshift, world: Path, tmp_path: Path, made: dict[str, int], sentence: str
) -> None:
    picture = (world / "shapes" / "star" / "0.png").read_bytes()
    (tmp_path / "own").mkdir()
    for name, count in made.items():
        (tmp_path / "own" / name).mkdir()
        for i in range(abs(count)):
            content = picture if count > 0 else b"no picture"
            (tmp_path / "own" / name / f"{i}.png").write_bytes(content)
    code, out, err = run("--folder", "own", *QUICK, "--quiet")
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
