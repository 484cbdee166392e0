"""Fresh dataset classifiers, before any training."""

from __future__ import annotations

import torch

from fewshift.nets.backbone import Backbone
from fewshift.nets.feature_classifier import FeatureClassifier
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.training.settings import ClassifierSettings


def new_classifier(domains: int, width: int, seed: int) -> DatasetClassifier:
    """A fresh g whose weights the seed alone decides; the global generator stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return DatasetClassifier(domains, width)


def new_classifier_for(
    backbone: Backbone, domains: int, settings: ClassifierSettings
) -> DatasetClassifier | FeatureClassifier:
    """A fresh g of the kind that the settings ask for."""
    if settings.reads == "images":
        return new_classifier(domains, settings.width, settings.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return FeatureClassifier(domains, backbone.dim, settings.width)
