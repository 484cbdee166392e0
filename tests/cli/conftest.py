"""The command line, records and a kit for the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_world import Fewshift, shell, write_kit, write_records


@pytest.fixture
def fewshift() -> Fewshift:
    """`fewshift WORDS` as a shell sees it."""
    return shell


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seen domains and two unseen ones; commands only read them."""
    return write_records(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="session")
def tiny_kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit for these domains that knows nothing."""
    return write_kit(tmp_path_factory.mktemp("kits") / "tiny.kit")


@pytest.fixture
def own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Empty folders for data and caches, in place of the user's."""
    monkeypatch.setenv("FEWSHIFT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEWSHIFT_CACHE", str(tmp_path / "cache"))
