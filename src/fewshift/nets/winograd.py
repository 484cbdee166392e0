"""3x3 convolutions of stride 1 with 2.25 times fewer multiplications: Winograd's F(2x2, 3x3), in plain torch.

Tiles of 2x2 outputs become sixteen matrix products over the channels. It pays on a CPU without AVX-512 where
the channels are many, so that the products outweigh the transforms; elsewhere direct convolution is faster.
All images are (n, h, w, c), contiguous, padded by one pixel.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_FORWARD = (0, 1, 2, 3)
_FLIPPED = (3, 1, 2, 0)  # turning a kernel by 180 degrees swaps its first and its last transformed row


def pays(device: torch.device) -> bool:
    """Whether this can be faster here than direct convolution, for which oneDNN makes more of AVX-512."""
    return device.type == "cpu" and torch.backends.cpu.get_cpu_capability() != "AVX512"


def transformed(kernel: Tensor) -> Tensor:  # (out, in, 3, 3) -> (4, 4, in, out)
    """A kernel as the sixteen matrices that multiply transformed tiles."""
    taps = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
    rows = torch.tensor(taps, dtype=kernel.dtype, device=kernel.device)
    return torch.einsum("ra,oiab,sb->rsio", rows, kernel, rows).contiguous()


def set_centre_(target: Tensor, base: Tensor, adapter: Tensor) -> None:  # (2, 2, in, out) twice, (out, in)
    """Add `adapter` to the centre tap: `target` and `base` are matrices [1:3, 1:3] of transformed kernels.

    Those four are all that the centre tap reaches.
    """
    for row, column, sign in ((0, 0, 0.25), (0, 1, -0.25), (1, 0, -0.25), (1, 1, 0.25)):
        torch.add(base[row, column], adapter.T, alpha=sign, out=target[row, column])


def convolve(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:  # (n, h, w, in), (4, 4, in, out), (out,)
    """The convolution plus bias: (n, h, w, out)."""
    products = _products(_tiles(x, _FORWARD), kernel.flatten(0, 1))
    products[1, 1] += bias  # the one product that enters all four outputs of a tile with a plus
    return _outputs(products, x.shape[1], x.shape[2], _FORWARD)


def input_gradient(
    delta: Tensor, kernel: Tensor
) -> Tensor:  # (n, h, w, out), (4, 4, in, out) -> (n, h, w, in)
    """The gradient with respect to the input: the convolution by the turned, transposed kernel."""
    products = _products(_tiles(delta, _FLIPPED), kernel.flatten(0, 1).mT)
    return _outputs(products, delta.shape[1], delta.shape[2], _FLIPPED)


def _tiles(x: Tensor, order: tuple[int, ...]) -> Tensor:  # (n, h, w, c) -> (4, 4, n, h/2, w/2, c)
    """Overlapping 4x4 tiles, transformed; component r of each side is stored at place order[r]."""
    n, h, w, c = x.shape
    th, tw = (h + 1) // 2, (w + 1) // 2
    padded = F.pad(x, (0, 0, 1, 2 * tw + 1 - w, 1, 2 * th + 1 - h))
    rows = x.new_empty(4, n, th, 2 * tw + 2, c)
    _combine(rows, [padded[:, start : start + 2 * th : 2] for start in range(4)], order)
    tiles = x.new_empty(4, 4, n, th, tw, c)
    _combine(tiles.transpose(0, 1), [rows[:, :, :, start : start + 2 * tw : 2] for start in range(4)], order)
    return tiles


def _combine(target: Tensor, lines: list[Tensor], order: tuple[int, ...]) -> None:
    torch.sub(lines[0], lines[2], out=target[order[0]])
    torch.add(lines[1], lines[2], out=target[order[1]])
    torch.sub(lines[2], lines[1], out=target[order[2]])
    torch.sub(lines[1], lines[3], out=target[order[3]])


def _products(tiles: Tensor, kernel: Tensor) -> Tensor:  # (4, 4, n, th, tw, a), (16, a, b) -> (..., b)
    flat = tiles.view(16, -1, tiles.shape[-1])
    return torch.bmm(flat, kernel).view(*tiles.shape[:-1], kernel.shape[-1])


def _outputs(
    products: Tensor, h: int, w: int, order: tuple[int, ...]
) -> Tensor:  # (4, 4, n, ...) -> (n, h, w, c)
    """Transformed products back to images; an odd height or width drops the surplus row or column."""
    p = [products[place] for place in order]
    halves = (torch.add(p[0], p[1]).add_(p[2]), torch.sub(p[1], p[2]).sub_(p[3]))
    image = products.new_empty(products.shape[2], h, w, products.shape[-1])
    for i, half in enumerate(halves):
        for j in range(2):
            target = image[:, i::2, j::2]
            q = [half[place, :, : target.shape[1], : target.shape[2]] for place in order]
            if j == 0:
                torch.add(q[0], q[1], out=target).add_(q[2])
            else:
                torch.sub(q[1], q[2], out=target).sub_(q[3])
    return image
