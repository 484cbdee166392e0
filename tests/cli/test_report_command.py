"""The command `report`, as a shell sees it."""

import csv
import io
import json
import os
from pathlib import Path

import pytest
from tiny_world import Fewshift


def row(method: str, domain: str, index: int, accuracy: float, **more: object) -> dict[str, object]:
    """The fields that scripts rely on, and no others."""
    return {
        "method": method,
        "domain": domain,
        "split": "test",
        "index": index,
        "accuracy": accuracy,
        "seconds": 0.1,
        "way": 5,
        "support": 25,
        "queries": 50,
        "seed": 0,
        "protocol": "varying",
        "oracle": method != "ncc",
        "seen": domain == "birds",
        **more,
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.jsonl"
    rows = [
        row(method, domain, index, base + 0.1 * index)
        for method, base in (("ncc", 0.4), ("tsa", 0.5), ("tsp", 0.6))
        for domain in ("birds", "mnist")
        for index in range(3)
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def test_report_prints_markdown(fewshift: Fewshift, results: Path) -> None:
    done = fewshift("report", results)
    assert done.code == 0
    assert done.err == ""
    assert "| birds" in done.out
    assert "**70.0 ± 9.2**" in done.out
    assert "Difference to tsa°" in done.out


@pytest.mark.parametrize(
    ("format", "mark"),
    [
        ("markdown", "# Results"),
        ("csv", "board,table,"),
        ("latex", r"\begin{table}"),
        ("html", "<!doctype html>"),
    ],
)
def test_every_format_to_a_file(
    fewshift: Fewshift, results: Path, tmp_path: Path, format: str, mark: str
) -> None:
    out = tmp_path / "made" / f"report.{format}"
    done = fewshift("report", results, "--format", format, "--out", out, "--published")
    assert (done.code, done.out) == (0, "")
    assert str(out) in done.err
    assert out.read_text().startswith(mark)
    assert [p.name for p in out.parent.iterdir()] == [out.name]


def test_csv_is_one_number_a_row(fewshift: Fewshift, results: Path) -> None:
    done = fewshift("report", results, "--format", "csv", "--baseline", "ncc")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    (found,) = (
        r for r in rows if (r["table"], r["row"], r["column"]) == ("difference to ncc", "mnist", "tsp°")
    )
    assert (float(found["mean"]), float(found["half_width"]), found["unit"]) == (20.0, 0.0, "points")


def test_of_many_methods_some_are_shown_and_the_baselines(fewshift: Fewshift, results: Path) -> None:
    done = fewshift("report", results, "--summary", "--methods", "tsp", "--baseline", "ncc")
    assert (done.code, done.err) == (0, "")
    rows = [line.split("|")[1].strip() for line in done.out.splitlines() if line.startswith("| ")]
    assert rows == ["method", "tsp°", "ncc"]


def test_the_first_tasks_alone_are_the_same_for_all(
    fewshift: Fewshift, results: Path, tmp_path: Path
) -> None:
    first = tmp_path / "first.jsonl"
    lines = results.read_text().splitlines(keepends=True)
    first.write_text("".join(line for line in lines if json.loads(line)["index"] < 2))
    cut = fewshift("report", results, "--tasks", "2")
    assert (cut.code, cut.err) == (0, "")
    assert cut.out == fewshift("report", first).out
    assert cut.out != fewshift("report", results).out
    first.write_text("".join(line for line in lines if json.loads(line)["index"] == 2))
    none = fewshift("report", first, "--tasks", "2")
    assert (none.code, none.out) == (2, "")
    assert "no score of a domain's first 2 tasks" in none.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["gone.jsonl"], "gone.jsonl"),
        (["{results}", "--methods", "tsp,nobody"], "no results of the method 'nobody'"),
        (["{results}", "--baseline", "nobody"], "no results of the baseline 'nobody'"),
        (["{results}", "--format", "pdf"], "pdf"),
        (["{results}", "--out", "/dev/null/x"], "/dev/null/x"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(
    fewshift: Fewshift, results: Path, words: list[str], complaint: str
) -> None:
    done = fewshift("report", *(w.format(results=results) for w in words))
    assert done.code == 2
    assert complaint in done.err
    assert "Traceback" not in done.err


def test_a_last_line_without_its_newline_counts_if_it_is_whole(fewshift: Fewshift, results: Path) -> None:
    wanted = fewshift("report", results).out
    whole = results.read_bytes()
    results.write_bytes(whole[:-1])
    assert fewshift("report", results).out == wanted
    results.write_bytes(whole + whole[:40])  # still being written
    assert fewshift("report", results).out == wanted


def test_what_a_table_of_numbers_has_no_place_for_is_said(fewshift: Fewshift, results: Path) -> None:
    results.write_text("".join(results.read_text().splitlines(keepends=True)[:-1]))
    for form in ("csv", "latex"):
        done = fewshift("report", results, "--format", form)
        assert done.code == 0
        assert "not finished: of 3 tasks on mnist there are tsp° 2" in done.err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_not_replaced_by_a_file(fewshift: Fewshift, results: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        done = fewshift("report", results, "--out", tmp_path / name)
        assert done.code == 2
        assert "is a pipe or a device, not a file" in done.err
    assert (tmp_path / "pipe").is_fifo()


def test_a_broken_line_is_named(fewshift: Fewshift, results: Path) -> None:
    with results.open("a") as file:
        file.write('{"method": "ncc"}\n')
    done = fewshift("report", results)
    assert done.code == 2
    assert f"{results}:19: the score has no domain" in done.err
