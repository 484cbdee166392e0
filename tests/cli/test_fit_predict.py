"""`fewshift fit` and `predict`: two commands from a folder to names, and a sentence for each mistake."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from fewshift.cli import main
from fewshift.data.drawn.suite import drawn_domain
from fewshift.errors import FewshiftError
from fewshift.estimator.predictions import predictions
from fewshift.estimator.saved import load
from fewshift.nets.backbone import freeze
from fewshift.nets.kit import ImageSettings, Kit, save_kit
from fewshift.nets.resnet import ResNet18


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    net = ResNet18(4, 1)
    with torch.no_grad():
        for _ in range(3):
            net(torch.randn(8, 3, 32, 32))
    path = tmp_path_factory.mktemp("kits") / "small.kit"
    save_kit(Kit(freeze(net), ImageSettings(size=32)), path)
    return str(path)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """support/CLASS/N.png and new/N.jpg."""
    root = tmp_path_factory.mktemp("images")
    source = drawn_domain("shapes").source
    (root / "new").mkdir()
    for c, name in enumerate(("circle", "žlutá, blue")):
        (root / "support" / name).mkdir(parents=True)
        for i, image in enumerate(source.read([(c, i) for i in range(5)])):
            Image.fromarray(image).save(
                root / "support" / name / f"{i}.png" if i < 3 else root / "new" / f"{c}{i}.jpg"
            )
    return root


@pytest.fixture(scope="module")
def fitted(kit: str, images: Path) -> Path:
    out = images / "shapes.fewshift"
    run("fit", images / "support", "-o", out, "--kit", kit, "--method", "tsa", "--quiet")
    return out


def run(*words: object, code: int = 0) -> None:
    """The command as a user runs it."""
    before = sys.argv
    sys.argv = ["fewshift", *map(str, words)]
    try:
        with pytest.raises(SystemExit) as stopped:
            main()
    finally:
        sys.argv = before
    assert (stopped.value.code or 0) == code


def test_fit_says_what_it_did(
    kit: str, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.fewshift"
    run("fit", images / "support", "-o", out, "--kit", kit, "--method", "pa")
    said = capsys.readouterr().out
    for word in (
        "circle",
        "žlutá, blue",
        "small, engine folded",
        "settings   pa,",
        "held-out",
        f"wrote      {out}",
    ):
        assert word in said
    assert [path.name for path in tmp_path.iterdir()] == ["x.fewshift"]
    run("fit", images / "support", "-o", out, "--kit", kit, "--method", "ncc", "--quiet")
    assert capsys.readouterr().out == ""


def test_fit_names_what_it_left_out(
    kit: str, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    support = tmp_path / "support"
    shutil.copytree(images / "support", support)
    for junk in ("readme.txt", ".hidden.jpg", "loose.jpg", "circle/.hidden", "circle/a.heic"):
        (support / junk).write_text("x")
    (support / "circle" / "0.png").rename(support / "circle" / "0.jfif")  # a browser's name for a photograph
    run("fit", support, "-o", tmp_path / "x.fewshift", "--kit", kit, "--method", "ncc")
    lines = capsys.readouterr().out.splitlines()
    assert any("circle" in line and "3" in line for line in lines)
    (line,) = (line for line in lines if line.startswith("left out"))
    assert line.startswith(f"left out   {support / 'circle' / 'a.heic'}: its name is not that of a JPEG")
    assert line.endswith("(2 in all)")


def test_what_predict_leaves_out_of_a_folder_is_named(
    fitted: Path, kit: str, images: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copytree(images / "new", tmp_path / "new")
    (tmp_path / "new" / "deep").mkdir()
    for name in ("a.heic", "deep/b.txt", ".hidden"):
        (tmp_path / "new" / name).write_text("x")
    run("predict", fitted, tmp_path / "new", "--kit", kit, "--json")
    said = capsys.readouterr().err
    assert f"left out {tmp_path / 'new' / 'a.heic'}: its name is not that of a JPEG" in said
    assert "(2 in all)" in said
    run("predict", fitted, tmp_path / "new", "--kit", kit, "--quiet")
    assert capsys.readouterr().err == ""


def test_a_link_to_nothing_is_an_image_that_cannot_be_read(
    fitted: Path, kit: str, images: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copytree(images / "new", tmp_path / "new")
    (tmp_path / "new" / "dead.jpg").symlink_to(tmp_path / "nowhere.jpg")
    run("predict", fitted, tmp_path / "new", "--kit", kit, "--quiet", code=2)
    said = capsys.readouterr()
    assert "dead.jpg: the file cannot be read (No such file or directory)" in said.err
    assert "03.jpg" in said.out


def test_a_table_of_a_folder(
    fitted: Path,
    kit: str,
    images: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(images)  # long names take several lines of the table
    run("predict", fitted, "new", "--kit", kit, "--top", 2)
    said = capsys.readouterr().out
    for word in ("04.jpg", "14.jpg", "probability", "unknown score", "then", "%"):
        assert word in said


def test_ctrl_c_loses_no_row_of_the_table(
    fitted: Path, kit: str, images: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Iterator[object]:
        yield next(iter(predictions(*_)))
        raise KeyboardInterrupt

    monkeypatch.setattr("fewshift.estimator.predictions.predictions", interrupted)
    run("predict", fitted, images / "new" / "03.jpg", images / "new" / "04.jpg", "--kit", kit, code=130)
    said = capsys.readouterr().out
    assert "03.jpg" in said
    assert "04.jpg" not in said


def test_json_lines_of_files_and_patterns(
    fitted: Path, kit: str, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(
        "predict",
        fitted,
        images / "new" / "03.jpg",
        images / "new" / "1*.jpg",
        "--kit",
        kit,
        "--json",
        "--top",
        2,
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [Path(row["image"]).name for row in rows] == ["03.jpg", "13.jpg", "14.jpg"]
    for row in rows:
        assert row["class"] in ("circle", "žlutá, blue")
        assert row["top"][0] == {"class": row["class"], "probability": row["probability"]}
        assert sum(entry["probability"] for entry in row["top"]) == pytest.approx(1, abs=1e-5)
        assert 0 <= row["unknown_score"] <= 1
        assert isinstance(row["unknown"], bool)


def test_csv_of_names_on_standard_input(
    fitted: Path,
    kit: str,
    images: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = sorted(str(path) for path in (images / "new").iterdir())
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(names) + "\n\n"))
    run("predict", fitted, "-", "--kit", kit, "--csv", "--top", 2)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["image"] for row in rows] == names
    assert list(rows[0]) == [
        "image",
        "class",
        "probability",
        "unknown_score",
        "unknown",
        "class_2",
        "probability_2",
    ]
    assert {row["class"] for row in rows} | {row["class_2"] for row in rows} == {"circle", "žlutá, blue"}


def test_as_many_columns_as_there_are_classes(
    fitted: Path, kit: str, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("predict", fitted, images / "new", "--kit", kit, "--csv", "--top", 9)
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows[0][-1] == "probability_2"
    assert {len(row) for row in rows} == {len(rows[0])}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["--json", "--csv", "--top=2"])
def test_pipes_of_another_encoding(fitted: Path, kit: str, images: Path, form: str) -> None:
    """As Windows has them: there, bytes that are no text come in and texts that have no bytes go out."""
    good = str(images / "new" / "03.jpg")
    done = subprocess.run(
        [sys.executable, "-m", "fewshift", "predict", fitted, "-", "--kit", kit, form, "--top", "2"],
        input=b"not\xfftext.jpg\n" + good.encode() + b"\n",
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count(b"\n") == 1
    assert b"the file cannot be read" in done.stderr
    assert good in done.stdout.decode()
    name = "\\u017elut\\xe1, blue" if form == "--top=2" else "žlutá, blue"
    assert name in done.stdout.decode()


def test_the_next_command_can_be_copied(
    kit: str, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "two words.fewshift"
    run("fit", images / "support", "-o", out, "--kit", kit, "--method", "ncc")
    assert f"next       fewshift predict '{out}' IMAGES..." in capsys.readouterr().out


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are Unix's")
def test_what_is_no_file_keeps_its_place(
    fitted: Path, kit: str, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    run("fit", images / "support", "-o", pipe, "--kit", kit, "--method", "ncc", code=2)
    assert "is a pipe or a device, not a file" in capsys.readouterr().err
    with pytest.raises(FewshiftError, match="is a pipe or a device"):
        load(fitted, kit=kit).save(pipe)
    run("export", fitted, "-o", pipe, "--kit", kit, code=2)
    assert pipe.is_fifo()


def test_a_folder_that_cannot_be_written_is_named_before_the_work(
    kit: str,
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    out = tmp_path / "x.fewshift"
    run("fit", images / "support", "-o", out, "--kit", "nokit", code=2)
    assert "no right to write in its folder" in capsys.readouterr().err
    run("export", "nowhere", "-o", out, "--kit", kit, code=2)
    assert "no right to write in its folder" in capsys.readouterr().err


def test_an_export_does_not_replace_its_classifier(
    fitted: Path, kit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = fitted.read_bytes()
    run("export", fitted, "-o", fitted, "--kit", kit, code=2)
    assert "is the classifier itself: give another name" in capsys.readouterr().err
    assert fitted.read_bytes() == before
    run("export", fitted, "-o", tmp_path, "--kit", kit, code=2)
    assert "is a folder: give the name of a file, such as model.onnx" in capsys.readouterr().err


def test_what_a_command_was_given_is_not_written_over(
    fitted: Path, kit: str, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Path(shutil.copy(kit, tmp_path / "own.kit"))
    shutil.copytree(images / "support", tmp_path / "support")
    image = tmp_path / "support" / "circle" / "0.png"
    before = own.read_bytes(), image.read_bytes()
    run("fit", tmp_path / "support", "-o", own, "--kit", own, code=2)
    assert f"--out {own} is the kit itself" in capsys.readouterr().err
    run("fit", tmp_path / "support", "-o", image, "--kit", own, code=2)
    assert f"--out {image} is an image of {tmp_path / 'support'}" in capsys.readouterr().err
    run("export", fitted, "-o", own, "--kit", own, code=2)
    assert f"--out {own} is the kit itself" in capsys.readouterr().err
    assert (own.read_bytes(), image.read_bytes()) == before


def test_one_bad_image_does_not_stop_the_others(
    fitted: Path, kit: str, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_text("text")
    good = images / "new" / "03.jpg"
    words = (bad, "nowhere.jpg", tmp_path / "bad.jpg", good)
    run("predict", fitted, *words, "--kit", kit, "--json", code=2)
    said = capsys.readouterr()
    assert "fewshift: there is no file or folder nowhere.jpg" in said.err
    assert [json.loads(line)["image"] for line in said.out.splitlines()] == [str(good)]
    assert said.err.count(f"fewshift: {bad}: this is no picture") == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fit", "nowhere", "-o", "x.fewshift"], "nowhere: this is not there"),
        (["fit", "SUPPORT", "-o", "KIT/x.fewshift"], "x.fewshift cannot be written ("),
        (["fit", "SUPPORT", "-o", "."], "--out . is a folder"),
        (["fit", "SUPPORT", "-o", "x.fewshift", "--method", "magic"], "no method 'magic'"),
        (["fit", "SUPPORT", "-o", "x.fewshift", "--settings", "best"], "settings is 'best'"),
        (
            ["fit", "SUPPORT", "-o", "x.fewshift", "--device", "abacus"],
            "device 'abacus' cannot be used here (torch",
        ),
        (["fit", "SUPPORT", "-o", "x.fewshift", "--kit", "nokit"], "there is no kit 'nokit'"),
        (["fit", "SUPPORT/circle", "-o", "x.fewshift"], "3 images and no class folders"),
        (["predict", "nowhere", "NEW"], "there is no classifier nowhere"),
        (["predict", "KIT", "NEW"], "no Fewshift classifier: give one that Fewshift wrote"),
        (["predict", "FITTED", "."], ".: there are no images in this folder"),
        (["predict", "FITTED", "nowhere.jpg"], "there is no file or folder nowhere.jpg"),
        (["predict", "FITTED", "x" * 300], "there is no file or folder xxx"),
        (["predict", "FITTED", "no*.jpg"], "no file matches the pattern no*.jpg"),
        (["predict", "FITTED", "NEW", "--json", "--csv"], "choose one"),
    ],
)
def test_mistakes_get_one_sentence_and_exit_code_2(
    fitted: Path,
    kit: str,
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"SUPPORT": images / "support", "NEW": images / "new", "KIT": kit, "FITTED": fitted}
    filled = [
        str(w).replace(k, str(v)) if w.startswith(k) else w for w in words for k, v in [_place(w, places)]
    ]
    run(*filled, *([] if "--kit" in filled else ["--kit", kit]), code=2)
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.startswith("fewshift: ")
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


def _place(word: str, places: dict[str, object]) -> tuple[str, object]:
    return next(((key, value) for key, value in places.items() if word.startswith(key)), ("\0", ""))


def test_another_kit_is_refused(
    fitted: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(1)
    save_kit(Kit(freeze(ResNet18(4, 1)), ImageSettings(size=32)), tmp_path / "other.kit")
    run("predict", fitted, images / "new", "--kit", tmp_path / "other.kit", code=2)
    assert "was fitted on another backbone" in capsys.readouterr().err
    run("predict", fitted, images / "new", code=2)
    assert "fitted with the kit 'small', which does not come with Fewshift" in capsys.readouterr().err


def test_a_file_with_its_backbone_needs_no_kit(
    kit: str, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.fewshift"
    run("fit", images / "support", "-o", out, "--kit", kit, "--method", "ncc", "--with-backbone", "--quiet")
    run("predict", out, images / "new", "--json", "--quiet")
    assert len(capsys.readouterr().out.splitlines()) == 4
