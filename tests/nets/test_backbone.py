import threading
from dataclasses import FrozenInstanceError, replace

import pytest
import torch

from fewshift.nets.adapters import adapters_at
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.resnet import ResNet18


@pytest.fixture
def backbone() -> Backbone:
    torch.manual_seed(0)
    net = ResNet18(width=4)
    with torch.no_grad():
        net(torch.randn(16, 3, 28, 28))  # running statistics unlike their initial values
    return freeze(net)


def test_batch_norm_never_learns(backbone: Backbone) -> None:
    before = {name: tensor.clone() for name, tensor in backbone.frozen.items()}
    images = torch.randn(4, 3, 28, 28)
    params = {site: start.clone().requires_grad_() for site, start in backbone.init().items()}
    torch.autograd.grad(backbone(params, images).square().sum(), list(params.values()))
    backbone.embed(images)
    assert all(torch.equal(backbone.frozen[name], tensor) for name, tensor in before.items())
    assert not any(module.training for module in backbone.net.modules())
    assert not any(tensor.requires_grad for tensor in backbone.frozen.values())


def test_freezing_leaves_the_network_as_it_was() -> None:
    net = ResNet18(width=4).train()
    backbone = freeze(net)
    assert net.training
    assert all(p.requires_grad for p in net.parameters())
    with torch.no_grad():
        net.conv1.weight.zero_()
    assert backbone.frozen["conv1.weight"].abs().sum() > 0
    with pytest.raises(FrozenInstanceError):
        backbone.net = net  # type: ignore[misc]


def test_an_image_does_not_depend_on_its_neighbours(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = torch.randn(5, 3, 28, 28)
    whole = backbone.embed(images)
    monkeypatch.setattr("fewshift.nets.backbone.CHUNK", 2)
    torch.testing.assert_close(backbone.embed(images), whole, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(backbone.embed(images[3:4]), whole[3:4], rtol=1e-5, atol=1e-6)


def test_two_derivatives(backbone: Backbone) -> None:
    double = backbone.to(dtype=torch.float64)
    images = torch.randn(2, 3, 28, 28, dtype=torch.float64)
    params = {site: start.clone().requires_grad_() for site, start in double.init().items()}
    first = torch.autograd.grad(
        double(params, images).square().sum(), list(params.values()), create_graph=True
    )
    second = torch.autograd.grad(sum(g.square().sum() for g in first), list(params.values()))
    assert all(torch.isfinite(g).all() for g in second)
    assert any(g.abs().sum() > 0 for g in second)


def test_elsewhere_it_keeps_weights_that_are_not_the_nets_own(backbone: Backbone) -> None:
    other = replace(backbone, frozen={name: value + 0.01 for name, value in backbone.frozen.items()})
    images = torch.randn(2, 3, 28, 28)
    torch.testing.assert_close(other.to("cpu").embed(images), other.embed(images))
    assert other.to("cpu").fingerprint() == other.fingerprint() != backbone.to("cpu").fingerprint()


def test_elsewhere_it_keeps_buffers_that_no_state_dict_has() -> None:
    class Centred(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.tensor(1.0), persistent=False)
            self.last = torch.nn.Linear(3, 3, bias=False)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            features: torch.Tensor = self.last(images.mean(dim=(2, 3)) - self.mean)
            return features

    own = freeze(Centred(), adapters_at(Centred(), ()))
    other = replace(own, frozen={**own.frozen, "mean": torch.tensor(5.0)})
    images = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(other.to("cpu").embed(images), other.embed(images))


def test_elsewhere_is_another_value(backbone: Backbone) -> None:
    double = backbone.to("cpu", torch.float64)
    assert double.dtype == torch.float64
    assert backbone.dtype == torch.float32
    assert double.dim == backbone.dim == 32
    assert double.device == torch.device("cpu")
    assert double.init()["last"].dtype == torch.float64
    images = torch.randn(2, 3, 28, 28)
    torch.testing.assert_close(double.embed(images.double()).float(), backbone.embed(images))


def test_fingerprint_knows_the_weights_and_nothing_else(backbone: Backbone) -> None:
    mark = backbone.fingerprint()
    assert mark == freeze(backbone.net).fingerprint() == backbone.to(dtype=torch.float64).fingerprint()
    changed = freeze(backbone.net)
    changed.frozen["layer4.1.bn2.running_var"][0] += 1e-3
    assert changed.fingerprint() != mark
    assert freeze(ResNet18(width=4)).fingerprint() != mark


def test_a_copy_holds_no_weights_of_another_threads_task(backbone: Backbone) -> None:
    images, done = torch.randn(2, 3, 28, 28), threading.Event()
    params = {site: (start + 0.1).requires_grad_() for site, start in backbone.init().items()}

    def work() -> None:
        while not done.is_set():
            backbone(params, images)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        marks = {freeze(backbone.net).fingerprint() for _ in range(20)}
    finally:
        done.set()
        thread.join()
    assert marks == {backbone.fingerprint()}


def test_threads_do_not_see_each_others_weights(backbone: Backbone) -> None:
    images = torch.randn(2, 3, 28, 28)
    settings = [
        {site: start + scale * 0.1 for site, start in backbone.init().items()} for scale in (0, 1, 2, 3)
    ]
    with torch.no_grad():
        expected = [backbone(params, images) for params in settings]
    wrong = []

    def work(which: int) -> None:
        with torch.no_grad():
            results = [backbone(settings[which], images) for _ in range(20)]
        wrong.extend(which for result in results if not torch.equal(result, expected[which]))

    threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
