"""CRC-32C (Castagnoli), the checksum of TFRecord files, for many pieces of a buffer at once.

`crc32c` is the definition, one byte at a time. `checksums` gives the same values by PyPI `google-crc32c` if
that is installed, else at hundreds of megabytes a second without compiled code, because the CRC is linear
over GF(2): every piece is cut into chunks of one size, all chunks run side by side through two tables, and
the chunks' remainders, each multiplied by x^(bits after it), add up (by XOR) to the remainder of the piece.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78  # reflected: the highest bit stands for x^0
_ONE = 0x80000000
_MASK_DELTA = 0xA282EAD8
_LANES = 1 << 13  # chunks side by side: enough to hide the interpreter, few enough to stay in the cache


def crc32c(data: bytes) -> int:
    """The definition: of "123456789" it gives 0xE3069283."""
    state = 0xFFFFFFFF
    table = _byte_table().tolist()
    for byte in data:
        state = (state >> 8) ^ table[(state ^ byte) & 0xFF]
    return state ^ 0xFFFFFFFF


def masked(crcs: Words) -> Words:  # (n,) -> (n,)
    """As TFRecord files store them: rotated and shifted, so that a CRC over stored CRCs stays meaningful."""
    stored: Words = ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(_MASK_DELTA)
    return stored


def checksums(data: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Words:  # (n,)
    """The CRC-32C of data[start:stop] for every pair."""
    if compiled := _compiled():
        source = data.tobytes()
        pairs = zip(starts.tolist(), stops.tolist(), strict=True)
        return np.array([compiled(source[start:stop]) for start, stop in pairs], np.uint32)
    return checksums_by_tables(data, starts, stops)


def checksums_by_tables(
    data: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> Words:  # (n,)
    """`checksums` without compiled code."""
    if not len(starts):
        return np.zeros(0, np.uint32)
    lengths = stops - starts
    chunk = _chunk_size(int(lengths.sum()) // len(lengths))
    chunks = np.maximum(-(-lengths // chunk), 1)
    ends = np.cumsum(chunks)
    remainders = _remainders(_side_by_side(data, starts, lengths, chunks, chunk))
    after = np.repeat(ends, chunks) - np.arange(1, ends[-1] + 1)  # chunks of the same piece behind each one
    powers = _powers(chunk, int(chunks.max()).bit_length())
    scaled = _multiply(remainders, powers[after])
    result: Words = np.bitwise_xor.reduceat(scaled, ends - chunks) ^ np.uint32(0xFFFFFFFF)
    for short in np.flatnonzero(lengths < 4):
        result[short] = crc32c(data[starts[short] : stops[short]].tobytes())
    return result


@cache
def _compiled() -> Callable[[bytes], int] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns where it is slower than the tables, see below
            module = importlib.import_module("google_crc32c")
    except ImportError:
        return None
    value: Callable[[bytes], int] = module.value
    return value if module.implementation == "c" else None


def _chunk_size(typical: int) -> int:
    """Short chunks waste little on short pieces, long ones are cheaper to add up."""
    return next((size for size in (8, 32, 64, 128) if typical <= 8 * size - 56), 256)


def checksums_of_rows(rows: NDArray[np.uint8]) -> Words:  # (n, 4k) -> (n,)
    """The CRC-32C of every row of a table whose width is a multiple of four."""
    inverted = np.array(rows, order="C")
    inverted[:, :4] ^= 0xFF
    result: Words = _remainders(inverted) ^ np.uint32(0xFFFFFFFF)
    return result


def _side_by_side(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    chunks: NDArray[np.int64],
    size: int,
) -> NDArray[np.uint8]:  # (sum of chunks, size)
    """Each piece at the end of its chunks, zeros before it: leading zeros do not change a remainder."""
    after = np.cumsum(chunks)
    padded = np.empty((int(after[-1]), size), np.uint8)
    padded[after - chunks] = 0
    ends = after * size
    begins = ends - lengths
    source, target = data.data, padded.reshape(-1).data
    for start, stop, begin, end in zip(
        starts.tolist(), (starts + lengths).tolist(), begins.tolist(), ends.tolist(), strict=True
    ):
        target[begin:end] = source[start:stop]
    # Starting from 0xFFFFFFFF, as the CRC does, is the same as inverting the first four bytes.
    padded.reshape(-1)[begins[lengths >= 4, None] + np.arange(4)] ^= 0xFF
    return padded


def _remainders(rows: NDArray[np.uint8]) -> Words:  # (n, 4k) -> (n,)
    """The remainder of every row, four bytes per step."""
    low, high = _word_tables()
    words = rows.view("<u4")
    result = np.empty(len(words), np.uint32)
    for first in range(0, len(words), _LANES):
        columns = np.ascontiguousarray(words[first : first + _LANES].T)
        state = np.zeros(columns.shape[1], "<u4")
        halves = state.view("<u2").reshape(-1, 2).T
        index = np.empty(halves.shape, np.intp)
        partial = np.empty_like(state)
        for column in columns:
            np.bitwise_xor(state, column, out=state)
            np.copyto(index, halves)
            np.take(low, index[0], out=partial, mode="clip")  # every index fits; mode "raise" would copy
            np.take(high, index[1], out=state, mode="clip")
            np.bitwise_xor(state, partial, out=state)
        result[first : first + _LANES] = state
    return result


def _multiply(a: Words, b: Words) -> Words:
    """The products of polynomials modulo the CRC's, elementwise."""
    product = np.zeros(np.broadcast_shapes(a.shape, b.shape), np.uint32)
    one, polynomial = np.uint32(1), np.uint32(_POLYNOMIAL)
    for bit in range(31, -1, -1):
        product ^= b * ((a >> np.uint32(bit)) & one)
        b = (b >> one) ^ ((b & one) * polynomial)
    return product


@lru_cache(64)
def _powers(chunk: int, doublings: int) -> Words:  # (2^doublings,)
    """x^(8 * chunk * i) for i = 0, 1, ..: what to multiply a chunk with that has i chunks behind it."""
    powers, factor = np.array([_ONE], np.uint32), np.array([_ONE >> 8], np.uint32)  # 1, x^8
    for exponent in range(chunk.bit_length() - 1 + doublings):
        if 1 << exponent >= chunk:
            powers = np.concatenate([powers, _multiply(powers, factor)])
        factor = _multiply(factor, factor)  # from x^(8 * 2^exponent) to the next
    return powers


@cache
def _byte_table() -> Words:  # (256,)
    """The remainders of one byte."""
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = (values >> np.uint32(1)) ^ ((values & np.uint32(1)) * np.uint32(_POLYNOMIAL))
    return values


@cache
def _word_tables() -> tuple[Words, Words]:  # (65536,), (65536,)
    """The remainders of four bytes, by the two that come first and by the two that come last."""
    values = np.arange(1 << 16, dtype=np.uint32)
    tables = []
    for halves in (values, values << np.uint32(16)):
        for _ in range(4):
            halves = (halves >> np.uint32(8)) ^ _byte_table()[halves & np.uint32(0xFF)]
        tables.append(halves)
    return tables[0], tables[1]
