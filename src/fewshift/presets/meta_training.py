"""The presets of Algorithms 1 and 2 by the names that `--preset` takes."""

from __future__ import annotations

from fewshift.data.protocol import VARYING
from fewshift.presets.small_data import SMALL_TASKS, small_classifier, small_preconditioners
from fewshift.presets.training import (
    LAST_MAP_TASKS,
    QUICK_TASKS,
    last_map_classifier,
    last_map_preconditioners,
    paper_classifier,
    paper_preconditioners,
    quick_classifier,
    quick_preconditioners,
)

PRECONDITIONERS = {
    "paper": paper_preconditioners,
    "quick": quick_preconditioners,
    "small": small_preconditioners,
    "last-map": last_map_preconditioners,
}
CLASSIFIERS = {
    "paper": paper_classifier,
    "quick": quick_classifier,
    "small": small_classifier,
    "last-map": last_map_classifier,
}
PROTOCOLS = {"paper": VARYING, "quick": QUICK_TASKS, "small": SMALL_TASKS, "last-map": LAST_MAP_TASKS}
