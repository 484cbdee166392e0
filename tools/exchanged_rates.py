"""What two exchanged inner rates do to the gradient of Algorithm 2, for a note in docs/results/narrow.md.

    python tools/exchanged_rates.py RECORDS [KIT]

Sums the gradient of a classifier's objective over 16 training tasks, with the rates as they should be and
with those of the last map and the adapter before it exchanged: at the kit's classifier and at a new one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fewshift.data.records_folder import open_records
from fewshift.data.resident import resident
from fewshift.evaluation.pixel_rule import pixel_rule
from fewshift.nets.bundled import find_kit
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.presets.small_data import SMALL_TASKS, small_classifier
from fewshift.training.classifier_objective import ClassifierObjective
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.settings import ClassifierSettings, InnerLevel
from fewshift.training.tasks import ResidentTasks, task_addresses

TASKS = 16


@dataclass(frozen=True, kw_only=True)
class Exchanged(InnerLevel):
    """The last map's rate at the adapter before it, and the adapters' at the last map."""

    def rates(self, sites: Iterable[str], last_site: str) -> dict[str, float]:
        """The step size of each site."""
        named = list(sites)
        before = [site for site in named if site != last_site][-1]
        return super().rates(named, before)


def main(records: Path, kit_name: str) -> None:
    """Print both gradients."""
    _, kit = find_kit(kit_name, torch.device("cpu"))
    assert kit.preconditioners is not None
    assert isinstance(kit.classifier, DatasetClassifier)
    found = {domain.name: domain for domain in open_records(records, list(kit.domains))}
    rule = pixel_rule(kit)
    tasks = ResidentTasks({n: resident(found[n], rule, splits=("train",)) for n in kit.domains}, SMALL_TASKS)
    addresses = task_addresses("classifier", 1, kit.domains, "train", 0, TASKS, "stratified")
    usual: ClassifierSettings = small_classifier(kit.domains).settings
    inner = usual.inner
    exchanged = Exchanged(rate=inner.rate, steps=inner.steps, order=inner.order, last_rate=inner.last_rate)
    torch.manual_seed(0)
    fresh = DatasetClassifier(len(kit.domains), kit.classifier.width)
    for name, net in (("the kit's", kit.classifier), ("a new", fresh)):
        weights = list(net.train().requires_grad_(True).parameters())

        def gradient(level: InnerLevel, net=net, weights=weights) -> Tensor:  # type: ignore[no-untyped-def]
            settings = ClassifierSettings(**{**vars(usual), "inner": level})
            rest = kit.preconditioners, kit.starts, tasks, settings, best_meta_gradients(kit.backbone)
            parts = []
            for judged in ClassifierObjective(net, kit.backbone, *rest)(addresses):
                by_weight = torch.autograd.grad(judged.loss, weights)
                parts.append(torch.cat([part.flatten() for part in by_weight]))
            return torch.stack(parts).sum(dim=0)

        right, wrong = gradient(inner), gradient(exchanged)
        angle = torch.rad2deg(torch.acos(torch.cosine_similarity(right.double(), wrong.double(), dim=0)))
        apart = float((right - wrong).norm() / right.norm())
        print(f"{name} classifier: {float(angle):.2f} degrees, {100 * apart:.1f} % of the length")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "narrow")
