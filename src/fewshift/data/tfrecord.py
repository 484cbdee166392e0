"""The frames of a TFRecord file: length, checksum of the length, content, checksum of the content.

    uint64 length | uint32 masked_crc(length) | content | uint32 masked_crc(content)      all little-endian

Frames follow one another without header or footer of the file. A frame is length + 16 bytes long.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fewshift.data.crc32c import Words, checksums, checksums_of_rows, masked
from fewshift.data.example import Malformed, decode_example
from fewshift.data.example_batch import Examples, Places, ordinary_examples

HEADER, FOOTER = 12, 4
OVERHEAD = HEADER + FOOTER
MAX_RECORD = 256 * 2**20  # bytes; what claims to be larger is no image

BAD_LENGTH = "has a damaged length, so the rest of the file cannot be read"
FaultKind: TypeAlias = Literal["length", "checksum", "content", "label", "truncated"]
_unpack_length = struct.Struct("<Q").unpack_from


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one record; `text` reads on after "record 3 at byte 4711"."""

    kind: FaultKind
    record: int
    text: str


@dataclass(frozen=True)
class Frames:
    """Whole frames in a buffer: frame i is data[starts[i]:stops[i]]."""

    data: NDArray[np.uint8]
    starts: Places  # (n,)
    stops: Places  # (n,)

    def __len__(self) -> int:
        return len(self.starts)

    def content(self, place: int) -> bytes:
        """The content of one frame."""
        return self.data[self.starts[place] + HEADER : self.stops[place] - FOOTER].tobytes()

    def examples(self) -> Examples:
        """Images and labels of the frames, as far as they are laid out in the ordinary way."""
        return ordinary_examples(self.data, self.starts + HEADER, self.stops - FOOTER)


def frame(contents: Sequence[bytes]) -> bytes:
    """These records as they stand in a file."""
    joined = np.frombuffer(b"".join(contents), np.uint8)
    lengths = np.array([len(content) for content in contents], np.int64)
    stops = np.cumsum(lengths)
    heads = masked(checksums_of_rows(_length_rows(lengths))).tolist()
    tails = masked(checksums(joined, stops - lengths, stops)).tolist()
    pieces: list[bytes] = []
    for content, head, tail in zip(contents, heads, tails, strict=True):
        pieces += struct.pack("<QI", len(content), head), content, struct.pack("<I", tail)
    return b"".join(pieces)


def hop(data: bytes) -> list[int]:
    """Where the whole frames that follow one another from the start of `data` stop, by their own word."""
    stops: list[int] = []
    at, end = 0, len(data)
    while at + OVERHEAD <= end:
        at += OVERHEAD + _unpack_length(data, at)[0]
        if at > end:
            break
        stops.append(at)
    return stops


def content_length(head: bytes) -> int:
    """What the first eight bytes of a frame claim."""
    length: int = _unpack_length(head)[0]
    return length


def bad_heads(heads: NDArray[np.uint8]) -> NDArray[np.bool_]:  # (n, 12) -> (n,)
    """Which lengths have another checksum than the one stored behind them."""
    stored: Words = np.ascontiguousarray(heads[:, 8:]).view("<u4")[:, 0]
    wrong: NDArray[np.bool_] = masked(checksums_of_rows(heads[:, :8])) != stored
    return wrong


def bad_lengths(frames: Frames) -> NDArray[np.bool_]:  # (n,)
    """Which frames have a damaged length, or one other than they have in this buffer."""
    heads = np.take(frames.data, frames.starts[:, None] + np.arange(HEADER))
    claimed = np.ascontiguousarray(heads[:, :8]).view("<u8")[:, 0]
    actual = (frames.stops - frames.starts - OVERHEAD).astype(np.uint64)
    wrong: NDArray[np.bool_] = bad_heads(heads) | (claimed != actual)
    return wrong


def bad_end(head: bytes, left: int) -> Fault | None:
    """Why no whole record starts here: `head` are its first bytes, `left` how many there are to the end."""
    if left < OVERHEAD or len(head) < HEADER:
        return Fault("truncated", 0, f"is cut off: the file ends {left} bytes after its start")
    if bad_heads(np.frombuffer(head[:HEADER], np.uint8)[None])[0]:
        return Fault("length", 0, BAD_LENGTH)
    length = content_length(head)
    if length > MAX_RECORD:
        return Fault("length", 0, f"claims {length:,} bytes, which no image has")
    if length + OVERHEAD > left:
        missing = length + OVERHEAD - left
        return Fault("truncated", 0, f"is cut off: the last {missing:,} of its {length:,} bytes are missing")
    return None


def bad_contents(frames: Frames) -> list[Fault]:
    """The frames whose content has another checksum than the one stored behind it."""
    found = masked(checksums(frames.data, frames.starts + HEADER, frames.stops - FOOTER))
    tails = np.take(frames.data, (frames.stops - FOOTER)[:, None] + np.arange(FOOTER))
    stored: Words = np.ascontiguousarray(tails).view("<u4")[:, 0]
    return [
        Fault("checksum", int(i), f"is damaged: its checksum is {stored[i]:08x} and should be {found[i]:08x}")
        for i in np.flatnonzero(found != stored)
    ]


def bad_labels(frames: Frames, examples: Examples, expected: Places) -> list[Fault]:
    """The frames that hold no labelled image, or one with another label than expected."""
    faults = []
    for place in np.flatnonzero(examples.labels != expected):
        try:
            label = decode_example(frames.content(int(place))).label
        except Malformed as problem:
            faults.append(Fault("content", int(place), f"is not an image with a label ({problem})"))
            continue
        if label != expected[place]:
            text = f"is labelled {label} in the file of class {expected[place]}"
            faults.append(Fault("label", int(place), text))
    return faults


def _length_rows(lengths: Places) -> NDArray[np.uint8]:  # (n, 8)
    return np.ascontiguousarray(lengths.astype("<u8")).view(np.uint8).reshape(-1, 8)
