"""Points of a search survive its end, and belong to that search alone."""

from pathlib import Path

import pytest

from fewshift.errors import DataError
from fewshift.presets.kept_points import KeptPoints

SEARCH = {"kit": "f00d", "tasks": [2, 0]}
FIRST, SECOND = ("gd", "seen", "0.1", "1.0"), ("gd", "seen", "0.25", "1.0")


def test_points_are_there_again_to_the_bit(tmp_path: Path) -> None:
    path = tmp_path / "a.rates.jsonl"
    kept = KeptPoints(path, SEARCH)
    assert not path.exists()  # nothing was tried yet
    kept[FIRST] = 1 / 3
    kept[SECOND] = 0.1 + 0.2
    assert dict(KeptPoints(path, SEARCH)) == {FIRST: 1 / 3, SECOND: 0.1 + 0.2}


def test_a_torn_line_is_passed_over_and_the_file_made_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.rates.jsonl"
    KeptPoints(path, SEARCH)[FIRST] = 0.5
    whole = path.read_text()
    path.write_text(whole + '["gd", "seen", "0.2')
    again = KeptPoints(path, SEARCH)
    assert dict(again) == {FIRST: 0.5}
    again[SECOND] = 0.75
    assert path.read_text() == whole + '["gd", "seen", "0.25", "1.0", 0.75]\n'


def test_another_search_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.rates.jsonl"
    KeptPoints(path, SEARCH)[FIRST] = 0.5
    other = KeptPoints(path, {**SEARCH, "kit": "beef"})
    assert not other
    other[SECOND] = 0.75
    assert not KeptPoints(path, SEARCH)


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    kept = KeptPoints(tmp_path / "a.rates.jsonl", SEARCH)
    kept[FIRST] = 0.5
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DataError, match=r"a\.rates\.jsonl: cannot be written \(No space left.*make room"):
        kept[SECOND] = 0.75
