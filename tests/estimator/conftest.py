"""A small kit with every part, and drawn pictures to fit it on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from fewshift.core.precond import initial_preconditioners
from fewshift.data.drawn.suite import drawn_domain
from fewshift.nets.backbone import freeze
from fewshift.nets.kit import ImageSettings, Kit, save_kit
from fewshift.nets.resnet import ResNet18
from fewshift.nets.set_encoder import DatasetClassifier

SIZE = 32


@pytest.fixture(scope="session")
def small_kit() -> Kit:
    """Width 4 at 32 pixels, three domains, lived-in batch statistics."""
    torch.manual_seed(0)
    net = ResNet18(4, 1)
    with torch.no_grad():
        for _ in range(5):
            net(torch.randn(16, 3, SIZE, SIZE))
    backbone = freeze(net)
    sizes = {site: value.shape[0] for site, value in backbone.init().items()}
    return Kit(
        backbone,
        ImageSettings(size=SIZE),
        preconditioners=initial_preconditioners(("one", "two", "three"), sizes),
        classifier=DatasetClassifier(3, width=4).eval().requires_grad_(False),
        info={"rates": {"tsp": {"seen": [0.5, 0.05], "unseen": [0.25, 0.02]}}},
    )


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
