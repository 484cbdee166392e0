"""An adapted classifier as an ordinary network, for those who run it without Fewshift.

Adapters are merged into the weights they stand beside. Batch norms are folded into the convolutions before
them in the graph that `torch.export` makes, because a module's own `forward` may ignore a bias that is put
into it. What is left is convolutions with biases, activations, additions, pooling and two matrix products.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule, Node

from fewshift.core.centroids import unit
from fewshift.nets.backbone import Backbone, copied, named_tensors
from fewshift.types import TaskParams

CONVOLUTION = torch.ops.aten.conv2d.default
BATCH_NORM = torch.ops.aten.batch_norm.default


class PlainClassifier(nn.Module):
    """Prepared images to logits or probabilities; nothing in it can be adapted any more."""

    def __init__(self, net: nn.Module, prototypes: Tensor, scale: float, probabilities: bool = False) -> None:
        super().__init__()
        self.net = net
        self.probabilities = probabilities
        self.centres: Tensor
        self.register_buffer("centres", (scale * unit(prototypes).T).contiguous())  # (d, way)

    def forward(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, way)
        """`scale` times the cosine to each class, or its softmax."""
        logits = unit(self.net(images)) @ self.centres
        return logits.softmax(dim=-1) if self.probabilities else logits


def plain_classifier(
    backbone: Backbone, params: TaskParams, prototypes: Tensor, scale: float, probabilities: bool = False
) -> PlainClassifier:
    """The classifier with its adapters merged into a copy of the network, on the CPU."""
    net = copied(backbone.net)
    merged = backbone.adapters.merge(backbone.frozen, params)
    with torch.no_grad():
        for name, tensor in named_tensors(net).items():
            tensor.copy_(merged[name])
    return PlainClassifier(net, prototypes, scale, probabilities).eval().requires_grad_(False).cpu()


def folded_program(classifier: nn.Module, size: int) -> ExportedProgram:
    """The graph for images of (any number, 3, size, size), each batch norm folded into its convolution.

    It carries no image and no path of the machine that made it.
    """
    here = next(classifier.buffers())
    images = torch.zeros(2, 3, size, size, dtype=here.dtype)  # one alone would be taken for a constant
    program = _program(fold_batch_norms(_program(classifier, images).module()), images)
    for node in program.graph.nodes:
        for trace in ("stack_trace", "nn_module_stack", "source_fn_stack"):
            node.meta.pop(trace, None)
    return program


def _program(module: nn.Module, images: Tensor) -> ExportedProgram:
    batch = Dim("batch", min=1)
    with torch.no_grad():
        return torch.export.export(module, (images,), dynamic_shapes=({0: batch},), strict=False)


def fold_batch_norms(graph_module: nn.Module) -> GraphModule:
    """Put each batch norm at rest into the convolution whose only reader it is, in place.

    With s = γ / √(σ² + ε): s (W * x + c) + β − μ s becomes (s W) * x + (c − μ) s + β.
    """
    assert isinstance(graph_module, GraphModule)
    for node in list(graph_module.graph.nodes):
        if node.op == "call_function" and node.target is BATCH_NORM:
            _fold(graph_module, node)
    graph_module.graph.eliminate_dead_code()
    graph_module.delete_all_unused_submodules()
    graph_module.recompile()
    return graph_module


def _fold(graph_module: GraphModule, norm: Node) -> None:
    conv, *statistics = norm.args[:5]
    training, eps = norm.args[5], norm.args[7]
    assert isinstance(eps, float)
    if training or not isinstance(conv, Node) or conv.target is not CONVOLUTION or len(conv.users) != 1:
        return
    nodes = (conv.args[1], conv.args[2] if len(conv.args) > 2 else None, *statistics)
    if any(isinstance(node, Node) and node.op != "get_attr" for node in nodes):
        return  # computed, not stored
    kernel, bias, gain, offset, mean, variance = (_stored(graph_module, node) for node in nodes)
    if kernel is None or mean is None or variance is None:
        return
    scale = (variance + eps).rsqrt() * (1.0 if gain is None else gain)
    shift = ((0.0 if bias is None else bias) - mean) * scale + (0.0 if offset is None else offset)
    names = [f"folded_{conv.name}_{part}" for part in ("weight", "bias")]
    for name, tensor in zip(names, (kernel * scale[:, None, None, None], shift), strict=True):
        graph_module.register_buffer(name, tensor)
    with graph_module.graph.inserting_before(conv):
        weight_and_bias = [graph_module.graph.get_attr(name) for name in names]
    conv.args = (conv.args[0], *weight_and_bias, *conv.args[3:])
    norm.replace_all_uses_with(conv)
    graph_module.graph.erase_node(norm)


def _stored(graph_module: GraphModule, node: Any) -> Tensor | None:
    """The tensor that a node reads from the module."""
    if node is None:
        return None
    found: Tensor = operator.attrgetter(node.target)(graph_module)
    return found.detach()
