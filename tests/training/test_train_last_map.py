"""The last map on features: exact against the definition, and whole runs of both algorithms."""

from __future__ import annotations

import io
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from patterns import PROTOCOL, RULE, WATCH, classifier_settings, pattern_domain, preconditioner_settings
from PIL import Image
from torch import Tensor

from fewshift.core.losses import inner_objective, scored_outer_objective
from fewshift.core.metagrad import coefficient_gradient, meta_gradient, root_gradients
from fewshift.core.precond import DomainPreconditioners, blend_sites, low_rank
from fewshift.core.starts import LowRankStarts
from fewshift.data.arrays import array_domain
from fewshift.data.cache import build_cache, open_cached
from fewshift.data.domain import Domain, Pixels
from fewshift.data.folder import folder_domain
from fewshift.data.records_folder import open_domain
from fewshift.data.records_write import write_domain
from fewshift.data.spec import flat_spec
from fewshift.data.state import image_state
from fewshift.data.subset import Renumbered
from fewshift.errors import DataError, FewshiftError
from fewshift.methods import METHODS
from fewshift.nets.adapters import adapters_at
from fewshift.nets.any_module import backbone_from
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.feature_kit import on_features
from fewshift.nets.kit import ImageSettings, Kit, load_kit, save_kit
from fewshift.nets.last_map import LastMap, below_last, last_map_of
from fewshift.training.classifier import train_classifier
from fewshift.training.distributed import ALONE
from fewshift.training.features import FeatureDomain, featured
from fewshift.training.last_map import LastMapLearner, learned_maps
from fewshift.training.last_map_descent import after_descent, blended_last_map, features_of
from fewshift.training.preconditioners import train_preconditioners
from fewshift.training.settings import InnerLevel
from fewshift.training.tasks import ResidentTasks, task_addresses
from fewshift.types import Address, Episode, Labelled, Task

INNER = InnerLevel(rate=0.7, steps=3, order=2)
LOW_RANK = {
    "validation_tasks": 0,
    "design": "low_rank",
    "rank": 2,
    "train_starts": True,
    "start_rank": 2,
    "inner": INNER,
}


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def feature_task(dim: int = 12) -> Episode:
    support = Labelled(numbers(9, dim), torch.arange(9) % 3)
    query = Labelled(numbers(6, dim, seed=1), torch.arange(6) % 3)
    return Episode(Task(support, 3), query, Address(0, "x", "train", 0), (0, 1, 2))


def map_alone(dim: int = 12) -> Backbone:
    net = LastMap(dim).double()
    torch.nn.init.eye_(net.last.weight)
    return freeze(net, adapters_at(net, ()))


def test_gradients_equal_those_of_the_definition() -> None:
    episode, backbone = feature_task(), map_alone()
    root = (0.3 * numbers(2, 12)).requires_grad_()
    start_value = (backbone.init()["last"] + 0.2 * numbers(12, 12, seed=3)).requires_grad_()
    scored = after_descent(episode, features_of(episode) @ start_value.mT, INNER, root)
    by_root, by_start = torch.autograd.grad(scored.loss, (root, start_value))
    with torch.no_grad():
        start, matrix = {"last": start_value.clone()}, {"last": low_rank(root)}
    wanted = meta_gradient(
        inner_objective(backbone, episode.task),
        scored_outer_objective(backbone, episode),
        start,
        matrix,
        {"last": INNER.rate},
        INNER.steps,
        order=2,
    )
    pulled = root_gradients(low_rank, root.detach(), wanted.preconditioner["last"])
    for found, exact in (
        (scored.loss, wanted.loss),
        (by_root, pulled),
        (by_start, wanted.start["last"]),
    ):
        torch.testing.assert_close(found.detach(), exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("coefficients", [[0.3, 0.7], [0.2, 0.3]])
def test_the_gradient_of_the_coefficients_equals_that_of_the_definition(
    coefficients: list[float], order: Literal[1, 2]
) -> None:
    episode, backbone, names = feature_task(), map_alone(), ("x", "y")
    preconditioners = DomainPreconditioners(names, {"last": 0.3 * numbers(2, 2, 12)}, "low_rank")
    factors = {"last": 0.2 * numbers(2, 12, 3)}, {"last": numbers(2, 3, 12, seed=4)}
    starts = LowRankStarts(names, backbone.init(), *factors)
    blended = blended_last_map(backbone, preconditioners, starts)
    assert blended is not None
    weights = torch.tensor(coefficients, dtype=torch.float64, requires_grad=True)
    scored = blended(episode, replace(INNER, order=order), weights)
    (found,) = torch.autograd.grad(scored.loss, weights)
    start = starts.blend(weights)
    wanted = meta_gradient(
        inner_objective(backbone, episode.task),
        scored_outer_objective(backbone, episode),
        start,
        blend_sites(weights.detach(), preconditioners.matrices()),
        {"last": INNER.rate},
        INNER.steps,
        order,
    )
    (through_start,) = torch.autograd.grad(start["last"], weights, wanted.start["last"])
    exact = coefficient_gradient(wanted.preconditioner, preconditioners.matrices()) + through_start
    torch.testing.assert_close(scored.loss.detach(), wanted.loss, rtol=0, atol=1e-12)
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def whole() -> Backbone:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 5, 2), torch.nn.ReLU(), torch.nn.AdaptiveMaxPool2d(2), torch.nn.Flatten()
        )
    return backbone_from(body, size=28)


