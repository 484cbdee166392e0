"""Cross-domain few-shot image classification: a frozen backbone, a few labelled images, a classifier.

>>> import fewshift as fs
>>> suite = fs.open_suite("drawn")
>>> [domain.name for domain in suite.with_role("unseen")]
['plants', 'cells']
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fewshift import methods
    from fewshift.data.episodes import episodes
    from fewshift.data.protocol import FIVE_SHOT, ONE_SHOT, VARYING, Protocol
    from fewshift.data.suites import Suite, open_suite
    from fewshift.errors import FewshiftError
    from fewshift.estimator.classifier import FewShotClassifier
    from fewshift.estimator.saved import load
    from fewshift.evaluation.evaluate import evaluate
    from fewshift.evaluation.pixel_rule import pixel_rule
    from fewshift.nets.kit import Kit, load_kit, save_kit
    from fewshift.types import Adapted, Episode, Labelled, Method, Task

# Where each public name lives. They are imported when first used, so that `fewshift --help` needs no torch.
_HOMES = {
    "FIVE_SHOT": "fewshift.data.protocol",
    "ONE_SHOT": "fewshift.data.protocol",
    "VARYING": "fewshift.data.protocol",
    "Adapted": "fewshift.types",
    "Episode": "fewshift.types",
    "FewShotClassifier": "fewshift.estimator.classifier",
    "FewshiftError": "fewshift.errors",
    "Kit": "fewshift.nets.kit",
    "Labelled": "fewshift.types",
    "Method": "fewshift.types",
    "Protocol": "fewshift.data.protocol",
    "Suite": "fewshift.data.suites",
    "Task": "fewshift.types",
    "episodes": "fewshift.data.episodes",
    "evaluate": "fewshift.evaluation.evaluate",
    "load": "fewshift.estimator.saved",
    "load_kit": "fewshift.nets.kit",
    "open_suite": "fewshift.data.suites",
    "pixel_rule": "fewshift.evaluation.pixel_rule",
    "save_kit": "fewshift.nets.kit",
}

__all__ = [
    "FIVE_SHOT",
    "ONE_SHOT",
    "VARYING",
    "Adapted",
    "Episode",
    "FewShotClassifier",
    "FewshiftError",
    "Kit",
    "Labelled",
    "Method",
    "Protocol",
    "Suite",
    "Task",
    "episodes",
    "evaluate",
    "load",
    "load_kit",
    "methods",
    "open_suite",
    "pixel_rule",
    "save_kit",
]


def __getattr__(name: str) -> Any:
    if name == "methods":
        return importlib.import_module("fewshift.methods")
    if name not in _HOMES:
        raise AttributeError(f"module 'fewshift' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
