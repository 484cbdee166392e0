"""The ResNet-18 under the adapters of one task or of many, with the adapters' gradients by hand.

A batch holds the images of one task or of many (see `cells`). For one task the adapters are folded into the
kernels. Many tasks share the frozen kernels, and each one's adapters are a batched matrix product beside the
convolution, which adds its result.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewshift.nets.adapters import LAST
from fewshift.nets.branch import branched
from fewshift.nets.cells import Cells
from fewshift.nets.folded import Folded, as_images, channels_last, channels_second
from fewshift.nets.folded_block import FoldedBlock
from fewshift.nets.frozen_net import FrozenNet
from fewshift.nets.fused_conv import convolved, input_gradient, wide_product
from fewshift.nets.pointwise import masked_, topmost
from fewshift.nets.stacks import Stack

TOP = 16.0  # where the largest 16-bit gradient of a cell starts: far from overflow and from underflow


class Head(NamedTuple):
    """What no adapter changes: the first block's input and its first convolution's frozen response."""

    x: Tensor  # (n, width, h, w)
    response: Tensor  # (n, width, h, w), before the adapter and the ReLU


class Kept(NamedTuple):
    """What a block's derivative needs: activations are their own ReLU masks."""

    read: Tensor  # (n, in, h', w') the input where the centre tap reads it
    middle: Tensor
    output: Tensor


