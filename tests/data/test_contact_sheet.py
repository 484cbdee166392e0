"""Contact sheets: a row a domain or a class, names beside it."""

from pathlib import Path

import numpy as np
import pytest

from fewshift.data.arrays import array_domain
from fewshift.data.contact_sheet import GAP, LABEL, TILE, class_sheet, contact_sheet, tile
from fewshift.data.decoding import decode
from fewshift.data.drawn import drawn_domain
from fewshift.errors import DataError


def test_a_row_a_domain(tmp_path: Path) -> None:
    domains = [drawn_domain(name) for name in ("shapes", "glyphs", "dots")]
    contact_sheet(domains, tmp_path / "deep" / "sheet.png", per_domain=5)
    pixels = decode((tmp_path / "deep" / "sheet.png").read_bytes(), "sheet")
    assert pixels.shape == (3 * (TILE + GAP) + GAP, LABEL + 5 * (TILE + GAP) + GAP, 3)
    for row, domain in enumerate(domains):
        top = GAP + row * (TILE + GAP)
        assert (pixels[top : top + TILE, :LABEL] < 128).any(), "no label"
        for place, class_id in enumerate(int(k * domain.spec.classes / 5) for k in range(5)):
            left = LABEL + place * (TILE + GAP)
            want = np.asarray(tile(domain.source.read([(class_id, 0)])[0]))
            assert np.array_equal(pixels[top : top + TILE, left : left + TILE], want)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["sheet.png"]


def test_a_row_a_class(tmp_path: Path) -> None:
    domain = drawn_domain("faces")
    class_sheet(domain, tmp_path / "faces.png", classes=4, per_class=6)
    pixels = decode((tmp_path / "faces.png").read_bytes(), "sheet")
    assert pixels.shape == (4 * (TILE + GAP) + GAP, LABEL + 6 * (TILE + GAP) + GAP, 3)


def test_odd_images_fit_their_tile(tmp_path: Path) -> None:
    images = [
        np.full((h, w, c), 9, np.uint8) for h, w, c in [(1, 1, 3), (300, 2, 1), (2, 300, 3), (90, 90, 1)]
    ]
    domain = array_domain("a name that is much too long for its column", images, ["x", "x", "y", "y"])
    contact_sheet([domain], tmp_path / "odd.png")
    assert all(tile(image).size == (TILE, TILE) for image in images)


def test_nothing_to_show(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no domain to show"):
        contact_sheet([], tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"sheet\.png: cannot be written .*: make room or give another place"):
        contact_sheet([drawn_domain("dots")], tmp_path / "file" / "sheet.png", per_domain=1)
