"""The quick checksum against its definition, which is checked against published values."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewshift.data.crc32c import (
    _compiled,
    checksums,
    checksums_by_tables,
    checksums_of_rows,
    crc32c,
    masked,
)

# The check value, and the test vectors of RFC 3720 (iSCSI), appendix B.4.
PUBLISHED = [
    (b"123456789", 0xE3069283),
    (b"", 0),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "expected"), PUBLISHED)
def test_published_values(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected
    assert _quick([data])[0] == expected


def test_tables_are_used_where_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.frombuffer(b"123456789" * 2, np.uint8)
    starts, stops = np.array([0, 9, 3]), np.array([9, 18, 3])
    with_anything = checksums(data, starts, stops).tolist()
    monkeypatch.setattr("fewshift.data.crc32c._compiled", lambda: None)
    assert checksums(data, starts, stops).tolist() == with_anything == [0xE3069283, 0xE3069283, 0]


@pytest.mark.parametrize("implementation", ["python", "missing"])
def test_a_slow_or_missing_package_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, implementation: str
) -> None:
    def pretend(name: str) -> SimpleNamespace:
        if implementation == "missing":
            raise ImportError(name)
        return SimpleNamespace(implementation=implementation, value=crc32c)

    monkeypatch.setattr("importlib.import_module", pretend)
    assert _compiled.__wrapped__() is None


def test_masked_value() -> None:
    assert masked(np.array([0xE3069283], np.uint32))[0] == 0xC78AB0E5


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=700), max_size=12), st.binary(max_size=9))
def test_quick_equals_definition(pieces: list[bytes], between: bytes) -> None:
    assert _quick(pieces, between) == [crc32c(piece) for piece in pieces]


@pytest.mark.parametrize("length", [1, 3, 4, 7, 8, 9, 255, 256, 257, 511, 512, 4096, 20_011])
def test_every_chunk_size_and_remainder(length: int) -> None:
    data = np.random.default_rng(length).bytes(length)
    assert _quick([data] * 3, b"x") == [crc32c(data)] * 3


def test_very_different_lengths_together() -> None:
    random = np.random.default_rng(0)
    pieces = [random.bytes(n) for n in (0, 1, 2, 3, 5, 100_000, 17, 1000, 0)]
    assert _quick(pieces) == [crc32c(piece) for piece in pieces]


def test_more_lanes_than_one_round() -> None:
    random = np.random.default_rng(0)
    pieces = [random.bytes(9_000_000), random.bytes(50)]
    assert _quick(pieces) == [compiled(piece) for piece in pieces]


def compiled(data: bytes) -> int:
    """The definition is too slow for megabytes: PyPI's compiled one, where it is installed."""
    return int(pytest.importorskip("crc32c").crc32c(data))


def test_rows() -> None:
    rows = np.random.default_rng(0).integers(0, 256, (50, 8), dtype=np.uint8)
    before = rows.copy()
    assert checksums_of_rows(rows).tolist() == [crc32c(row.tobytes()) for row in rows]
    assert (rows == before).all()


def test_threads_do_not_disturb_each_other() -> None:
    random = np.random.default_rng(0)
    pieces = [random.bytes(3000) for _ in range(40)]
    expected = [crc32c(piece) for piece in pieces]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: _quick(pieces), range(40))) == [expected] * 40


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=12))
def test_whichever_is_used_equals_the_tables(pieces: list[bytes]) -> None:
    stops = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    starts = stops - np.array([len(piece) for piece in pieces], np.int64)
    data = np.frombuffer(b"".join(pieces) or b"\0", np.uint8)
    assert checksums(data, starts, stops).tolist() == _quick(pieces)


def _quick(pieces: list[bytes], between: bytes = b"") -> list[int]:
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    stops = np.cumsum(lengths + len(between)) - len(between)
    data = np.frombuffer(between.join(pieces) or b"\0", np.uint8)
    return [int(value) for value in checksums_by_tables(data, stops - lengths, stops)]
