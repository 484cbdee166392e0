"""The content of a record: a `tf.Example` with the two features `image` (bytes) and `label` (int64).

The wire format of protocol buffers, as far as these two need it. Unknown fields and features are skipped, any
order is read, the label may be packed or not. What is damaged or could be read in two ways is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_Span: TypeAlias = tuple[int, int]  # start, stop


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled image, still encoded."""

    image: bytes
    label: int


class Malformed(Exception):
    """Why the bytes are no such example; becomes part of a sentence."""


def encode_example(image: bytes, label: int) -> bytes:
    """The bytes that TensorFlow writes for this image and label."""
    value = _varint_bytes(label if label >= 0 else label + (1 << 64))
    image_feature = _field(1, _field(1, image))
    label_feature = _field(3, _field(1, value))
    entries = [(b"image", image_feature), (b"label", label_feature)]
    return _field(1, b"".join(_field(1, _field(1, key) + _field(2, feature)) for key, feature in entries))


def decode_example(payload: bytes) -> Example:
    """The image and the label in these bytes, or `Malformed` with the reason why there are none."""
    features: dict[bytes, _Span] = {}
    for number, wire, features_at, _ in _fields(payload, 0, len(payload)):
        if number != 1 or wire != _BYTES:
            continue
        for inner, inner_wire, entry_at, _ in _fields(payload, *features_at):
            if inner == 1 and inner_wire == _BYTES:
                key, value = _entry(payload, entry_at)
                if key in features and key in (b"image", b"label"):
                    raise Malformed(f"the feature {key.decode()!r} occurs twice")
                features[key] = value
    for key in (b"image", b"label"):
        if key not in features:
            raise Malformed(f"the feature {key.decode()!r} is missing")
    start, stop = _one_image(payload, features[b"image"])
    return Example(payload[start:stop], _one_label(payload, features[b"label"]))


def _entry(data: bytes, span: _Span) -> tuple[bytes, _Span]:
    """The key and the place of the value of one entry of the feature map."""
    key, value = None, None
    for number, wire, place, _ in _fields(data, *span):
        if wire != _BYTES or number not in (1, 2):
            continue
        if (key if number == 1 else value) is not None:
            raise Malformed("an entry of the feature map names its key or value twice")
        if number == 1:
            key = data[place[0] : place[1]]
        else:
            value = place
    return key or b"", value or (span[1], span[1])


def _one_image(data: bytes, feature: _Span) -> _Span:
    images = []
    for number, wire, place, _ in _fields(data, *feature):
        if number == 1 and wire == _BYTES:
            images += [p for n, w, p, _ in _fields(data, *place) if n == 1 and w == _BYTES]
        elif number in (2, 3):
            raise Malformed("the feature 'image' holds numbers")
    if len(images) != 1:
        raise Malformed(f"the feature 'image' holds {len(images)} values instead of one")
    return images[0]


def _one_label(data: bytes, feature: _Span) -> int:
    labels: list[int] = []
    for number, wire, place, _ in _fields(data, *feature):
        if number == 3 and wire == _BYTES:
            for inner, inner_wire, inner_place, value in _fields(data, *place):
                if inner == 1 and inner_wire == _VARINT:
                    labels.append(value)
                elif inner == 1 and inner_wire == _BYTES:  # packed
                    at, stop = inner_place
                    while at < stop:
                        value, at = _varint(data, at, stop)
                        labels.append(value)
        elif number in (1, 2):
            raise Malformed("the feature 'label' holds no whole number")
    if len(labels) != 1:
        raise Malformed(f"the feature 'label' holds {len(labels)} values instead of one")
    return labels[0] - (1 << 64) if labels[0] >= 1 << 63 else labels[0]


def _fields(data: bytes, at: int, stop: int) -> Iterator[tuple[int, int, _Span, int]]:
    """(number, wire type, place of the content, value if a varint) of every field of a message."""
    while at < stop:
        tag, at = _varint(data, at, stop)
        number, wire = tag >> 3, tag & 7
        value = 0
        if wire == _VARINT:
            start = at
            value, at = _varint(data, at, stop)
        elif wire == _BYTES:
            length, start = _varint(data, at, stop)
            at = start + length
        elif wire in (_FIXED64, _FIXED32):
            start, at = at, at + (8 if wire == _FIXED64 else 4)
        else:
            raise Malformed(f"a field has the unknown wire type {wire}")
        if number == 0:
            raise Malformed("a field has the number 0")
        if at > stop:
            raise Malformed("a field reaches beyond the end")
        yield number, wire, (start, at), value


def _varint(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """(value, next place) of a base-128 number, the lowest seven bits first."""
    value = shift = 0
    while at < stop:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise Malformed("a number has more than 64 bits")
            return value, at
        shift += 7
        if shift > 63:
            break
    raise Malformed("a number does not end")


def _varint_bytes(value: int) -> bytes:
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + _varint_bytes(len(content)) + content
