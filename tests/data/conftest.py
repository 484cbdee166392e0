"""A small domain of records, and a cache folder that is nobody else's."""

from pathlib import Path

import pytest
from small_records import small_domain

from fewshift.data.spec import Spec


@pytest.fixture
def domain(tmp_path: Path) -> tuple[Path, Spec]:
    return small_domain(tmp_path)


@pytest.fixture
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEWSHIFT_CACHE", str(folder))
    return folder
