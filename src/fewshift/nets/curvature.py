"""Hessian-vector products of the support loss by hand: the tangent of the gradient along a direction.

With masks held fixed (a ReLU has no curvature where it has a derivative) a layer's tangent is the same frozen
convolution of the input's tangent plus the direction's 1x1 product of the input, and so on backwards. So a
product costs two gradients, and needs no graph of a graph.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewshift.nets.adapters import LAST
from fewshift.nets.branch import branched
from fewshift.nets.folded import Folded, as_images
from fewshift.nets.folded_block import FoldedBlock
from fewshift.nets.pointwise import masked_
from fewshift.nets.precision import arithmetic
from fewshift.nets.stacks import Stack
from fewshift.nets.static_batch import StaticBatch
from fewshift.nets.task_net import Kept, TaskNet, read_at


class Pair(NamedTuple):
    """A value and its tangent."""

    value: Tensor
    tangent: Tensor


def hessian_products(batch: StaticBatch, direction: Stack) -> Stack:
    """H v for every task of a batch, at the parameters in its buffers; v and the result are stacks."""
    with torch.no_grad(), arithmetic(batch.precision):
        batch.net.set(batch.params)
        pooled, kept = batch.net.forward(batch.head)
        curve = _Curve(batch.net, batch.net.scaled(direction))
        tangents, pooled_tangent = curve.forward(kept)
        last = batch.cells.spread(batch.frozen.stacks.site(batch.params, LAST)).detach()
        last_tangent = batch.cells.spread(batch.frozen.stacks.site(direction, LAST))
        with torch.enable_grad(), arithmetic("float32"):
            point = (pooled.requires_grad_(), last.requires_grad_())
            losses = batch.objective(*point)
            first = torch.autograd.grad(losses.sum(), point, create_graph=True)
            along = (first[0] * pooled_tangent).sum() + (first[1] * last_tangent).sum()
            second = torch.autograd.grad(along, point)
        found = curve.backward(first[0].detach(), second[0], kept, tangents)
        batch.frozen.stacks.site(found, LAST).copy_(batch.cells.total(second[1]))
        batch.net.branches = {}
        return found


class _Curve:
    """The tangents of one network's activations and gradients along one direction."""

    def __init__(self, net: TaskNet, direction: dict[str, Tensor]) -> None:
        self.net, self.direction = net, direction  # site -> (cells, out, in)

    def forward(self, kept: list[Kept]) -> tuple[list[Kept], Tensor]:
        """Tangents of everything that is kept, and of the pooled activations."""
        tangents: list[Kept] = []
        for block, own in zip(self.net.net.blocks, kept, strict=True):
            below = tangents[-1].output if tangents else None
            tangents.append(self._block(block, own, below))
        return tangents, tangents[-1].output.mean(dim=(2, 3), dtype=self.net.net.last.dtype)

    def _block(self, block: FoldedBlock, own: Kept, x: Tensor | None) -> Kept:
        """`x` is the input's tangent, None where the input has none."""
        read = None if x is None else read_at(x, block.first.stride)
        middle = masked_(self._layer(block.first, own.read, x, read), own.middle)
        output = self._layer(block.second, own.middle, middle, middle)
        if x is not None and read is not None:
            output += x if block.matrix is None else self._projected(block, read)
        return Kept(torch.zeros_like(own.read) if read is None else read, middle, masked_(output, own.output))

    def _projected(self, block: FoldedBlock, read: Tensor) -> Tensor:
        assert block.matrix is not None
        return as_images(self.net.rows(read) @ block.matrix.T, read)

    def _layer(self, conv: Folded, at: Tensor, x: Tensor | None, read: Tensor | None) -> Tensor:
        """The response's tangent: of the input by the layer itself, of the layer by the direction."""
        net = self.net
        rows = branched(net.rows(at), self.direction[conv.site].mT, net.cells)
        if x is None or read is None:
            return as_images(rows, at)
        if not net.folds:
            adapter = net.branches[conv.site].mT
            rows = branched(net.rows(read), adapter, net.cells, rows, in_place=True)
        response = torch.conv2d(x, net.kernels[conv.site], None, conv.stride, padding=1)
        return response.add_(as_images(rows, at))

    def backward(self, gradient: Tensor, tangent: Tensor, kept: list[Kept], tangents: list[Kept]) -> Stack:
        """The tangent of the adapters' gradients; both lists are used up."""
        net, output = self.net, kept[-1].output
        delta = Pair(net.spread_out(gradient, output), net.spread_out(tangent, output))
        found = net.net.stacks.zeros(net.cells.shape.cells, net.net.last, blank=True)
        for place in reversed(range(len(kept))):
            below = kept[place - 1].output if place else None
            following = self._block_gradients(
                net.net.blocks[place], delta, kept.pop(), tangents.pop(), below, found
            )
            delta = following or delta
        return net.collected(found, None)

    def _block_gradients(
        self, block: FoldedBlock, delta: Pair, own: Kept, moved: Kept, x: Tensor | None, found: Stack
    ) -> Pair | None:
        net = self.net
        net.centre_gradient(block.second.site, delta.tangent, own.middle, found)
        net.centre_gradient(block.second.site, delta.value, moved.middle, found, add=True)
        inner = self._through(block.second, delta, own.middle)
        inner = Pair(*(masked_(part, own.middle) for part in inner))
        net.centre_gradient(block.first.site, inner.tangent, own.read, found)
        if x is None:
            return None
        net.centre_gradient(block.first.site, inner.value, moved.read, found, add=True)
        below = self._through(block.first, inner, x)
        if block.matrix is None:
            return Pair(*(masked_(part, x, more) for part, more in zip(below, delta, strict=True)))
        stride, projection = block.first.stride, block.matrix
        shortcuts = (as_images(net.rows(part) @ projection, part) for part in delta)
        return Pair(*(masked_(p, x, more, stride) for p, more in zip(below, shortcuts, strict=True)))

    def _through(self, conv: Folded, delta: Pair, x: Tensor) -> Pair:
        value, tangent = (self.net.through(conv, part, x) for part in delta)
        more = branched(self.net.rows(delta.value), self.direction[conv.site], self.net.cells)
        self.net.add_strided(tangent, more, delta.value, conv.stride)
        return Pair(value, tangent)
