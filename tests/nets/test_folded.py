from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.descent import gradients
from fewshift.core.losses import inner_objective
from fewshift.errors import FewshiftError
from fewshift.nets import folded, winograd
from fewshift.nets.adapters import ResidualAdapters
from fewshift.nets.backbone import Backbone
from fewshift.nets.folded import AdaptedConv, fold, pixels
from fewshift.nets.folded_block import add_centre_gradient
from fewshift.nets.folded_resnet import (
    SupportFeatures,
    cannot_fold,
    folded_resnet,
)
from fewshift.types import Task, TaskParams

Make = Callable[..., Backbone]
MakeTask = Callable[..., Task]
Jitter = Callable[[TaskParams], TaskParams]

EVERYWHERE = 4  # Winograd's threshold that makes every layer of stride 1 use it


@pytest.fixture(params=[256, EVERYWHERE], ids=["direct", "winograd"])
def _both_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded, "WINOGRAD_CHANNELS", request.param)
    monkeypatch.setattr(winograd, "pays", lambda device: True)  # also where AVX-512 makes it the slower one


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


@pytest.mark.usefixtures("_both_kernels")
@pytest.mark.parametrize("size", [41, 21, 11, 6])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_folded_layer_is_branch_and_batch_norm(stride: int, size: int, dtype: torch.dtype) -> None:
    inputs, outputs = (8, 8) if stride == 1 else (4, 8)
    frozen = {
        "conv.weight": random(outputs, inputs, 3, 3),
        "bn.weight": random(outputs),  # scales of both signs
        "bn.bias": random(outputs),
        "bn.running_mean": random(outputs),
        "bn.running_var": random(outputs).square() + 0.1,
    }
    frozen = {name: tensor.to(dtype) for name, tensor in frozen.items()}
    x = random(3, inputs, size, size).to(dtype).requires_grad_()
    adapter = random(outputs, inputs).to(dtype).requires_grad_()
    branch = F.conv2d(x, adapter[..., None, None], stride=stride)
    plain = F.batch_norm(
        F.conv2d(x, frozen["conv.weight"], stride=stride, padding=1) + branch,
        frozen["bn.running_mean"],
        frozen["bn.running_var"],
        frozen["bn.weight"],
        frozen["bn.bias"],
    )
    delta = random(*plain.shape).to(dtype)
    gradient_x, gradient_adapter = torch.autograd.grad(plain, (x, adapter), delta)

    layer = fold(frozen, "conv", "bn", stride)
    conv = AdaptedConv(layer)
    still = layer.kernel.clone()
    with torch.no_grad():
        last = x.detach().contiguous(memory_format=torch.channels_last)
        conv.set(random(outputs, inputs).to(dtype))  # an adapter before it leaves no trace
        conv.set(adapter)
        found = {"site": torch.zeros_like(adapter)}
        add_centre_gradient(found, "site", delta, pixels(last, stride))
        results = (
            (conv(last), plain.detach()),
            (conv.input_gradient(delta, last), gradient_x),
            (found["site"] * layer.scale[:, None], gradient_adapter),
        )
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    for ours, theirs in results:
        assert ((ours - theirs).abs().max() / theirs.abs().max()).item() < tolerance
    assert torch.equal(layer.kernel, still)


@pytest.mark.usefixtures("_both_kernels")
@pytest.mark.parametrize(("width", "padding", "size"), [(4, 1, 84), (4, 2, 28), (8, 1, 41), (6, 2, 33)])
def test_features_and_gradients_are_those_of_the_plain_network(
    make_backbone: Make, make_task: MakeTask, jitter: Jitter, width: int, padding: int, size: int
) -> None:
    backbone, task = make_backbone(width, padding), make_task(10, size)
    narrow, narrow_task = backbone.to(dtype=torch.float32), make_task(10, size, dtype=torch.float32)
    for params in (backbone.init(), jitter(backbone.init())):
        truth = plain_results(backbone, task, params)
        for name, found in folded_results(backbone, task, params).items():
            assert gap(found, truth[name]) < 1e-11, name
        # Single precision errs by itself, more the more layers a gradient went through, and with some BLAS.
        short = {site: value.float() for site, value in params.items()}
        plain = plain_results(narrow, narrow_task, short)
        for name, found in folded_results(narrow, narrow_task, short).items():
            assert gap(found, truth[name]) < max(2e-5, 3 * gap(plain[name], truth[name])), name