@pytest.fixture(scope="module")
def held(whole: Backbone, tmp_path_factory: pytest.TempPathFactory) -> dict[str, FeatureDomain]:
    folder = tmp_path_factory.mktemp("features")
    domains = [pattern_domain("red", 1), pattern_domain("grey", 2, grey=True)]
    return {d.name: featured(d, RULE, whole, ("train", "valid"), folder=folder) for d in domains}


def test_tasks_of_features_are_the_tasks_of_images(whole: Backbone, held: dict[str, FeatureDomain]) -> None:
    from patterns import two_domains

    on_images, on_maps = ResidentTasks(two_domains(), PROTOCOL), ResidentTasks(held, PROTOCOL)
    for address in task_addresses("preconditioners", 0, ("red", "grey"), "train", 0, 4, "stratified"):
        images, features = on_images.episode(address), on_maps.episode(address)
        assert torch.equal(images.query.labels, features.query.labels)
        assert torch.equal(images.task.support.labels, features.task.support.labels)
        wanted = below_last(whole, images.task.support.images)
        torch.testing.assert_close(features.task.support.images, wanted, rtol=2e-3, atol=2e-3)


def test_features_are_computed_once_and_again_where_the_file_is_damaged(
    whole: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = pattern_domain("red", 1)
    first = featured(domain, RULE, whole, ("valid",), folder=tmp_path)
    (file,) = tmp_path.iterdir()
    calls: list[int] = []
    monkeypatch.setattr(
        "fewshift.training.features.below_last",
        lambda backbone, images: calls.append(len(images)) or below_last(backbone, images),
    )
    assert torch.equal(featured(domain, RULE, whole, ("valid",), folder=tmp_path).features, first.features)
    assert not calls
    file.write_bytes(file.read_bytes()[:-9])
    assert torch.equal(featured(domain, RULE, whole, ("valid",), folder=tmp_path).features, first.features)
    assert sum(calls) == 60
    other = featured(pattern_domain("red", 5), RULE, whole, ("valid",), folder=tmp_path)
    assert not torch.equal(other.features, first.features)


def test_one_image_that_changes_has_other_features(whole: Backbone, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 28, 28, 3), np.uint8)
    labels = np.arange(12) // 4
    before = featured(array_domain("some", images, labels), RULE, whole, folder=tmp_path).features
    images[5] = 255 - images[5]
    after = featured(array_domain("some", images, labels), RULE, whole, folder=tmp_path).features
    assert [not torch.equal(a, b) for a, b in zip(after, before, strict=True)] == [k == 5 for k in range(12)]


@pytest.mark.parametrize("kind", ["records", "cache", "folder"])
def test_files_that_change_have_other_features(kind: str, tmp_path: Path) -> None:
    """By their size and time: to read every image would take as long as its features."""
    spec = flat_spec("some", ("a", "b"), (3, 3), {"train": 0, "valid": 0, "test": 2})

    def opened(value: int) -> Domain:
        pixels = {c: [np.full((8, 8, 3), value + 10 * c + k, np.uint8) for k in range(3)] for c in range(2)}
        if kind == "folder":
            for c, name in enumerate(spec.class_names):
                (tmp_path / "tree" / name).mkdir(parents=True, exist_ok=True)
                for k, image in enumerate(pixels[c]):
                    odd = os.fsdecode(b"\xff") if sys.platform == "linux" else ""  # a name that is no text
                    Image.fromarray(image).save(tmp_path / "tree" / name / f"{k}{odd}.png")
            return folder_domain(tmp_path / "tree")
        shutil.rmtree(tmp_path / "records", ignore_errors=True)
        write_domain(tmp_path / "records", spec, lambda c: [_png(image) for image in pixels[c]])
        found = open_domain(tmp_path / "records")
        if kind == "records":
            return found
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        build_cache(found, tmp_path / "cache")
        return open_cached(found, tmp_path / "cache")

    items = [(c, k) for c in range(2) for k in range(3)]
    first = opened(0)
    state = image_state(first, items)
    assert image_state(replace(first, source=Renumbered(first.source, (1, 0))), items) == state
    assert image_state(first, items) == state
    assert image_state(opened(100), items) != state


def _png(image: Pixels) -> bytes:
    encoded = io.BytesIO()
    Image.fromarray(image).save(encoded, "PNG")
    return encoded.getvalue()


