"""A score is a line and a line is a score."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fewshift.errors import DataError
from fewshift.evaluation.scores import Key, Score, from_line, read_scores, to_line

MakeScore = Callable[..., Score]


def test_a_line_holds_what_scripts_rely_on_and_comes_back_whole(make_score: MakeScore) -> None:
    score = make_score(notes={"coefficients": {"birds": 0.75}, "losses": [1.0, 0.5]}, versions={"torch": "2"})
    line = to_line(score)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    wanted = [
        "method",
        "domain",
        "index",
        "accuracy",
        "seconds",
        "way",
        "support",
        "seed",
        "protocol",
        "oracle",
        "seen",
    ]
    assert set(wanted) <= json.loads(line).keys()
    assert from_line(line, "x:1") == score
    assert score.key == Key("ncc", "birds", "test", 0)


def test_what_nobody_filled_is_left_out_but_required_fields_stay(make_score: MakeScore) -> None:
    content = json.loads(to_line(make_score(seen=None, role=None, kit=None)))
    assert content["seen"] is None
    assert "role" not in content
    assert "kit" not in content
    assert "notes" not in content


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"accuracy": 1.2}, "accuracy is 1.2"),
        ({"accuracy": float("nan")}, "accuracy is nan"),
        ({"accuracy": True}, "accuracy is True"),
        ({"accuracy": "0.5"}, "accuracy is '0.5'"),
        ({"seconds": -1}, "seconds is -1"),
        ({"seconds": float("inf")}, "seconds is inf"),
        ({"index": 1.5}, "index is 1.5"),
        ({"oracle": 1}, "oracle is 1"),
        ({"colour": "red"}, "unknown field 'colour'"),
    ],
)
def test_a_bad_value_is_refused_with_its_place(
    make_score: MakeScore, change: dict[str, object], complaint: str
) -> None:
    content = {**json.loads(to_line(make_score())), **change}
    with pytest.raises(DataError, match=complaint) as refused:
        from_line(json.dumps(content), "results.jsonl:7")
    assert str(refused.value).startswith("results.jsonl:7: ")


def test_missing_fields_and_other_files_are_refused(make_score: MakeScore) -> None:
    content = json.loads(to_line(make_score()))
    del content["protocol"], content["way"]
    with pytest.raises(DataError, match="no way, protocol"):
        from_line(json.dumps(content), "a:1")
    with pytest.raises(DataError, match="a:1: not a line of JSON"):
        from_line("{", "a:1")
    with pytest.raises(DataError, match=r"a:1: not a line of JSON \(nested too deeply\)"):
        from_line("[" * 200_000, "a:1")
    with pytest.raises(DataError, match="JSON object"):
        from_line("[1]", "a:1")


def test_reading_skips_a_line_that_is_still_being_written(make_score: MakeScore, tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text(to_line(make_score()) + "\n" + to_line(make_score(index=1))[:40])
    two.write_text(to_line(make_score(index=2)))
    reads = list(read_scores([one, two]))
    assert [r.score.index for r in reads] == [0, 2]
    assert [r.where for r in reads] == [f"{one}:1", f"{two}:1"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.jsonl.*give a file that fewshift evaluate wrote"):
        list(read_scores([tmp_path / "gone.jsonl"]))
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"binary\.jsonl"):
        list(read_scores([binary]))
    packed = bytearray(gzip.compress(b"a line of results", mtime=0))
    packed[10] = 0xFF  # a kind of block that does not exist
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes(packed)
    with pytest.raises(DataError, match=r"torn\.jsonl\.gz: cannot be read"):
        list(read_scores([torn]))
