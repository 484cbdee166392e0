"""timm is an extra; where it does not import, only the sentences about it can be tested."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import fewshift as fs
from fewshift.errors import FewshiftError
from fewshift.nets.architectures import bare_kit
from fewshift.nets.timm_models import image_settings, timm_model


def timm_is_usable() -> bool:
    try:
        importlib.import_module("timm")
    except Exception:  # torchvision beside a torch it was not built for raises its own kinds
        return False
    return True


def test_a_missing_extra_is_answered_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(FewshiftError, match=r"pip install 'fewshift\[timm\]'"):
        bare_kit("timm:resnet10t")


def test_a_timm_that_cannot_be_imported_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def broken(name: str, *rest: Any) -> Any:
        if name == "timm":
            raise RuntimeError("operator torchvision::nms does not exist\nmore")
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(FewshiftError, match=r"nms does not exist.*install the torchvision that belongs"):
        timm_model("resnet10t")


def test_pixels_follow_the_model() -> None:
    config = {
        "input_size": (3, 176, 176),
        "interpolation": "bicubic",
        "mean": (0.485, 0.456, 0.406),
        "std": (0.229, 0.224, 0.225),
    }
    found = image_settings(config)
    assert (found.size, found.kind, found.filter) == (176, "practical", "bicubic")
    assert found.mean == (0.485, 0.456, 0.406)
    with pytest.raises(FewshiftError, match="reads 160 x 224 pixels"):
        image_settings(config | {"input_size": (3, 160, 224)})


def test_the_last_map_fits_what_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """MobileNetV3 and its kin call the channels before their last layer `num_features`."""
    layers = (
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 12),
    )
    net = torch.nn.Sequential(*layers)
    net.num_features = 8  # type: ignore[assignment]
    config = {"input_size": (3, 32, 32), "mean": (0.5,) * 3, "std": (0.5,) * 3}
    data = SimpleNamespace(resolve_model_data_config=lambda net: config)
    library = SimpleNamespace(create_model=lambda name, **rest: net, data=data)
    monkeypatch.setitem(sys.modules, "timm", library)  # type: ignore[arg-type]
    found, _ = timm_model("like_mobilenetv3")
    assert found.dim == 12
    assert found(torch.zeros(2, 3, 32, 32)).shape == (2, 12)


@pytest.mark.skipif(not timm_is_usable(), reason="timm does not import here: it needs a fitting torchvision")
def test_a_real_model_by_name() -> None:
    net, settings = timm_model("resnet10t", pretrained=False)
    assert net.dim == 512
    assert settings.size >= 128
    with torch.no_grad():
        assert net(torch.zeros(1, 3, 64, 64)).shape == (1, 512)
    with pytest.raises(FewshiftError, match="timm cannot make 'resnet10x'"):
        timm_model("resnet10x", pretrained=False)


@pytest.mark.skipif(not timm_is_usable(), reason="timm does not import here: it needs a fitting torchvision")
@pytest.mark.parametrize("name", ["resnet10t", "efficientnet_lite0", "convnext_atto", "vit_tiny_patch16_224"])
def test_own_images_with_a_real_model(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From the name to a saved fit, for four families; random weights, since real ones need a network."""
    timm = importlib.import_module("timm")
    made = timm.create_model

    def without_weights(model: str, pretrained: bool = False, **rest: Any) -> Any:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return made(model, pretrained=False, **rest)

    monkeypatch.setattr(timm, "create_model", without_weights)
    chance = np.random.default_rng(0)
    colours = np.repeat(chance.integers(0, 256, (2, 1, 1, 3)), 3, axis=0)
    images = np.clip(colours + chance.integers(-30, 31, (6, 48, 48, 3)), 0, 255).astype(np.uint8)
    labels = ["sand"] * 3 + ["sea"] * 3
    classifier = fs.FewShotClassifier(kit=f"timm:{name}", method="gd", device="cpu").fit(images, labels)
    assert classifier.predict(images).tolist() == labels
    classifier.save(tmp_path / "own.fewshift")
    again = fs.load(tmp_path / "own.fewshift", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(images), classifier.predict_proba(images))
