"""A network of one's own, from its layers' names to a table of accuracies, through the Python interface."""

from __future__ import annotations

from pathlib import Path

import torch
from patterns import WATCH, classifier_settings, preconditioner_settings
from torch import nn

import fewshift as fs
from fewshift.data.pixels import practical
from fewshift.data.resident import resident
from fewshift.data.subset import at_most
from fewshift.nets.any_module import backbone_from
from fewshift.nets.kit import ImageSettings
from fewshift.training.classifier import train_classifier
from fewshift.training.preconditioners import train_preconditioners
from fewshift.training.tasks import ResidentTasks

SIZE = 16
TASKS = fs.Protocol(max_way=5, max_support=10, max_query=2)


def own_network() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 1),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(2),
            nn.Flatten(),
        )


def test_a_network_of_ones_own_on_the_drawn_suite(tmp_path: Path) -> None:
    backbone = backbone_from(own_network(), sites=("0", "2"), size=SIZE)
    half = (0.5, 0.5, 0.5)
    rule = practical(SIZE, half, half)
    domains = [at_most(d, 100) for d in fs.open_suite("drawn").with_role("seen")[:2]]
    tasks = ResidentTasks({d.name: resident(d, rule, splits=("train",)) for d in domains}, TASKS)
    trained = train_preconditioners(
        backbone, tasks, preconditioner_settings(validation_tasks=0), tmp_path / "p", watch=WATCH
    )
    told = train_classifier(
        backbone,
        trained.preconditioners,
        tasks,
        classifier_settings(validation_tasks=0),
        tmp_path / "c",
        watch=WATCH,
    )
    assert set(trained.preconditioners.roots) == {"net.0", "net.2", "last"}
    kit = fs.Kit(
        backbone,
        ImageSettings(SIZE, "practical"),
        trained.preconditioners,
        classifier=told.classifier,
    )
    episodes = fs.episodes(domains[0], "test", TASKS, 0, range(2), rule=fs.pixel_rule(kit))
    scores = list(fs.evaluate([fs.methods.ncc(kit), fs.methods.tsa(kit), fs.methods.tsp(kit)], episodes))
    assert [score.method for score in scores] == ["ncc", "tsa", "tsp"] * 2
    assert all(0 <= score.accuracy <= 1 and score.failure is None for score in scores)
    fs.save_kit(kit, tmp_path / "own.kit", weights=False)
    again = fs.load_kit(tmp_path / "own.kit", backbone=backbone_from(own_network(), ("0", "2"), size=SIZE))
    assert again.domains == tuple(d.name for d in domains)
