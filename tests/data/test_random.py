"""The stream: fixed for ever, fair, and its draws equal to plain definitions of them."""

import hashlib
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fewshift.data.random import Stream, keyed_stream, stream_of
from fewshift.types import Address


class Words:
    """Given words instead of random ones."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def random_raw(self, size: int) -> NDArray[np.uint64]:
        taken, self.words = self.words[:size], self.words[size:]
        assert len(taken) == size
        return np.array(taken, dtype=np.uint64)


def philox_words(key: tuple[int, int], count: int) -> list[int]:
    """Philox 4x64, ten rounds, from its paper (Salmon et al., 2011), in integers of Python."""
    mask = (1 << 64) - 1
    words: list[int] = []
    block = 0
    while len(words) < count:
        block += 1  # NumPy moves the counter on before the first block
        c, k = [block, 0, 0, 0], list(key)
        for _ in range(10):
            high, low = c[0] * 0xD2E7470EE14C6C93, c[2] * 0xCA5A826395121157
            c = [(low >> 64) ^ c[1] ^ k[0], low & mask, (high >> 64) ^ c[3] ^ k[1], high & mask]
            k = [(k[0] + 0x9E3779B97F4A7C15) & mask, (k[1] + 0xBB67AE8584CAA73B) & mask]
        words += c
    return words[:count]


def test_the_bits_are_those_of_an_independent_philox() -> None:
    digest = hashlib.sha256(b'["task",7,"birds","test",3]').digest()
    key = (int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little"))
    stream = stream_of(Address(7, "birds", "test", 3))
    assert [stream.below(2**64) for _ in range(50)] == philox_words(key, 50)


def test_every_part_of_an_address_counts() -> None:
    addresses = [
        Address(0, "birds", "test", 0),
        Address(1, "birds", "test", 0),
        Address(0, "bird", "test", 0),
        Address(0, "birds", "valid", 0),
        Address(0, "birds", "test", 1),
    ]
    assert len({stream_of(address).below(2**64) for address in addresses}) == 5
    assert keyed_stream("a", "b").below(2**64) != keyed_stream('a","b').below(2**64)


def test_unfair_words_are_drawn_again() -> None:
    last = 2**64 - 1  # 2^64 = 1 mod 3, 1 mod 5: the last word is unfair for both
    assert Stream(Words(last, last, 4)).below(3) == 1
    assert Stream(Words(last)).below(2**63) == 2**63 - 1
    drawn = Stream(Words(last, 7, last, last, 8, 9)).below_each(np.array([3, 3, 4, 5], dtype=np.uint64))
    assert drawn.tolist() == [8 % 3, 1, 3, 9 % 5]


@given(st.lists(st.integers(1, 2**31), max_size=20), st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_draws_in_a_row_equal_draws_one_by_one(bounds: list[int], seed: int) -> None:
    together = keyed_stream(seed).below_each(np.array(bounds, dtype=np.uint64)).tolist()
    one_by_one = keyed_stream(seed)
    assert together == [one_by_one.below(bound) for bound in bounds]
    assert all(0 <= value < bound for value, bound in zip(together, bounds, strict=True))


def test_integers_are_uniform() -> None:
    stream = keyed_stream("uniform")
    counts = Counter(stream.below(7) for _ in range(14_000))
    chi_square = sum((counts[i] - 2000) ** 2 / 2000 for i in range(7))
    assert chi_square < 22.5  # 6 degrees of freedom, one in a thousand


def test_uniform_numbers_have_53_bits() -> None:
    top = Stream(Words(2**64 - 1, 0, 2**63, 1 << 11)).uniforms(4)
    assert top == [1 - 2**-53, 0.0, 0.5, 2**-53]
    values = keyed_stream("floats").uniforms(20_000)
    assert abs(np.mean(values) - 0.5) < 0.01
    assert abs(np.var(values) - 1 / 12) < 0.003


def plain_shuffle(stream: Stream, population: int, count: int) -> list[int]:
    cards = list(range(population))
    for i in range(count):
        j = i + stream.below(population - i)
        cards[i], cards[j] = cards[j], cards[i]
    return cards[:count]


@given(st.integers(0, 10_000), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=6))
@settings(max_examples=200, deadline=None)
def test_samples_equal_a_plain_shuffle(seed: int, pairs: list[tuple[int, int]]) -> None:
    populations, counts = [max(p) for p in pairs], [min(p) for p in pairs]
    together = keyed_stream(seed).sample_each(populations, counts)
    one_by_one = keyed_stream(seed)
    assert together == [plain_shuffle(one_by_one, n, k) for n, k in zip(populations, counts, strict=True)]
    assert all(len(set(s)) == k for s, k in zip(together, counts, strict=True))


def test_ordered_samples_are_uniform() -> None:
    stream = keyed_stream("samples")
    counts = Counter(tuple(stream.sample(4, 2)) for _ in range(12_000))
    assert set(counts) == set(permutations(range(4), 2))
    assert sum((n - 1000) ** 2 / 1000 for n in counts.values()) < 31.3  # 11 degrees, one in a thousand


def test_large_classes_are_not_permuted() -> None:
    drawn = keyed_stream("large").sample(10**15, 1000)  # would need petabytes
    assert len(set(drawn)) == 1000
    assert max(drawn) > 10**14


def test_impossible_draws_are_refused() -> None:
    stream = keyed_stream(0)
    with pytest.raises(ValueError, match="below 0"):
        stream.below(0)
    with pytest.raises(ValueError, match="below 0"):
        stream.below_each(np.array([3, 0], dtype=np.uint64))
    with pytest.raises(ValueError, match="cannot take 4 distinct integers below 3"):
        stream.sample(3, 4)
