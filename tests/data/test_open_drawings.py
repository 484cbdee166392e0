"""Icons, emoji and letters of the open suite, drawn from their packages."""

import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from npm_packages import packed
from PIL import ImageFont
from png_pixels import pixels

from fewshift.data.open_suite import glyphs, icons
from fewshift.data.open_suite.iconify import read_icon_set
from fewshift.data.open_suite.source import read_classes
from fewshift.errors import DataError
from fewshift.types import SPLITS


class TestIcons:
    def icon_set(self, tmp_path: Path, **more: Any) -> Path:
        red = '<path fill="#f00" d="M0 0h10v5H0z"/>'  # the upper half of a box of 10 x 10
        content = {
            "prefix": "tiny",
            "width": 10,
            "height": 10,
            "icons": {
                "half": {"body": red},
                "wide": {"body": '<path fill="currentColor" d="M0 0h40v10H0z"/>', "width": 40},
                "moved": {"body": red, "left": 0, "top": 5},
                "turned": {"body": red, "rotate": 1},
            },
            "aliases": {"semi": {"parent": "half"}, "demi": {"parent": "semi"}},
            **more,
        }
        return packed(tmp_path / "tiny.tgz", {"icons.json": json.dumps(content).encode()})

    def test_an_icon_is_drawn_in_its_box_on_white(self, tmp_path: Path) -> None:
        found = read_icon_set(self.icon_set(tmp_path))
        drawn = pixels(icons.draw_coloured([found.svg("half", 20)])[0])
        assert drawn.shape == (20, 20, 3)
        assert (drawn[2:9] == (255, 0, 0)).all()
        assert (drawn[11:] == 255).all()

    def test_aliases_of_aliases_are_followed(self, tmp_path: Path) -> None:
        found = read_icon_set(self.icon_set(tmp_path))
        assert found.svg("demi", 20) == found.svg("half", 20)

    def test_what_is_not_square_is_centred(self, tmp_path: Path) -> None:
        drawn = pixels(icons.draw_black([read_icon_set(self.icon_set(tmp_path)).svg("wide", 40)])[0])
        assert drawn.shape == (40, 40)
        assert (drawn[17:23] == 0).all()  # currentColor is black
        assert (drawn[:14] == 255).all()
        assert (drawn[26:] == 255).all()

    def test_an_offset_box_is_respected(self, tmp_path: Path) -> None:
        drawn = pixels(icons.draw_black([read_icon_set(self.icon_set(tmp_path)).svg("moved", 20)])[0])
        assert (drawn == 255).all()  # the red half lies above the box

    def test_turned_icons_are_refused_rather_than_drawn_wrong(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="turned is turned or mirrored"):
            read_icon_set(self.icon_set(tmp_path)).svg("turned", 20)

    def test_a_class_is_made_of_the_pictures_its_list_names(self, tmp_path: Path) -> None:
        classes = read_classes("emoji")
        wanted: dict[str, set[str]] = {}
        for split in SPLITS:
            for pictures in classes[split].values():
                for icon_set, icon in pictures.items():
                    wanted.setdefault(icon_set, set()).add(icon)
        archives = {}
        for icon_set, names in wanted.items():
            body = {name: {"body": f"<!--{icon_set} {name}--><path d='M0 0h9v9H0z'/>"} for name in names}
            content = json.dumps({"prefix": icon_set, "icons": body}).encode()
            archives[f"@iconify-json/{icon_set}"] = packed(
                tmp_path / f"{icon_set}.tgz", {"icons.json": content}
            )
        job_of = icons.emoji_source().open(archives)
        spec = icons.emoji_source().spec
        assert [len(job_of(c)) for c in range(spec.classes)] == list(spec.images_per_class)
        train = list(classes["train"].values())
        assert all(f"{s} {i}-->" in svg for svg, (s, i) in zip(job_of(7), train[7].items(), strict=True))


@pytest.fixture(scope="module")
def font() -> bytes:
    """A font that every Pillow carries."""
    found = ImageFont.load_default(10)
    assert isinstance(found, ImageFont.FreeTypeFont)
    assert isinstance(found.path, io.BytesIO)
    return found.path.getvalue()


