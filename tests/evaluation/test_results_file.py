"""A results file outlives the process that writes it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fewshift.errors import DataError, FewshiftError
from fewshift.evaluation.results_file import SHARED, open_results
from fewshift.evaluation.scores import Key, Score, read_scores, to_line

MakeScore = Callable[..., Score]


def run_of(score: Score) -> dict[str, object]:
    return {name: getattr(score, name) for name in SHARED}


def test_lines_are_appended_and_known_the_next_time(make_score: MakeScore, tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    run = run_of(make_score())
    with open_results(path, run) as results:
        assert results.done == frozenset()
        results.append(make_score(index=0))
        results.append(make_score(index=1))
    with open_results(path, run) as results:
        assert results.done == {Key("ncc", "birds", "test", 0), Key("ncc", "birds", "test", 1)}
        results.append(make_score(index=2))
    assert [r.score.index for r in read_scores([path])] == [0, 1, 2]


@pytest.mark.parametrize("cut", [1, 17, 200, -2])
def test_a_torn_last_line_is_cut_off(make_score: MakeScore, tmp_path: Path, cut: int) -> None:
    path = tmp_path / "results.jsonl"
    whole, torn = to_line(make_score(index=0)), to_line(make_score(index=1))[:cut]
    path.write_text(whole + torn)
    with open_results(path, run_of(make_score())) as results:
        assert [key.index for key in results.done] == [0]
        results.append(make_score(index=1))
    assert path.read_text() == whole + to_line(make_score(index=1))


@pytest.mark.skipif(not hasattr(os, "pread"), reason="there is no pread here")
def test_a_file_that_the_kernel_hands_out_in_pieces_is_read_whole(
    make_score: MakeScore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(to_line(make_score()) + to_line(make_score(index=1)))
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: real(fd, min(length, 500), offset))
    before = path.read_bytes()
    with open_results(path, {}) as results:
        assert len(results.done) == 2
    assert path.read_bytes() == before


def test_a_whole_line_without_its_newline_is_kept(make_score: MakeScore, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(to_line(make_score(index=0)) + to_line(make_score(index=1)).rstrip("\n"))
    with open_results(path, run_of(make_score())) as results:
        assert sorted(key.index for key in results.done) == [0, 1]
    assert path.read_text().count("\n") == 2


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"protocol": "one-shot"},
        {"fingerprint": "beef"},
        {"pixels": "practical-84"},
        {"revealed": False},
    ],
)
def test_the_file_of_another_run_is_refused(
    make_score: MakeScore, tmp_path: Path, change: dict[str, object]
) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(to_line(make_score()))
    before = path.read_bytes()
    name = next(iter(change))
    refusal = f"another run \\({name} .*--out"
    with pytest.raises(DataError, match=refusal), open_results(path, run_of(make_score(**change))):
        pass
    assert path.read_bytes() == before


def test_other_images_under_one_name_are_refused(make_score: MakeScore, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(to_line(make_score()))
    with open_results(path, run_of(make_score()), {"birds": "abcd"}):
        pass
    with (
        pytest.raises(DataError, match="birds held other classes"),
        open_results(path, run_of(make_score()), {"birds": "0000"}),
    ):
        pass


def test_a_broken_line_in_the_middle_is_named(make_score: MakeScore, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(to_line(make_score()) + "{oops\n" + to_line(make_score(index=1)))
    with pytest.raises(DataError, match=r"results\.jsonl:2"), open_results(path, {}):
        pass
    path.write_text(2 * to_line(make_score()))
    with (
        pytest.raises(DataError, match=r":2: ncc on birds test task 0 is in the file twice"),
        open_results(path, {}),
    ):
        pass


@pytest.mark.parametrize(
    "content", [b"\x89PNG\r\n\x1a\n\xff\xfe", b"<html>\nno newline at the end", b"notes"]
)
def test_a_file_of_another_kind_is_refused_and_left_as_it_was(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"picture\.png"), open_results(path, {}):
        pass
    assert path.read_bytes() == content
    with pytest.raises(DataError, match=r"Is a directory\): give another --out"), open_results(tmp_path, {}):
        pass


def test_two_writers_do_not_mix(make_score: MakeScore, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with open_results(path, {}) as results:
        results.append(make_score())
        with pytest.raises(DataError, match="another process is writing"), open_results(path, {}):
            pass
    with open_results(path, {}) as results:  # free again
        assert len(results.done) == 1


def test_a_full_disk_is_one_sentence(
    make_score: MakeScore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with open_results(tmp_path / "results.jsonl", {}) as results:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(DataError, match="make room"):
            results.append(make_score())


def test_a_name_of_a_compressed_file_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not compressed: give a name without .gz"):
        open_results(tmp_path / "results.jsonl.gz", {}).__enter__()
    assert not list(tmp_path.iterdir())


def test_a_pipe_or_a_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FewshiftError, match="is a pipe or a device"), open_results(Path(os.devnull), {}):
        pass


def test_a_disk_that_is_full_at_the_end_is_one_sentence(
    make_score: MakeScore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="make room"), open_results(tmp_path / "r.jsonl", {}) as results:
        results.append(make_score())


WRITER = """
import sys, time
from pathlib import Path
from fewshift.evaluation.results_file import open_results
from fewshift.evaluation.scores import Key, Score
with open_results(Path(sys.argv[1]), {"seed": 0}) as results:
    for index in range(int(sys.argv[2])):
        if Key("ncc", "birds", "test", index) in results.done:
            continue
        results.append(Score(method="ncc", domain="birds", split="test", index=index, accuracy=index % 7 / 7,
            seconds=time.time() % 1, way=5, support=25, queries=50, seed=0, protocol="varying", oracle=False,
            seen=True, notes={"losses": [0.123456] * 200}))
        time.sleep(0.002)
"""


def test_kill_9_loses_and_repeats_nothing(tmp_path: Path) -> None:
    path, tasks = tmp_path / "results.jsonl", 400
    command = [sys.executable, "-c", WRITER, str(path), str(tasks)]
    kills = 0
    for pause in (0.02, 0.05, 0.08):
        process = subprocess.Popen(command)
        size = path.stat().st_size if path.exists() else 0
        while process.poll() is None and (not path.exists() or path.stat().st_size <= size):
            time.sleep(0.005)
        time.sleep(pause)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
        with path.open("ab") as torn:  # the stump that a kill inside a write leaves
            torn.write(b'{"method":"ncc","dom')
    subprocess.run(command, check=True)
    found = [(r.score.index, r.score.accuracy) for r in read_scores([path])]
    assert kills > 0
    assert found == [(i, i % 7 / 7) for i in range(tasks)]
