"""Every method keeps the contract, with each engine, with and without the oracle."""

import copy
from dataclasses import replace

import pytest
import torch

from fewshift.core.precond import initial_preconditioners
from fewshift.core.starts import DomainStarts
from fewshift.evaluation.contract import CHECKS, check_method
from fewshift.evaluation.tensors import tensors_of
from fewshift.methods import METHODS
from fewshift.nets.backbone import freeze
from fewshift.nets.choice import ENGINES, choose_engine
from fewshift.nets.kit import Kit
from fewshift.nets.resnet import ResNet18
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.presets.rates import TUNABLE
from fewshift.types import Method

DOMAINS = ("birds", "cars", "glyphs")


@pytest.fixture(scope="module")
def tiny_kit() -> Kit:
    """A narrow network with random weights, random batch statistics and random preconditioners."""
    torch.manual_seed(0)
    net = ResNet18(width=4)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.8, 1.2)
    backbone = freeze(net)
    sizes = {site: value.shape[0] for site, value in backbone.init().items()}
    learned = initial_preconditioners(DOMAINS, sizes)
    learned = type(learned)(
        DOMAINS, {site: root + 0.05 * torch.randn_like(root) for site, root in learned.roots.items()}
    )
    rates = {"seen": [0.05, 0.3], "unseen": [0.25, 0.05]}
    return Kit(
        backbone,
        preconditioners=learned,
        classifier=DatasetClassifier(len(DOMAINS), width=4).eval().requires_grad_(False),
        starts=DomainStarts(
            DOMAINS,
            {site: v + 0.01 * torch.randn(3, *v.shape) for site, v in backbone.init().items()},
        ),
        info={"rates": dict.fromkeys(TUNABLE, rates)},
    )


def in_double(kit: Kit) -> Kit:
    assert kit.preconditioners is not None
    assert kit.starts is not None
    return kit.with_(
        backbone=kit.backbone.to(dtype=torch.float64),
        preconditioners=kit.preconditioners.to("cpu", torch.float64),
        starts=kit.starts.to("cpu", torch.float64),
        classifier=copy.deepcopy(kit.classifier).double(),
    )


def few_steps(method: Method) -> Method:
    """Structure does not depend on the number of steps, time does."""
    return replace(method, steps=2) if hasattr(method, "steps") else method  # type: ignore[type-var]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_the_contract(tiny_kit: Kit, name: str) -> None:
    method = METHODS[name](tiny_kit)
    assert method.name == name
    assert len(check_method(few_steps(method), tolerance=1e-3).checks) == len(CHECKS) == 15


@pytest.mark.parametrize("name", ["ncc", "pa", "tsa", "gd", "tsp", "tsp_start"])
def test_and_to_many_digits_without_the_oracle(tiny_kit: Kit, name: str) -> None:
    kit = in_double(tiny_kit)
    method = few_steps(METHODS[name](kit, choose_engine(kit.backbone, "plain"), False))
    contract = check_method(method, size=33, dtype=torch.float64, tolerance=1e-9)
    assert len(contract.checks) == len(CHECKS)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", METHODS)
def test_and_on_a_gpu(tiny_kit: Kit, name: str, engine: str) -> None:
    kit = tiny_kit.to("cuda")
    method = METHODS[name](kit, choose_engine(kit.backbone, engine), True)
    frozen = list(tensors_of(kit))  # an engine may keep scratch memory of its own there
    contract = check_method(few_steps(method), frozen=frozen, device="cuda", tolerance=0.1)
    assert len(contract.checks) == len(CHECKS)


@pytest.mark.parametrize("name", METHODS)
def test_the_kit_itself_is_among_what_is_watched(tiny_kit: Kit, name: str) -> None:
    held = {tensor.data_ptr() for tensor in tensors_of(METHODS[name](tiny_kit))}
    assert {t.data_ptr() for t in tiny_kit.backbone.frozen.values()} <= held