def plain_results(backbone: Backbone, task: Task, params: TaskParams) -> dict[str, Tensor]:
    loss, found = gradients(inner_objective(backbone, task), params)
    return {"features": backbone(params, task.support.images), "loss": loss, **found}


def folded_results(backbone: Backbone, task: Task, params: TaskParams) -> dict[str, Tensor]:
    net, images = folded_resnet(backbone), task.support.images
    support = SupportFeatures(net, images, tuple(params))
    loss, found = gradients(inner_objective(lambda p, _: support(p), task), params)
    assert gap(support(params), net.features(params, images)) < 1e-5
    return {"features": net.features(params, images), "loss": loss, **found}


def gap(found: Tensor, wanted: Tensor) -> float:
    return ((found.double() - wanted.double()).norm() / wanted.double().norm()).item()


def assert_near(found: Tensor, wanted: Tensor, tolerance: float) -> None:
    assert gap(found, wanted) < tolerance


def test_chunks_change_nothing(
    make_backbone: Make, make_task: MakeTask, jitter: Jitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, task = make_backbone(), make_task(12)
    params, net = jitter(backbone.init()), folded_resnet(backbone)
    results = []
    for chunk in (5, 12, 100):
        monkeypatch.setattr("fewshift.nets.folded_resnet.CPU_CHUNK", chunk)
        support = SupportFeatures(net, task.support.images, tuple(params))
        assert len(support.heads) == -(-12 // chunk)
        results.append(gradients(inner_objective(lambda p, _, s=support: s(p), task), params))
    for loss, found in results[1:]:
        assert_near(loss, results[0][0], 1e-12)
        for site in found:
            assert_near(found[site], results[0][1][site], 1e-10)


@pytest.mark.parametrize(
    "sites",
    [
        ("last",),
        ("layer4.1.conv2",),
        ("layer3.0.conv2", "last"),
        ("layer2.0.conv1", "layer4.0.conv2"),
        ("layer1.0.conv2", "layer1.1.conv1"),
    ],
)
def test_sites_without_parameters_stay_frozen(
    make_backbone: Make, make_task: MakeTask, jitter: Jitter, sites: tuple[str, ...]
) -> None:
    backbone, task = make_backbone(), make_task()
    params = {site: value for site, value in jitter(backbone.init()).items() if site in sites}
    net = folded_resnet(backbone)
    support = SupportFeatures(net, task.support.images, tuple(params))
    _, found = gradients(inner_objective(lambda p, _: support(p), task), params)
    _, wanted = gradients(inner_objective(backbone, task), params)
    assert set(found) == set(sites)
    for site in sites:
        assert_near(found[site], wanted[site], 1e-10)
    assert_near(net.features(params, task.support.images), backbone(params, task.support.images), 1e-11)


def test_a_stale_or_second_derivative_is_refused(make_backbone: Make, make_task: MakeTask) -> None:
    backbone, task = make_backbone(), make_task()
    params = {site: value.requires_grad_() for site, value in backbone.init().items()}
    support = SupportFeatures(folded_resnet(backbone), task.support.images, tuple(params))
    first = support(params).sum()
    support(params)
    with pytest.raises(RuntimeError, match="take the gradient before the next call"):
        torch.autograd.grad(first, list(params.values()))
    loss = support(params).square().sum()
    once = torch.autograd.grad(loss, list(params.values())[:2], create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(once[0].sum(), list(params.values())[:2])


def test_what_cannot_be_folded_says_so(make_backbone: Make) -> None:
    backbone = make_backbone()
    assert cannot_fold(backbone) is None

    class Other(ResidualAdapters):
        pass

    other = Backbone(backbone.net, backbone.frozen, Other(("layer1.0.conv1",)))
    assert "not Other" in (cannot_fold(other) or "")
    with pytest.raises(FewshiftError, match="choose the plain engine"):
        folded_resnet(other)
    assert "not Linear" in (cannot_fold(Backbone(torch.nn.Linear(1, 1), {}, backbone.adapters)) or "")
