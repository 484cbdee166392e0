"""Raw images into records: what is kept byte for byte, what is encoded anew, what is refused."""

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from refusals import said
from small_records import records_of

from fewshift.data import convert as converting
from fewshift.data.class_split import DrawnSplit, read_split
from fewshift.data.convert import convert, convert_folder
from fewshift.data.decoding import decode
from fewshift.data.folder import folder_domain
from fewshift.data.records_folder import open_domain
from fewshift.types import SPLITS


def picture(seed: int, size: tuple[int, int] = (40, 30)) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "raw"
    for number, name in enumerate(["ant", "bee", "cow", "dog", "elk", "fox"]):
        (root / name).mkdir(parents=True)
        for k in range(3 + number):
            picture(10 * number + k).save(root / name / f"{k}.jpg", quality=90)
    return root


def test_rgb_jpegs_are_kept_byte_for_byte(tree: Path, tmp_path: Path) -> None:
    spec = convert_folder(tree, tmp_path / "zoo", DrawnSplit(0.5, 0.2, 0.3, seed=1))
    assert spec.name == "zoo"
    assert [len(spec.splits[s]) for s in SPLITS] == [3, 1, 2]
    for class_id, name in enumerate(spec.class_names):
        files = sorted((tree / name).iterdir())
        assert records_of(tmp_path / "zoo", class_id) == [file.read_bytes() for file in files]
    domain = open_domain(tmp_path / "zoo")
    assert domain.spec.fingerprint() == spec.fingerprint()
    raw = folder_domain(tree, "zoo", split={s: [spec.class_names[c] for c in spec.splits[s]] for s in SPLITS})
    items = [(c, i) for c, count in enumerate(spec.images_per_class) for i in range(count)]
    pairs = zip(domain.source.read(items), raw.source.read(items), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


def test_anything_else_becomes_a_jpeg_of_quality_75(tree: Path, tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    for path in (tree / "ant").iterdir():
        path.unlink()
    picture(1).save(tree / "ant" / "a.png")
    picture(2).convert("L").save(tree / "ant" / "b.jpg")
    picture(3).convert("CMYK").save(tree / "ant" / "c.jpg")
    picture(4).save(tree / "ant" / "d.jpg", exif=turned)
    convert_folder(tree, tmp_path / "zoo", {"train": ["ant"], "test": ["bee", "cow", "dog", "elk", "fox"]})
    stored = records_of(tmp_path / "zoo", 0)
    buffer = io.BytesIO()
    picture(1).save(buffer, "JPEG", quality=75)
    assert stored[0] == buffer.getvalue()
    for name, data in zip(["a.png", "b.jpg", "c.jpg", "d.jpg"], stored, strict=True):
        want = decode((tree / "ant" / name).read_bytes(), name)
        got = decode(data, name)
        assert got.shape == want.shape
        assert np.abs(got.astype(int) - want).mean() < 12
        assert b"Exif" not in data


def test_split_from_a_file(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text(
        json.dumps({"train": ["fox", "ant"], "valid": ["cow"], "test": ["bee", "elk", "dog"]})
    )
    spec = convert_folder(tree, tmp_path / "zoo", read_split(tmp_path / "split.json"))
    assert spec.class_names == ("fox", "ant", "cow", "bee", "elk", "dog")
    assert "the folder holds another domain, or other classes" in said(
        lambda: convert_folder(tree, tmp_path / "zoo")
    )


def test_an_interrupted_conversion_goes_on(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert_folder(tree, tmp_path / "zoo")
    calls: list[str] = []
    real = converting.stored_bytes

    def stop_after(count: int) -> Callable[[bytes, str], bytes]:
        def stored(encoded: bytes, where: str) -> bytes:
            calls.append(where)
            if len(calls) > count:
                raise KeyboardInterrupt
            return real(encoded, where)

        return stored

    other = tmp_path / "again" / "zoo"
    monkeypatch.setattr(converting, "stored_bytes", stop_after(16))
    with pytest.raises(KeyboardInterrupt):
        convert_folder(tree, other)
    assert not (other / "dataset_spec.json").exists()
    calls.clear()
    monkeypatch.setattr(converting, "stored_bytes", stop_after(10**6))
    convert_folder(tree, other)
    assert 0 < len(calls) < 33
    names = sorted(path.name for path in (tmp_path / "zoo").glob("*.tfrecords"))
    assert len(names) == 6
    assert all((tmp_path / "zoo" / name).read_bytes() == (other / name).read_bytes() for name in names)


def test_classes_whose_images_changed_are_converted_again(tree: Path, tmp_path: Path) -> None:
    spec = convert_folder(tree, tmp_path / "zoo")
    files = {name: tmp_path / "zoo" / f"{place}.tfrecords" for place, name in enumerate(spec.class_names)}
    before = {name: path.read_bytes() for name, path in files.items()}
    changed = tree / "cow" / "1.jpg"
    changed.write_bytes((tree / "ant" / "1.jpg").read_bytes())
    later = files["cow"].stat().st_mtime + 10
    os.utime(changed, (later, later))
    convert_folder(tree, tmp_path / "zoo")
    assert {name for name, path in files.items() if path.read_bytes() != before[name]} == {"cow"}
    changed.write_bytes(b"no picture")
    os.utime(changed, (later + 20, later + 20))
    assert "1.jpg" in said(lambda: convert_folder(tree, tmp_path / "zoo"))
    assert not (tmp_path / "zoo" / "dataset_spec.json").exists()  # it is not complete


def test_an_older_image_that_is_moved_in_is_a_change(tree: Path, tmp_path: Path) -> None:
    older = tmp_path / "older.jpg"
    older.write_bytes((tree / "ant" / "1.jpg").read_bytes())
    os.utime(older, (1, 1))
    spec = convert_folder(tree, tmp_path / "zoo")
    records = tmp_path / "zoo" / f"{spec.class_names.index('cow')}.tfrecords"
    before = records.read_bytes()
    older.replace(tree / "cow" / "1.jpg")
    convert_folder(tree, tmp_path / "zoo")
    assert records.read_bytes() != before


def test_classes_that_change_names_are_changed(tree: Path, tmp_path: Path) -> None:
    (tree / "bee" / "3.jpg").unlink()  # three images in both
    convert_folder(tree, tmp_path / "zoo")
    (tree / "ant").rename(tmp_path / "ant")
    (tree / "bee").rename(tree / "ant")
    (tmp_path / "ant").rename(tree / "bee")
    spec = convert_folder(tree, tmp_path / "zoo")
    files = sorted((tree / "ant").iterdir())
    stored = records_of(tmp_path / "zoo", spec.class_names.index("ant"))
    assert stored == [file.read_bytes() for file in files]


def test_records_of_other_images_are_not_kept_as_these(tree: Path, tmp_path: Path) -> None:
    shutil.copytree(tree, tmp_path / "other")
    convert_folder(tmp_path / "other", tmp_path / "zoo")
    sentence = said(lambda: convert_folder(tree, tmp_path / "zoo"))
    assert "it holds other images ('converted from other', not 'converted from raw'): remove it" in sentence
    convert_folder(tmp_path / "other", tmp_path / "zoo")


def test_images_of_another_folder_of_that_name_are_converted(tmp_path: Path) -> None:
    for part, grey in (("train", 10), ("val", 200)):
        for name in "ab":
            (tmp_path / part / "birds" / name).mkdir(parents=True)
            for file in ("0.png", "1.png"):
                Image.new("RGB", (4, 4), (grey, grey, grey)).save(tmp_path / part / "birds" / name / file)
    for part, grey in (("train", 10), ("val", 200)):
        convert(tmp_path / part / "birds", tmp_path / "out")
        (found,) = open_domain(tmp_path / "out").source.read([(0, 0)])
        assert abs(int(found[0, 0, 0]) - grey) < 5


def test_a_folder_is_the_same_from_inside_it(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    convert_folder(Path("."), tmp_path / "zoo")
    convert_folder(tree, tmp_path / "zoo")
    assert open_domain(tmp_path / "zoo").provenance.origin == "converted from raw"


def test_a_bad_image_stops_the_conversion_and_is_named(tree: Path, tmp_path: Path) -> None:
    bad = tree / "cow" / "1.jpg"
    bad.write_bytes(bad.read_bytes()[:300])
    sentence = said(lambda: convert_folder(tree, tmp_path / "zoo"))
    assert f"{bad}: the picture is damaged or cut short" in sentence
    assert not (tmp_path / "zoo" / "dataset_spec.json").exists()
    assert not list((tmp_path / "zoo").glob(".*.part"))


def test_a_target_inside_the_source_is_refused(tree: Path) -> None:
    assert "the target lies inside the images" in said(lambda: convert_folder(tree, tree / "records"))
    assert "the target lies inside the images" in said(lambda: convert_folder(tree, tree))


def test_bad_trees_are_refused_before_anything_is_written(tree: Path, tmp_path: Path) -> None:
    (tree / "gnu").mkdir()
    assert "the class 'gnu' has no image" in said(lambda: convert_folder(tree, tmp_path / "zoo"))
    assert "this is not there" in said(lambda: convert(tmp_path / "nothing", tmp_path / "zoo"))
    assert not (tmp_path / "zoo").exists()


def test_a_target_that_cannot_be_written(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert "cannot be written" in said(lambda: convert_folder(tree, tmp_path / "file" / "zoo"))