class TestGlyphs:
    def test_the_wobble_belongs_to_the_address(self) -> None:
        numbers = glyphs.wobble("glyphs", "a", "alef")
        expected = (0.08063453910936835, -0.17192050342742005, 0.21766669100167912)
        assert numbers[:3] == expected
        assert numbers != glyphs.wobble("glyphs", "a", "amiko")
        assert all(-1 <= number < 1 for number in numbers)

    @pytest.mark.parametrize("character", "Wg|_@")
    def test_the_strongest_wobbles_cut_nothing_off(self, font: bytes, character: str) -> None:
        for corner in itertools.product((-1.0, 1.0), repeat=5):
            drawn = pixels(glyphs.draw_glyph(font, character, corner))
            assert drawn.shape == (48, 48)
            edge = np.concatenate([drawn[0], drawn[-1], drawn[:, 0], drawn[:, -1]])
            assert edge.min() > 200, corner
            assert drawn.min() < 100, corner

    def test_without_wobble_the_character_is_centred_and_fills_its_share(self, font: bytes) -> None:
        ink = 255 - pixels(glyphs.draw_glyph(font, "H", (0.0, 0.0, 0.0, 0.0, 0.0))).astype(float)
        rows, columns = np.flatnonzero(ink.max(1) > 100), np.flatnonzero(ink.max(0) > 100)
        assert abs(rows[0] + rows[-1] - 47) <= 1
        assert abs(columns[0] + columns[-1] - 47) <= 1
        assert 0.55 * 48 < rows[-1] - rows[0] + 1 < 0.7 * 48

    def test_a_turn_is_a_turn(self, font: bytes) -> None:
        upright = 255.0 - pixels(glyphs.draw_glyph(font, "|", (0.0,) * 5))
        turned = 255.0 - pixels(glyphs.draw_glyph(font, "|", (1.0, 0.0, 0.0, 0.0, 0.0)))

        def slope(ink: np.ndarray) -> float:
            rows = np.flatnonzero(ink.sum(1) > 200)
            middle = [(ink[r] * np.arange(48)).sum() / ink[r].sum() for r in (rows[2], rows[-3])]
            return float(middle[1] - middle[0]) / float(rows[-3] - rows[2])

        assert abs(slope(upright)) < 0.02
        assert abs(abs(slope(turned)) - np.tan(np.radians(10))) < 0.04

    def test_a_file_that_is_no_font_is_one_sentence(self) -> None:
        with pytest.raises(DataError, match="cannot read WOFF2 fonts"):
            glyphs.draw([(b"wOF2 but broken", "a", (0.0,) * 5)])

    def test_an_empty_character_is_refused(self, font: bytes) -> None:
        with pytest.raises(DataError, match="a font draws nothing for ' '"):
            glyphs.draw([(font, " ", (0.0,) * 5)])

    def test_the_font_of_the_right_script_is_read(self, tmp_path: Path, font: bytes) -> None:
        classes = read_classes("scripts")
        pairs = {
            (f, s) for fonts in classes["test"].values() for s, families in fonts.items() for f in families
        }
        archives = {}
        for family in {f for f, _ in pairs}:
            scripts = {s for f, s in pairs if f == family} | {"latin"}
            files = {f"files/{family}-{s}-400-normal.woff2": f"{family} {s}".encode() for s in scripts}
            archives[f"@fontsource/{family}"] = packed(tmp_path / f"{family}.tgz", files)
        source = glyphs.scripts_source()
        job_of = source.open(archives)
        name, fonts = next(iter(classes["test"].items()))
        ((script, families),) = fonts.items()
        assert [glyph[0] for glyph in job_of(0)] == [f"{family} {script}".encode() for family in families]
        assert {glyph[1] for glyph in job_of(0)} == {name}
        packed(archives[f"@fontsource/{families[0]}"], {"LICENSE": b""})
        with pytest.raises(KeyError, match=f"there is no files/{families[0]}-{script}-400-normal.woff2"):
            source.open(archives)