def test_features_that_cannot_be_kept_are_refused_before_the_work(
    whole: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr("fewshift.training.features.below_last", None)
    with pytest.raises(DataError, match=r"features cannot be kept here .*: set FEWSHIFT_CACHE to a folder"):
        featured(pattern_domain("red", 1), RULE, whole, ("valid",), folder=tmp_path / "file" / "features")


def test_the_outer_loss_goes_down(whole: Backbone, held: dict[str, FeatureDomain]) -> None:
    settings = preconditioner_settings(**LOW_RANK, start_rate=0.0003, rate=0.02, normalise=True, period=1000)
    learner = LastMapLearner(last_map_of(whole), ResidentTasks(held, PROTOCOL), settings, ALONE)
    before = float(learner.update(0)["loss"])
    for _ in range(8):
        learner.update(0)
    assert float(learner.update(0)["loss"]) < before - 0.01


def test_the_common_start_learns_from_all_domains(whole: Backbone, held: dict[str, FeatureDomain]) -> None:
    settings = preconditioner_settings(**LOW_RANK, common_start=True, normalise=True)
    learner = LastMapLearner(last_map_of(whole), ResidentTasks(held, PROTOCOL), settings, ALONE)
    for step in range(3):
        learner.update(step)
    own, common = learner.learned["starts"], learner.learned["common"]["common"]
    moments = {  # running means of the gradients; both domains had tasks in every step
        name: learner.optimizers[what].state[tensor]["exp_avg"]
        for what in ("starts", "common")
        for name, tensor in learner.learned[what].items()
    }
    torch.testing.assert_close(moments["common"], moments["red"] + moments["grey"])
    assert own["red"].norm() > 0
    preconditioners, starts = learned_maps(learner, learner.tensors())
    torch.testing.assert_close(starts.base["last"], learner.base + common.detach())
    assert preconditioners.domains == starts.domains == ("red", "grey")
    cut = starts.values["last"][0] - learner.base - common.detach()
    assert torch.linalg.matrix_rank(cut, rtol=1e-3) == settings.start_rank
    assert (own["red"].detach() - cut).norm() < own["red"].norm()


@pytest.mark.parametrize("common", [False, True])
def test_both_algorithms_make_a_kit_that_methods_use(
    common: bool, whole: Backbone, held: dict[str, FeatureDomain], tmp_path: Path
) -> None:
    alone, tasks = last_map_of(whole), ResidentTasks(held, PROTOCOL)
    settings = preconditioner_settings(**LOW_RANK, common_start=common)
    trained = train_preconditioners(alone, tasks, settings, tmp_path / "p", watch=WATCH)
    shorter = replace(settings, updates=2)
    again = train_preconditioners(alone, tasks, shorter, tmp_path / "q", watch=WATCH)
    again = train_preconditioners(alone, tasks, settings, tmp_path / "q", watch=WATCH, resume=True)
    assert isinstance(trained.starts, LowRankStarts)
    assert isinstance(again.starts, LowRankStarts)
    assert torch.equal(trained.starts.left["last"], again.starts.left["last"])
    assert torch.equal(trained.starts.base["last"], again.starts.base["last"])
    assert torch.equal(trained.starts.base["last"], alone.init()["last"]) is not common
    assert trained.starts.left["last"].abs().max() > 0
    found = train_classifier(
        alone,
        trained.preconditioners,
        tasks,
        classifier_settings(reads="features", inner=INNER),
        tmp_path / "c",
        starts=trained.starts,
        watch=WATCH,
    )
    images = ImageSettings(RULE.size)
    kit = Kit(whole, images, trained.preconditioners, trained.starts, found.classifier)
    save_kit(kit, tmp_path / "x.kit", weights=False, starts_dtype=torch.float16)
    loaded = load_kit(tmp_path / "x.kit", backbone=whole)
    episode = tasks.episode(Address(0, "red", "valid", 0))
    for name in ("ncc", "gd", "tsp", "tsp_start"):
        logits = METHODS[name](on_features(loaded)).adapt(episode.task)(episode.query.images)
        assert logits.shape == (len(episode.query.labels), 5)
        assert logits.isfinite().all()
    coefficients = torch.tensor([0.4, 0.6])
    torch.testing.assert_close(
        loaded.start(coefficients)["last"], kit.start(coefficients)["last"], rtol=0, atol=1e-3
    )


@pytest.mark.parametrize(
    "changes", [{"design": "gram"}, {"train_starts": False}, {"inner": InnerLevel(order=1)}]
)
def test_what_it_cannot_do_is_refused(
    changes: dict[str, object], whole: Backbone, held: dict[str, FeatureDomain]
) -> None:
    settings = preconditioner_settings(**{**LOW_RANK, **changes})
    with pytest.raises(FewshiftError, match="--design low_rank --train-starts --order 2"):
        LastMapLearner(last_map_of(whole), ResidentTasks(held, PROTOCOL), settings, ALONE)
