"""A small kit with every part, and uploads of plain colours that even an untrained network tells apart."""

import importlib.util
import io
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_kits import whole_small_kit

from fewshift.estimator.kits import Opened, open_kit
from fewshift.nets.kit import save_kit
from fewshift.web.server import FOLDERS
from fewshift.web.uploads import Upload

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220)}

Drawer = Callable[..., bytes]


@pytest.fixture(scope="session")
def opened() -> Opened:
    return open_kit(whole_small_kit(), "cpu", "auto", quiet=True)


@pytest.fixture(scope="session")
def draw() -> Drawer:
    """(colour, seed, kind of file) -> a noisy picture of that colour."""

    def encoded(colour: str, seed: int = 0, kind: str = "PNG") -> bytes:
        noise = np.random.default_rng(seed).normal(0, 25, (40, 48, 3))
        file = io.BytesIO()
        Image.fromarray(np.clip(COLOURS[colour] + noise, 0, 255).astype(np.uint8)).save(file, kind)
        return file.getvalue()

    return encoded


@pytest.fixture(scope="session")
def upload(draw: Drawer) -> Callable[[str, int], Upload]:
    return lambda colour, seed: Upload(f"{colour} {seed}.png", draw(colour, seed))


@pytest.fixture
def gallery(tmp_path: Path, draw: Drawer) -> Callable[..., list[tuple[str, None]]]:
    """(colour, seeds) -> stored files, as gradio hands them over."""

    def stored(colour: str, seeds: range) -> list[tuple[str, None]]:
        found = []
        for seed in seeds:
            path = tmp_path / "uploads" / f"{colour}-{seed}.png"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(draw(colour, seed))
            found.append((str(path), None))
        return found

    return stored


@dataclass(frozen=True)
class Running:
    """The command in a process of its own, because gradio leaves event loops open."""

    process: subprocess.Popen[bytes]
    url: str
    folder: Path  # its temporary files
    hosts: Path  # whom it called
    said: Path

    def stop(self) -> int:
        """As a service manager would."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


@pytest.fixture(scope="session")
def running(opened: Opened, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if importlib.util.find_spec("gradio") is None:
        pytest.skip("the web extra is not installed")
    place = tmp_path_factory.mktemp("web")
    folder = place / "temporary"
    folder.mkdir()
    (folder / f"{FOLDERS}999999999-old").mkdir()  # of a page that was killed
    save_kit(opened.kit, place / "small.kit")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = Path(__file__).with_name("watched_server.py")
    words = [
        sys.executable,
        script,
        place / "hosts",
        "web",
        "--kit",
        place / "small.kit",
        "--port",
        str(port),
    ]
    environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    with open(place / "said", "wb") as said:
        process = subprocess.Popen([*map(str, words), "--no-browser"], stderr=said, env=environment)
    found = Running(process, f"http://127.0.0.1:{port}/", folder, place / "hosts", place / "said")
    try:
        _wait(found)
        yield found
    finally:
        process.kill()
        process.wait()


def _wait(running: Running) -> None:
    for _ in range(240):
        assert running.process.poll() is None, running.said.read_text()
        try:
            urllib.request.urlopen(running.url, timeout=5).close()
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
    pytest.fail("the page did not come up")
