"""The two-feature parser: what TensorFlow writes, what it could write, and what is refused."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewshift.data.example import Example, Malformed, decode_example, encode_example
from fewshift.data.example_batch import ordinary_examples

IMAGE = bytes.fromhex("ffd8ffd9")
GOLDEN_7 = bytes.fromhex(
    "0a230a110a05696d616765120 80a060a04ffd8ffd90a0e0a056c6162656c12051a030a0107".replace(" ", "")
)
GOLDEN_300_TAIL = bytes.fromhex("0a0f0a056c6162656c12061a040a02ac02")


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def entry(key: bytes, feature: bytes) -> bytes:
    return field(1, field(1, key) + field(2, feature))


IMAGE_ENTRY = entry(b"image", field(1, field(1, IMAGE)))
LABEL_ENTRY = entry(b"label", field(3, field(1, b"\x07")))


def test_golden_bytes() -> None:
    assert encode_example(IMAGE, 7) == GOLDEN_7
    assert decode_example(GOLDEN_7) == Example(IMAGE, 7)
    assert encode_example(IMAGE, 300).endswith(GOLDEN_300_TAIL)
    assert encode_example(IMAGE, 0).endswith(bytes.fromhex("1a030a0100"))


@pytest.mark.parametrize(
    ("name", "payload"),
    {
        "label first": field(1, LABEL_ENTRY + IMAGE_ENTRY),
        "value before key": field(
            1, field(1, field(2, field(1, field(1, IMAGE))) + field(1, b"image")) + LABEL_ENTRY
        ),
        "unpacked label": field(1, IMAGE_ENTRY + entry(b"label", field(3, b"\x08\x07"))),
        "two features messages": field(1, IMAGE_ENTRY) + field(1, LABEL_ENTRY),
        "unknown feature": field(
            1, entry(b"height", field(3, field(1, b"\x05"))) + IMAGE_ENTRY + LABEL_ENTRY
        ),
        "unknown feature of floats": field(
            1, IMAGE_ENTRY + entry(b"x", field(2, field(1, bytes(4)))) + LABEL_ENTRY
        ),
        "unknown varint, fixed64, fixed32 and bytes fields": b"\x28\x80\x01"
        + b"\x31"
        + bytes(8)
        + b"\x3d"
        + bytes(4)
        + field(8, b"abc")
        + field(1, IMAGE_ENTRY + LABEL_ENTRY),
        "length with needless bytes": b"\x0a\xa3\x80\x00" + GOLDEN_7[2:],
        "label with needless bytes": field(
            1, IMAGE_ENTRY + entry(b"label", field(3, field(1, b"\x87\x80\x00")))
        ),
    }.items(),
)
def test_tolerated(name: str, payload: bytes) -> None:
    assert decode_example(payload) == Example(IMAGE, 7), name


@pytest.mark.parametrize("label", [0, 1, 127, 128, 16383, 16384, 2**31, 2**63 - 1, -1, -(2**63)])
def test_labels_of_every_length(label: int) -> None:
    assert decode_example(encode_example(b"x", label)) == Example(b"x", label)


@pytest.mark.parametrize("length", [0, 1, 98, 99, 100, 127, 128, 16_350, 16_384, 2_097_152])
def test_images_of_every_length_of_length(length: int) -> None:
    payload = encode_example(b"a" * length, 300)
    assert decode_example(payload) == Example(b"a" * length, 300)
    found = batch([payload])
    assert found == [(300, b"a" * length)]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "'image' is missing"),
        (field(1, LABEL_ENTRY), "'image' is missing"),
        (field(1, IMAGE_ENTRY), "'label' is missing"),
        (field(1, IMAGE_ENTRY + LABEL_ENTRY + LABEL_ENTRY), "'label' occurs twice"),
        (field(1, IMAGE_ENTRY + IMAGE_ENTRY + LABEL_ENTRY), "'image' occurs twice"),
        (field(1, entry(b"image", field(1, field(1, b"a") * 2)) + LABEL_ENTRY), "'image' holds 2 values"),
        (field(1, entry(b"image", field(1, b"")) + LABEL_ENTRY), "'image' holds 0 values"),
        (field(1, entry(b"image", field(3, field(1, b"\x01"))) + LABEL_ENTRY), "'image' holds numbers"),
        (field(1, IMAGE_ENTRY + entry(b"label", field(3, field(1, b"\x01\x02")))), "'label' holds 2 values"),
        (field(1, IMAGE_ENTRY + entry(b"label", field(3, b""))), "'label' holds 0 values"),
        (field(1, IMAGE_ENTRY + entry(b"label", field(1, field(1, b"7")))), "'label' holds no whole number"),
        (field(1, IMAGE_ENTRY + entry(b"label", b"")), "'label' holds 0 values"),
        (GOLDEN_7[:-1], "reaches beyond the end"),
        (b"\x0b" + GOLDEN_7, "wire type 3"),
        (b"\x02\x00" + GOLDEN_7, "the number 0"),
        (b"\x0a" + b"\xff" * 12, "does not end"),
        (b"\x0a\xff", "does not end"),
        (b"\x28" + b"\xff" * 9 + b"\x02", "more than 64 bits"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + GOLDEN_7, "reaches beyond the end"),
        (b"\x31\x00" + b"", "reaches beyond the end"),
        (field(1, field(1, field(1, b"image") + field(1, b"label"))), "its key or value twice"),
    ],
)
def test_refused(payload: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        decode_example(payload)
    assert batch([payload]) == [None]


def batch(payloads: list[bytes]) -> list[tuple[int, bytes] | None]:
    """What the array version says; None where it leaves the record to the parser."""
    stops = np.cumsum([len(payload) for payload in payloads], dtype=np.int64)
    starts = np.concatenate([[0], stops[:-1]]).astype(np.int64)
    data = np.frombuffer(b"".join(payloads), np.uint8)
    found = ordinary_examples(data, starts, stops)
    places = zip(found.labels, found.image_starts, found.image_stops, strict=True)
    return [(int(label), data[a:b].tobytes()) if label >= 0 else None for label, a, b in places]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=300), st.integers(0, 2**33)), min_size=1, max_size=6))
def test_the_batch_reads_all_that_is_written(examples: list[tuple[bytes, int]]) -> None:
    payloads = [encode_example(image, label) for image, label in examples]
    assert batch(payloads) == [(label, image) for image, label in examples]


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 300), st.data())
def test_the_batch_never_contradicts_the_parser(image: bytes, label: int, data: st.DataObject) -> None:
    payload = bytearray(encode_example(image, label))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    other = encode_example(b"other", 5)
    first, second, third = batch([other, bytes(payload), other])
    assert first == third == (5, b"other")
    if second is not None:
        assert decode_example(bytes(payload)) == Example(second[1], second[0])


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=120))
def test_any_bytes_are_parsed_or_refused(payload: bytes) -> None:
    with contextlib.suppress(Malformed):
        assert len(decode_example(payload).image) <= len(payload)
