"""File names in a multipart body become harmless, whatever pieces it comes in; all else stays as it is."""

import random
import re

import pytest

from fewshift.web.upload_names import (
    MOST_HEADER,
    HarmlessNames,
    boundary_of,
    harmless_header,
    new_mark,
    without_mark,
)

BOUNDARY = b"----WebKitFormBoundaryabc"
NAMES = (
    b"../../etc/passwd",
    b"a;rm -rf x.png",
    b"<img src=x>.png",
    "žlutá.png".encode(),
    b"plain-1.png",
    b"",
)
PAYLOADS = (
    b'\x89PNG\r\n\r\nfilename="not/a/header"',
    b"",
    b"--",
    b"--" + BOUNDARY[:-1] + b"\r\n\r\n",
    b"\r\n\r\n",
    b"x" * 700,
)


def body() -> bytes:
    parts = []
    for name, payload in zip(NAMES, PAYLOADS, strict=True):
        head = (
            b'Content-Disposition: form-data; name="files"; filename="'
            + name
            + b'"\r\nContent-Type: image/png'
        )
        parts.append(b"--" + BOUNDARY + b"\r\n" + head + b"\r\n\r\n" + payload + b"\r\n")
    return b"".join(parts) + b"--" + BOUNDARY + b"--\r\n"


def streamed(content: bytes, cuts: list[int], mark: bytes = b"") -> bytes:
    names, out, before = HarmlessNames(BOUNDARY, mark), b"", 0
    for cut in [*cuts, len(content)]:
        out += names.take(content[before:cut], last=cut == len(content))
        before = cut
    return out


def test_names_are_harmless_and_nothing_else_changes() -> None:
    content = body()
    whole = streamed(content, [])
    assert len(whole) == len(content)
    found = re.findall(rb'files"; filename="([^"]*)"', whole)
    assert len(found) == len(NAMES)
    assert all(re.fullmatch(rb"[A-Za-z0-9._-]*", name) for name in found)
    assert found[4] == b"plain-1.png"
    for payload in PAYLOADS:
        assert b"\r\n\r\n" + payload + b"\r\n--" in whole
    changed = [i for i, (a, b) in enumerate(zip(content, whole, strict=True)) if a != b]
    spans = [(m.start(1), m.end(1)) for m in re.finditer(rb'files"; filename="(.*?)"\r\n', content)]
    assert all(any(start <= i < end for start, end in spans) for i in changed)


def test_every_name_begins_with_the_mark_which_is_not_shown() -> None:
    content, mark = body(), new_mark()
    plain = re.findall(rb'files"; filename="([^"]*)"', streamed(content, []))
    marked = re.findall(rb'files"; filename="([^"]*)"', streamed(content, [], mark))
    assert marked == [mark + name for name in plain]
    assert [without_mark(name.decode()) for name in marked] == [name.decode() for name in plain]
    assert new_mark() != mark


def test_pieces_make_no_difference() -> None:
    content = body()
    whole = streamed(content, [])
    assert streamed(content, list(range(1, len(content)))) == whole
    dice = random.Random(0)
    for _ in range(50):
        cuts = sorted(dice.sample(range(1, len(content)), dice.randint(1, 20)))
        assert streamed(content, cuts) == whole


def test_the_extended_form_of_a_name_is_not_left_either() -> None:
    header = b"Content-Disposition: form-data; name=\"files\"; filename*=UTF-8''..%2fx"
    assert harmless_header(header, b"").endswith(b"; filename_=UTF-8__.._2fx")


def test_a_header_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        HarmlessNames(BOUNDARY, b"").take(b"--" + BOUNDARY + b"x" * (MOST_HEADER + 1), last=False)


def test_the_boundary_comes_from_the_content_type() -> None:
    assert boundary_of(b"multipart/form-data; boundary=abc") == b"abc"
    assert boundary_of(b'Multipart/form-data; charset=x; boundary="abc"') == b"abc"
    assert boundary_of(b"application/json") is None
