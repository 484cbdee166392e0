"""Every method keeps the contract, with each engine, with and without the oracle."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from tiny_kits import in_double

from fewshift.evaluation.contract import CHECKS, check_method
from fewshift.evaluation.contract_bench import tensors_of
from fewshift.methods import METHODS
from fewshift.methods.steady import Steady
from fewshift.nets.choice import ENGINES, choose_engine
from fewshift.nets.graph import GraphEngine
from fewshift.nets.kit import Kit
from fewshift.types import Method

# the same classes at other rates
VARIANTS = {"tsp_untrained"} | {name for name in METHODS if name.endswith("_tuned")}
# proto_maml with a step that has its own tests in double precision
RULES = {"gap_eigen", "gap_approximate", "meta_sgd", "meta_curvature"}


def few_steps(method: Method) -> Method:
    """Structure does not depend on the number of steps, time does."""
    if isinstance(method, Steady):
        return replace(method, method=few_steps(method.method))  # type: ignore[arg-type]
    if not hasattr(method, "steps"):
        return method
    tries = hasattr(method, "rates") and isinstance(method.rates, tuple)  # steps are taken once a rate
    return replace(method, steps=1 if tries else 2)  # type: ignore[type-var]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_name_it_is_called_by(tiny_kit: Kit, name: str) -> None:
    assert METHODS[name](tiny_kit).name == name


@pytest.mark.parametrize("name", [name for name in METHODS if name not in VARIANTS])
def test_every_method_keeps_the_contract(tiny_kit: Kit, name: str) -> None:
    method = METHODS[name](tiny_kit)
    assert len(check_method(few_steps(method), tolerance=1e-3).checks) == len(CHECKS) == 15


@pytest.mark.parametrize("name", [name for name in METHODS if name not in VARIANTS | RULES])
def test_and_to_many_digits_without_the_oracle(tiny_kit: Kit, name: str) -> None:
    kit = in_double(tiny_kit)
    method = few_steps(METHODS[name](kit, choose_engine(kit.backbone, "plain"), False))
    contract = check_method(method, size=33, dtype=torch.float64, tolerance=1e-9)
    assert len(contract.checks) == len(CHECKS)


@pytest.mark.parametrize("name", ["tsa", "fine_tune", "norm_tune", "pmf"])
def test_and_on_the_fixed_buffers_that_graphs_replay_over(tiny_kit: Kit, name: str) -> None:
    kit = in_double(tiny_kit)
    method = few_steps(METHODS[name](kit, GraphEngine(kit.backbone, captured=False), False))
    frozen = list(tensors_of(kit))  # an engine may keep scratch memory of its own there
    contract = check_method(method, frozen=frozen, size=33, dtype=torch.float64, tolerance=1e-9)
    assert len(contract.checks) == len(CHECKS)


@pytest.fixture
def exact_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sums in one order and products in float32: faster ones give other last digits each time."""
    before = torch.are_deterministic_algorithms_enabled()
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with torch.backends.cudnn.flags(benchmark=False, deterministic=True, allow_tf32=False):
        torch.use_deterministic_algorithms(True)
        yield
        torch.use_deterministic_algorithms(before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "last-map"])  # for other kits
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.usefixtures("exact_gpu")
def test_and_on_a_gpu(tiny_kit: Kit, name: str, engine: str) -> None:
    kit = tiny_kit.to("cuda")
    method = METHODS[name](kit, choose_engine(kit.backbone, engine, "float32"), True)
    frozen = list(tensors_of(kit))  # an engine may keep scratch memory of its own there
    contract = check_method(few_steps(method), frozen=frozen, device="cuda", tolerance=0.02)
    assert len(contract.checks) == len(CHECKS)


@pytest.mark.parametrize("name", METHODS)
def test_the_kit_itself_is_among_what_is_watched(tiny_kit: Kit, name: str) -> None:
    held = {tensor.data_ptr() for tensor in tensors_of(METHODS[name](tiny_kit))}
    assert {t.data_ptr() for t in tiny_kit.backbone.frozen.values()} <= held
