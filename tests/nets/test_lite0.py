"""EfficientNet-Lite0: the packaged weights in our own network, equal to the package's."""

import importlib.util
from pathlib import Path

import pytest
import torch

from fewshift.errors import FewshiftError
from fewshift.nets import lite0 as module
from fewshift.nets.adapters import adapters_at
from fewshift.nets.architectures import bare_kit
from fewshift.nets.kit import load_kit, save_kit
from fewshift.nets.last_map import below_last
from fewshift.nets.lite0 import PACKAGE, Lite0, folded
from fewshift.nets.weights import unpickled

installed = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason="the lite0 extra is not installed"
)


def images(size: int = 64) -> torch.Tensor:
    return torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0)) * 2 - 1


@installed
@pytest.mark.parametrize("size", [64, 75])
def test_it_equals_the_published_model(size: int) -> None:
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="the published model is not installed")
    theirs = package.EfficientNet.from_name("efficientnet-lite0", image_size=size)
    theirs.load_state_dict(unpickled(module.weights_file()))
    with torch.no_grad():
        wanted = theirs.eval().extract_features(images(size)).mean(dim=(2, 3))
        torch.testing.assert_close(module.lite0()(images(size)), wanted, rtol=0, atol=1e-6)


@installed
def test_a_kit_holds_the_fingerprint_and_takes_the_weights_from_the_package(tmp_path: Path) -> None:
    kit = bare_kit("lite0")
    assert kit is not None
    save_kit(kit, tmp_path / "small.kit")
    assert (tmp_path / "small.kit").stat().st_size < 2_000
    found = load_kit(tmp_path / "small.kit")
    assert found.backbone.sites == ("last",)
    assert found.images == kit.images
    assert torch.equal(found.backbone.embed(images()), kit.backbone.embed(images()))


@installed
def test_a_kit_in_16_bits_is_still_one_for_the_weights_of_the_package(tmp_path: Path) -> None:
    kit = bare_kit("lite0")
    assert kit is not None
    save_kit(kit, tmp_path / "small.kit", weights_dtype=torch.float16)
    assert load_kit(tmp_path / "small.kit").backbone.fingerprint() == kit.backbone.fingerprint()


@installed
def test_folded_norms_change_nothing_but_the_time() -> None:
    kit = bare_kit("lite0")
    assert kit is not None
    torch.testing.assert_close(
        below_last(kit.backbone, images()), kit.backbone.embed(images()), rtol=0, atol=1e-4
    )


def test_another_file_of_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHA256", "0" * 64)
    if importlib.util.find_spec(PACKAGE) is None:
        pytest.skip("the lite0 extra is not installed")
    with pytest.raises(FewshiftError, match="is not the file of weights that lite0 was made with"):
        module.lite0()


def test_a_missing_extra_is_answered_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACKAGE", "no_such_package_here")
    with pytest.raises(FewshiftError, match=r"pip install 'fewshift\[lite0\]'"):
        module.lite0()


def test_sites_beside_pointwise_convolutions() -> None:
    sites = ("blocks.0.project", "blocks.3.expand", "head")
    adapters = adapters_at(Lite0(), sites)
    assert adapters.sites == (*sites, "last")
    with pytest.raises(FewshiftError, match="depthwise cannot carry task parameters"):
        adapters_at(Lite0(), ("blocks.3.depthwise",))


def test_folding_keeps_a_network_that_was_used() -> None:
    torch.manual_seed(0)
    net = Lite0()
    with torch.no_grad():
        net.train()(torch.randn(4, 3, 40, 40))
        net.eval()
        torch.testing.assert_close(folded(net)(images(40)), net(images(40)), rtol=1e-4, atol=1e-4)
