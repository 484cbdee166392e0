"""The fastest way to meta-gradients that a backbone and its device allow; all are equal by test."""

from __future__ import annotations

from fewshift.nets.backbone import Backbone
from fewshift.nets.folded_resnet import cannot_fold
from fewshift.nets.frozen_net import cannot_graph
from fewshift.nets.last_map import LastMap
from fewshift.nets.precision import DEFAULT, Precision, precision_for
from fewshift.training.graphed import GraphedBatches
from fewshift.training.last_map_descent import by_features
from fewshift.training.metagradients import FoldedOneByOne, MetaGradients, OneByOne


def best_meta_gradients(backbone: Backbone, precision: Precision = DEFAULT) -> MetaGradients:
    """Algebra on features, graphs on a CUDA device, folded convolutions elsewhere, else the definition.

    The precision is that of the graphs, or bfloat16 of folded convolutions on a CPU.
    """
    wanted = precision_for(precision, backbone.device)
    if isinstance(backbone.net, LastMap):
        return by_features
    if cannot_fold(backbone):
        return OneByOne(backbone)
    graphs = backbone.device.type == "cuda" and cannot_graph(backbone) is None
    return GraphedBatches(backbone, wanted) if graphs else FoldedOneByOne(backbone, wanted)
