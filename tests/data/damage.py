"""Ways to damage bytes, drawn by dice, and what may come of reading them."""

import random
import struct
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from fewshift.data.crc32c import crc32c, masked
from fewshift.data.tfrecord import hop
from fewshift.errors import DataError

T = TypeVar("T")
Mutation = Callable[[random.Random, bytearray], None]


def flip_bits(dice: random.Random, data: bytearray) -> None:
    for _ in range(dice.choice([1, 1, 1, 2, 5])):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def write_bytes(dice: random.Random, data: bytearray) -> None:
    at = dice.randrange(len(data))
    data[at : at + dice.randrange(1, 12)] = dice.randbytes(dice.randrange(1, 12))


def cut(dice: random.Random, data: bytearray) -> None:
    del data[dice.randrange(len(data)) :]


def remove_part(dice: random.Random, data: bytearray) -> None:
    at = dice.randrange(len(data))
    del data[at : at + dice.randrange(1, 300)]


def repeat_part(dice: random.Random, data: bytearray) -> None:
    at = dice.randrange(len(data))
    part = data[at : at + dice.randrange(1, 300)]
    data[dice.randrange(len(data)) : 0] = part


def zero_part(dice: random.Random, data: bytearray) -> None:
    at = dice.randrange(len(data))
    size = dice.randrange(1, 600)
    data[at : at + size] = bytes(len(data[at : at + size]))


def forge_length(dice: random.Random, data: bytearray) -> None:
    """With a true checksum, so that only the length itself can give it away."""
    starts = [0, *hop(bytes(data))[:-1]]
    at = dice.choice(starts)
    length = dice.choice([0, 1, 15, 16, 2**31, 2**32 + 7, 2**40, 2**63, 2**64 - 17, dice.randrange(2**64)])
    packed = struct.pack("<Q", length)
    data[at : at + 12] = packed + struct.pack("<I", masked(np.array([crc32c(packed)], np.uint32))[0])


def swap_records(dice: random.Random, data: bytearray) -> None:
    stops = hop(bytes(data))
    records = [bytes(data[a:b]) for a, b in zip([0, *stops], stops, strict=False)]
    dice.shuffle(records)
    data[:] = b"".join(records[: dice.randrange(len(records) + 1)])


MUTATIONS: list[Mutation] = [
    flip_bits,
    write_bytes,
    cut,
    remove_part,
    repeat_part,
    zero_part,
    forge_length,
    swap_records,
]


def outcome(work: Callable[[], T]) -> T | DataError:
    """What it gives, or the one kind of error it may end with."""
    try:
        return work()
    except DataError as problem:
        return problem


def mutate(dice: random.Random, data: bytes) -> bytes:
    result = bytearray(data)
    for _ in range(dice.choice([1, 1, 2])):
        if result:
            dice.choice(MUTATIONS)(dice, result)
    return bytes(result)


def mutate_plainly(dice: random.Random, data: bytes) -> bytes:
    result = bytearray(data)
    dice.choice([flip_bits, write_bytes, cut, remove_part, repeat_part, zero_part])(dice, result)
    return bytes(result)