class TaskNet:
    """The network under the adapters of the tasks that share a batch; made once for a shape of batches."""

    def __init__(self, net: FrozenNet, cells: Cells) -> None:
        self.net, self.cells, self.folds = net, cells, cells.shape.tasks == 1
        by_site = {conv.site: conv for conv in net.convs}
        self.kernels = {site: conv.kernel for site, conv in by_site.items()}
        self.branches: dict[str, Tensor] = {}  # site -> (tasks, out, in)
        self.scales, self.centres, self.folded = [], [], []
        for group in net.stacks.groups:
            convs = [by_site[site] for site in group if site != LAST]
            self.scales.append(torch.stack([conv.scale for conv in convs])[:, None, :, None])
            self.centres.append(torch.stack([conv.centre for conv in convs]))
            if self.folds:
                own = torch.stack([conv.kernel.permute(0, 2, 3, 1) for conv in convs]).permute(0, 1, 4, 2, 3)
                self.folded.append(own)
                self.kernels |= {conv.site: own[k] for k, conv in enumerate(convs)}

    def set(self, params: Stack) -> None:
        """Take these adapters from now on; `last` is not the network's."""
        if not self.folds:
            self.branches = self.scaled(params)
            return
        for values, scale, centre, kernels in zip(
            params, self.scales, self.centres, self.folded, strict=True
        ):
            adapters = values[: len(scale), 0]
            torch.addcmul(centre, scale[:, 0], adapters, out=kernels[..., 1, 1])
        # The first convolution's frozen response is cached, so its adapter stays beside it.
        first = (self.scales[0][0] * params[0][0]).to(self.net.dtype)
        self.branches = {self.net.blocks[0].first.site: first}

    def scaled(self, params: Stack) -> dict[str, Tensor]:  # -> site -> (tasks, out, in)
        """diag(s) A for every task, in the activations' type."""
        found: dict[str, Tensor] = {}
        for values, scale, group in zip(params, self.scales, self.net.stacks.groups, strict=True):
            adapters = values[: len(scale)]
            scaled = torch.empty(adapters.shape, dtype=self.net.dtype, device=adapters.device)
            torch.mul(scale, adapters, out=scaled)
            found |= {site: scaled[k] for k, site in enumerate(group[: len(scale)])}
        return found

    def head(self, images: Tensor) -> Head:  # (n, 3, h, w)
        """What no adapter changes of these images."""
        net, conv = self.net, self.net.blocks[0].first
        x = images.to(net.dtype, memory_format=torch.channels_last)
        x = torch.conv2d(x, net.stem.kernel, net.stem.bias, 2, net.stem_padding).relu_()
        return Head(x, torch.conv2d(x, conv.kernel, conv.bias, conv.stride, padding=1))

    def forward(self, head: Head, keep: bool = True) -> tuple[Tensor, list[Kept]]:  # -> (n, d)
        """Pooled activations in the weights' type, and what the derivative needs if that is to be kept."""
        first = self.net.blocks[0]
        adapter = self.branches[first.first.site].mT
        middle = branched(self.rows(head.x), adapter, self.cells, self.rows(head.response), rectify=True)
        kept = [self._finish(first, head.x, head.x, as_images(middle, head.response))]
        for block in self.net.blocks[1:]:
            x = kept[-1].output
            read = read_at(x, block.first.stride)
            done = self._finish(block, x, read, self._layer(block.first, x, read, None))
            kept = [*kept, done] if keep else [done]
        return kept[-1].output.mean(dim=(2, 3), dtype=self.net.last.dtype), kept

    def backward(self, gradient: Tensor, kept: list[Kept]) -> Stack:
        """The adapters' gradients, (k, tasks, out, in) for each group, zero for `last`; `kept` is used up."""
        delta, shrunk = self._top(gradient, kept[-1].output)
        found = self.net.stacks.zeros(self.cells.shape.cells, self.net.last, blank=True)
        for place in reversed(range(len(kept))):
            below = kept[place - 1].output if place else None
            upstream = self._block_gradients(self.net.blocks[place], delta, kept.pop(), below, found)
            if upstream is not None:
                delta = upstream
        return self.collected(found, shrunk)

    def collected(self, found: Stack, shrunk: Tensor | None) -> Stack:
        """Gradients of cells to gradients of tasks in the adapters' own coordinates: diag(s) δᵀx."""
        one_each = self.cells.shape.one_each
        found = tuple(values if one_each else self.cells.totals(values, shrunk) for values in found)
        for values, scale in zip(found, self.scales, strict=True):
            factor = scale if shrunk is None or not one_each else scale * shrunk[:, None, None]
            values[: len(scale)].mul_(factor)
        return found

    def rows(self, x: Tensor) -> Tensor:  # (n, c, h, w) -> (cells, pixels, c)
        """The pixels of each cell, a view."""
        return channels_last(x).reshape(self.cells.shape.cells, -1, x.shape[1])

    def _layer(self, conv: Folded, x: Tensor, read: Tensor, shortcut: Tensor | None) -> Tensor:
        """One convolution with its adapter, the shortcut and the ReLU."""
        if not self.folds:
            like = read if shortcut is None else shortcut
            base = None if shortcut is None else self.rows(shortcut)
            adapter = self.branches[conv.site].mT
            shortcut = as_images(branched(self.rows(read), adapter, self.cells, base), like)
        return convolved(x, self.kernels[conv.site], conv.bias, shortcut, conv.stride)

    def _finish(self, block: FoldedBlock, x: Tensor, read: Tensor, middle: Tensor) -> Kept:
        shortcut = x
        if block.matrix is not None:
            shortcut = as_images(self.rows(read) @ block.matrix.T, read)
        return Kept(read, middle, self._layer(block.second, middle, middle, shortcut))

    def _block_gradients(
        self, block: FoldedBlock, delta: Tensor, kept: Kept, x: Tensor | None, found: Stack
    ) -> Tensor | None:
        """Put the adapters' gradients into `found`; the gradient before the ReLU below, if there is one."""
        self.centre_gradient(block.second.site, delta, kept.middle, found)
        inner = self.below(block.second, delta, kept.middle)
        self.centre_gradient(block.first.site, inner, kept.read, found)
        if x is None:
            return None
        if block.matrix is None:
            return self.below(block.first, inner, x, delta)
        gradient = self.through(block.first, inner, x)
        shortcut = as_images(self.rows(delta) @ block.matrix, delta)
        return masked_(gradient, x, shortcut, block.first.stride)

    def below(self, conv: Folded, delta: Tensor, x: Tensor, more: Tensor | None = None) -> Tensor:
        """The gradient before the ReLU that made a convolution's input x; `more` comes to x another way."""
        if self.folds or conv.stride > 1:
            return masked_(self.through(conv, delta, x), x, more)
        gradient = input_gradient(delta, x, self.kernels[conv.site], conv.stride)
        other = None if more is None else self.rows(more)
        adapter, rows, alive = self.branches[conv.site], self.rows(gradient), self.rows(x)
        found = branched(self.rows(delta), adapter, self.cells, rows, other, alive, in_place=True)
        return as_images(found, gradient)

    def through(self, conv: Folded, delta: Tensor, x: Tensor) -> Tensor:
        """The gradient at a convolution's input, its adapter included."""
        gradient = input_gradient(delta, x, self.kernels[conv.site], conv.stride)
        if self.folds:
            return gradient
        adapter = self.branches[conv.site]
        if conv.stride == 1:
            rows = self.rows(gradient)
            return as_images(branched(self.rows(delta), adapter, self.cells, rows, in_place=True), gradient)
        self.add_strided(gradient, branched(self.rows(delta), adapter, self.cells), delta, conv.stride)
        return gradient

    def add_strided(self, gradient: Tensor, rows: Tensor, like: Tensor, stride: int) -> None:
        """Add rows of pixels, which lie like the pixels of `like`, to every stride-th pixel, in place."""
        channels_last(gradient)[:, ::stride, ::stride] += channels_last(as_images(rows, like))

    def centre_gradient(
        self, site: str, delta: Tensor, read: Tensor, found: Stack, add: bool = False
    ) -> None:
        """δᵀx of each cell."""
        target = self.net.stacks.site(found, site)  # (cells, out, in)
        if add:
            target += wide_product(self.rows(delta).mT, self.rows(read))
        else:
            wide_product(self.rows(delta).mT, self.rows(read), out=target)

    def _top(self, gradient: Tensor, output: Tensor) -> tuple[Tensor, Tensor | None]:
        """The pooled activations' gradient at the pixels; in 16 bits scaled by cell, and by how much."""
        if self.net.dtype != torch.float16:
            return self.spread_out(gradient, output), None
        by_cell = gradient.view(self.cells.shape.cells, -1)
        shrunk = by_cell.abs().amax(dim=1).clamp_min(1e-30) / TOP
        scaled = (by_cell / shrunk[:, None]).view_as(gradient)
        return self.spread_out(scaled, output), shrunk

    def spread_out(self, gradient: Tensor, output: Tensor) -> Tensor:  # (n, d), (n, d, h, w)
        """The pooled activations' gradient at the pixels, before the last ReLU."""
        return topmost((gradient / (output.shape[2] * output.shape[3])).to(self.net.dtype), output)


def read_at(x: Tensor, stride: int) -> Tensor:  # (n, c, h, w) -> (n, c, h', w')
    """Where a 1x1 convolution of this stride reads, channels-last in memory."""
    if stride == 1:
        return x
    return channels_second(channels_last(x)[:, ::stride, ::stride].contiguous())
