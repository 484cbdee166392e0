"""The 1x1 branch of many tasks beside a shared convolution: every cell's pixels times its owner's matrix.

With what is added to the product and the ReLU or its derivative it is one pass where Triton is there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fewshift.nets.cells import Cells
from fewshift.nets.pointwise import relu_gradient_, triton_kernels


def branched(
    x: Tensor,
    matrices: Tensor,
    cells: Cells,
    base: Tensor | None = None,
    more: Tensor | None = None,
    alive: Tensor | None = None,
    *,
    rectify: bool = False,
    in_place: bool = False,
) -> Tensor:  # (cells, rows, k), (tasks, k, n), (cells, rows, n) three times -> (cells, rows, n)
    """x by each owner's matrix, plus `base` plus `more`; rectified, or zero where `alive` is not positive.

    With `in_place` the result takes the place of `base`.
    """
    kernels = triton_kernels() if _suits(x) else None
    if kernels is not None:
        tensors = [t for t in (base, more, alive) if t is not None]
        if all(t.is_contiguous() for t in (x, *tensors)):
            shape = (*x.shape[:2], matrices.shape[2])
            out = base if in_place and base is not None else x.new_empty(shape)
            kernels.branched(x, matrices, cells.owner, base, more, alive, rectify, out)
            return out
    each = cells.spread(matrices)
    if base is None:
        found = torch.bmm(x, each)
    elif in_place:
        found = base.baddbmm_(x, each)
    else:
        found = torch.baddbmm(base, x, each)
    if more is not None:
        found.add_(more)
    if rectify:
        return found.relu_()
    return found if alive is None else relu_gradient_(found, alive)


def _suits(x: Tensor) -> bool:
    if x.device.type != "cuda" or x.numel() >= 2**31:
        return False
    return x.dtype == torch.float16 or (x.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32)
