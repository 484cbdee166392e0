"""A small domain of records, a cache folder that is nobody else's, and a shelf of packages."""

import stat
from pathlib import Path

import pytest
from npm_packages import NPM
from small_records import small_domain

from fewshift.data.open_suite import npm
from fewshift.data.spec import Spec


@pytest.fixture
def domain(tmp_path: Path) -> tuple[Path, Spec]:
    return small_domain(tmp_path)


@pytest.fixture
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEWSHIFT_CACHE", str(folder))
    return folder


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry's shelf and an npm that takes from it."""
    folder, programs = tmp_path / "shelf", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    program = programs / "npm"
    program.write_text(NPM)
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("SHELF", str(folder))
    monkeypatch.setattr(npm, "WAIT", 0.0)
    return folder
