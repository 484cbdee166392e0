"""On a GPU: the host never waits inside a step, and an exact run goes on to the same bits."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from patterns import (
    PROTOCOL,
    WATCH,
    backbone_settings,
    classifier_settings,
    preconditioner_settings,
    resnet_backbone,
    some_preconditioners,
    two_domains,
)

from fewshift.training.backbone import BackboneLearner, train_backbone
from fewshift.training.checkpoint import load_checkpoint
from fewshift.training.classifier import ClassifierLearner, train_classifier
from fewshift.training.distributed import ALONE, repeat_to_the_bit
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.loop import LAST, Learner
from fewshift.training.preconditioner_learner import PreconditionerLearner
from fewshift.training.preconditioners import train_preconditioners
from fewshift.training.tasks import ResidentTasks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")


def learners() -> Iterator[Learner]:
    domains = {name: domain.to(CUDA) for name, domain in two_domains().items()}
    backbone, tasks = resnet_backbone().to(CUDA), ResidentTasks(domains, PROTOCOL)
    way = best_meta_gradients(backbone)
    learned = some_preconditioners(backbone, tasks.domains)
    yield BackboneLearner(domains, backbone_settings(), {}, PROTOCOL, ALONE)
    yield PreconditionerLearner(backbone, tasks, preconditioner_settings(spectrum_every=1), way, ALONE)
    yield ClassifierLearner(backbone, learned, None, tasks, classifier_settings(), way, ALONE)


def test_no_step_waits_for_the_device() -> None:
    for learner in learners():
        learner.update(0)  # memory is taken and kernels are loaded the first time
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")  # the mode itself says that it is new
            torch.cuda.set_sync_debug_mode("warn")
            try:
                learner.update(1)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        assert [str(one.message) for one in said if "called a synchronizing" in str(one.message)] == [], (
            learner.kind
        )


def test_exact_runs_go_on_to_the_same_bits(tmp_path: Path) -> None:
    before = torch.are_deterministic_algorithms_enabled(), os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    repeat_to_the_bit()
    try:
        _check_bits(tmp_path)
    finally:
        torch.use_deterministic_algorithms(before[0])
        if before[1] is None:
            del os.environ["CUBLAS_WORKSPACE_CONFIG"]


def _check_bits(folder: Path) -> None:
    domains = {name: domain.to(CUDA) for name, domain in two_domains().items()}
    backbone, tasks = resnet_backbone().to(CUDA), ResidentTasks(domains, PROTOCOL)
    learned = some_preconditioners(backbone, tasks.domains)
    options = {"watch": WATCH, "resume": True}
    for name, stops in (("whole", (4,)), ("pieces", (2, 4))):
        for updates in stops:
            first, second, third = (
                replace(settings, updates=updates)
                for settings in (backbone_settings(), preconditioner_settings(), classifier_settings())
            )
            train_backbone(domains, first, folder / f"b {name}", protocol=PROTOCOL, **options)  # type: ignore[arg-type]
            train_preconditioners(backbone, tasks, second, folder / f"p {name}", **options)  # type: ignore[arg-type]
            train_classifier(backbone, learned, tasks, third, folder / f"c {name}", **options)  # type: ignore[arg-type]
    for stage in "bpc":
        whole, pieces = (
            load_checkpoint(folder / f"{stage} {name}" / LAST).tensors for name in ("whole", "pieces")
        )
        assert whole.keys() == pieces.keys()
        assert [name for name in whole if not torch.equal(whole[name], pieces[name])] == []
