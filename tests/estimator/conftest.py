"""A small kit with every part, and drawn pictures to fit it on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from small_kits import whole_small_kit

from fewshift.data.drawn.suite import drawn_domain
from fewshift.nets.kit import Kit, save_kit


@pytest.fixture(scope="session")
def small_kit() -> Kit:
    return whole_small_kit(info={"rates": {"tsp": {"seen": [0.5, 0.05], "unseen": [0.25, 0.02]}}})


@pytest.fixture(scope="session")
def kit_file(small_kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kits") / "small.kit"
    save_kit(small_kit, path)
    return path


@pytest.fixture(scope="session")
def pictures() -> Callable[..., tuple[list[Any], list[str]]]:
    """(way, shot, first image) -> pixels and class names of drawn shapes."""
    domain = drawn_domain("shapes")

    def draw(way: int = 3, shot: int = 4, first: int = 0) -> tuple[list[Any], list[str]]:
        items = [(c, i) for c in range(way) for i in range(first, first + shot)]
        return domain.source.read(items), [f"shape {c}" for c, _ in items]

    return draw


@pytest.fixture
def folder(tmp_path: Path, pictures: Callable[..., tuple[list[Any], list[str]]]) -> Path:
    """Three classes with four files each."""
    images, labels = pictures()
    for place, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = tmp_path / "support" / label / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return tmp_path / "support"
