"""On a GPU: Triton's kernels give what torch gives."""

import pytest
import torch

from fewshift.nets import pointwise
from fewshift.nets.branch import branched
from fewshift.nets.cells import Cells, Shape
from fewshift.nets.pointwise import finished_, masked_, topmost, triton_kernels

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")


@pytest.fixture(params=[torch.float16, torch.float32])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    if triton_kernels() is None:
        pytest.skip("there is no Triton here")
    assert isinstance(request.param, torch.dtype)
    return request.param


def some_images(count: int, dtype: torch.dtype, channels: int = 24) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(5, channels, 7, 9, generator=generator) for _ in range(count))
    return [x.to(CUDA, dtype).contiguous(memory_format=torch.channels_last) for x in drawn]


def test_pointwise(dtype: torch.dtype) -> None:
    x, y, z = some_images(3, dtype)
    bias = torch.randn(24, device=CUDA, dtype=dtype)
    assert pointwise.fused(x, y, z) is not None
    near = {"rtol": 2e-3, "atol": 2e-3} if dtype == torch.float16 else {"rtol": 1e-6, "atol": 1e-6}
    for more in (None, z):
        other = 0 if more is None else more
        torch.testing.assert_close(masked_(x.clone(), y, more), (x + other) * (y > 0), **near)  # type: ignore[arg-type]
        for rectify in (False, True):
            wanted = x + bias[:, None, None] + other
            found = finished_(x.clone(), bias, more, rectify)
            torch.testing.assert_close(found, wanted.relu() if rectify else wanted, **near)  # type: ignore[arg-type]


def test_what_is_added_at_a_stride_and_the_topmost_gradient(dtype: torch.dtype) -> None:
    x, y = some_images(2, dtype)
    more = torch.randn(5, 24, 4, 5, device=CUDA, dtype=dtype).contiguous(memory_format=torch.channels_last)
    wanted = x.clone()
    wanted[:, :, ::2, ::2] += more
    near = {"rtol": 2e-3, "atol": 2e-3} if dtype == torch.float16 else {"rtol": 1e-6, "atol": 1e-6}
    torch.testing.assert_close(masked_(x.clone(), y, more, 2), wanted * (y > 0), **near)  # type: ignore[arg-type]
    share = torch.randn(5, 24, device=CUDA, dtype=dtype)
    torch.testing.assert_close(topmost(share, y), share[:, :, None, None] * (y > 0))


@pytest.mark.parametrize(("inputs", "outputs", "rows"), [(64, 64, 200), (24, 40, 50), (128, 256, 130)])
def test_branches(
    dtype: torch.dtype, inputs: int, outputs: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = Cells(Shape(4, 7, 3), CUDA)
    cells.assign([2, 3, 1])
    x = torch.randn(7, rows, inputs, device=CUDA, dtype=dtype)
    matrices = torch.randn(4, outputs, inputs, device=CUDA, dtype=dtype) / inputs**0.5
    base, more, alive = torch.randn(3, 7, rows, outputs, device=CUDA, dtype=dtype)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    for options in ({"rectify": True}, {"more": more, "alive": alive}, {"in_place": True}, {}):
        found = branched(x, matrices.mT, cells, base.clone(), **options)  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            patch.setattr("fewshift.nets.branch.triton_kernels", lambda: None)
            wanted = branched(x, matrices.mT, cells, base.clone(), **options)  # type: ignore[arg-type]
        torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)


def test_totals() -> None:
    if triton_kernels() is None:
        pytest.skip("there is no Triton here")
    cells, there = Cells(Shape(4, 7, 3), torch.device("cpu")), Cells(Shape(4, 7, 3), CUDA)
    cells.assign([2, 3, 1])
    there.assign([2, 3, 1])
    values, weights = torch.randn(2, 7, 5, 6), torch.rand(7)
    for chosen in (None, weights):
        found = there.totals(values.cuda(), None if chosen is None else chosen.cuda())
        torch.testing.assert_close(found.cpu(), cells.totals(values, chosen))
