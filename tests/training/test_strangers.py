"""Made-up domains: one style a task, the same each time; only what is shared learns from them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fewshift.core.precond import design_named
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.training.distributed import ALONE
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.loop import Watch
from fewshift.training.preconditioner_learner import PreconditionerLearner
from fewshift.training.preconditioners import train_preconditioners
from fewshift.training.settings import InnerLevel, PreconditionerSettings
from fewshift.training.strangers import StrangerTasks, Style, Styles, draw_style, restyled
from fewshift.training.tasks import ResidentTasks
from fewshift.types import Address

PLAIN = Style(turns=0, mirrored=False, kernel=None, kept=1.0, colours=None, inverted=False, size=1.0)


def settings(**changes: object) -> PreconditionerSettings:
    base = {"updates": 2, "period": 2, "tasks_per_update": 4, "validation_tasks": 0, "train_starts": True}
    return PreconditionerSettings(**{**base, "common_start": True, "inner": InnerLevel(steps=2), **changes})  # type: ignore[arg-type]


def test_a_strangers_task_is_the_same_each_time_and_unlike_its_source(tasks: ResidentTasks) -> None:
    source = StrangerTasks(tasks, 2)
    assert source.domains == tasks.domains
    assert source.strangers == ("stranger 1", "stranger 2")
    first = source.episode(Address(3, "stranger 1", "train", 5))
    again = source.episode(Address(3, "stranger 1", "train", 5))
    other = source.episode(Address(3, "stranger 2", "train", 5))
    assert torch.equal(first.task.support.images, again.task.support.images)
    assert first.address.domain == "stranger 1"
    assert first.task.seen is False
    assert first.task.support.images.shape != other.task.support.images.shape or not torch.equal(
        first.task.support.images, other.task.support.images
    )
    assert first.task.support.images.abs().max() <= 1


def test_real_domains_keep_their_tasks(tasks: ResidentTasks) -> None:
    address = Address(3, "red", "train", 5)
    found = StrangerTasks(tasks, 1).episode(address)
    assert torch.equal(found.query.images, tasks.episode(address).query.images)


def test_every_change_does_what_its_name_says() -> None:
    images = torch.rand(3, 3, 12, 12, generator=torch.Generator().manual_seed(0)) * 2 - 1
    assert torch.equal(restyled(images, PLAIN), images)
    assert torch.equal(
        restyled(images, Style(1, False, None, 1.0, None, False, 1.0)), images.rot90(1, (2, 3))
    )
    assert torch.equal(restyled(images, Style(0, True, None, 1.0, None, False, 1.0)), images.flip(3))
    assert torch.equal(restyled(images, Style(0, False, None, 1.0, None, True, 1.0)), -images)
    coarse = restyled(images, Style(0, False, None, 1.0, None, False, 0.25))
    assert coarse.diff(dim=3).abs().mean() < images.diff(dim=3).abs().mean() / 2
    colours = np.array([[-1, -1, -1], [1, 0, -1]], np.float32)
    two = restyled(images, Style(0, False, None, 1.0, colours, False, 1.0))
    assert torch.allclose(two[:, 2], torch.full_like(two[:, 2], -1))
    one_tap = np.zeros((3, 3, 3, 3), np.float32)
    one_tap[[0, 1, 2], [1, 2, 0], 1, 1] = 1  # channels take turns
    turned = restyled(images, Style(0, False, one_tap, 0.0, None, False, 1.0))
    whole = torch.corrcoef(torch.stack([turned[:, 0].flatten(), images[:, 1].flatten()]))[0, 1]
    assert whole > 0.95


def test_styles_differ_and_are_drawn_as_often_as_asked() -> None:
    generator = np.random.default_rng(0)
    drawn = [draw_style(Styles(inverted=0.5, two_colours=0.0), generator) for _ in range(400)]
    assert 0.4 < np.mean([style.inverted for style in drawn]) < 0.6
    assert all(style.colours is None for style in drawn)
    assert {style.turns for style in drawn} == {0, 1, 2, 3}


def test_no_strangers_at_all_is_refused(tasks: ResidentTasks) -> None:
    with pytest.raises(FewshiftError, match="1 or more"):
        StrangerTasks(tasks, 0)


def test_a_strangers_task_moves_what_is_shared_and_no_domains_own_start(
    backbone: Backbone, tasks: ResidentTasks
) -> None:
    source = StrangerTasks(tasks, 8)
    learner = PreconditionerLearner(
        backbone, source, settings(tasks_per_update=1), best_meta_gradients(backbone), ALONE
    )
    place = len(tasks.domains)  # tasks take turns: after the domains come the strangers
    before = {name: tensor.clone() for name, tensor in learner.tensors().items()}
    learner.update(place)
    after = learner.tensors()
    moved = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    assert any(name.startswith("common") for name in moved)
    assert {f"roots/{domain}/{site}" for domain in tasks.domains for site in backbone.sites} <= moved
    assert not any(name.startswith("starts/") for name in moved)


def test_pulls_on_a_mean_are_shared_out_as_the_chain_rule_says(
    backbone: Backbone, tasks: ResidentTasks
) -> None:
    learner = PreconditionerLearner(
        backbone, StrangerTasks(tasks, 1), settings(), best_meta_gradients(backbone), ALONE
    )
    site = backbone.sites[0]
    pull = {s: torch.randn(len(v), len(v)) for s, v in learner.start.items()}
    roots = {d: learner.roots[d][site].double().requires_grad_() for d in tasks.domains}
    mean = torch.stack([design_named("gram")(root) for root in roots.values()]).mean(dim=0)
    (mean * pull[site].double()).sum().backward()
    shared = learner._of_domains({"stranger 1": pull})
    for domain in tasks.domains:
        found = learner._root_gradients(learner.roots[domain][site][None], shared[domain][site][None])[0]
        torch.testing.assert_close(found.double(), roots[domain].grad, atol=1e-5, rtol=1e-4)


def test_a_run_with_strangers_gives_a_kit_of_real_domains(
    backbone: Backbone, tasks: ResidentTasks, tmp_path: Path
) -> None:
    source = StrangerTasks(tasks, 2)
    trained = train_preconditioners(
        backbone, source, settings(), tmp_path / "run", watch=Watch(log_every=1, checkpoint_every=1)
    )
    assert trained.preconditioners.domains == tasks.domains
    assert trained.starts is not None
    assert trained.starts.domains == tasks.domains
    assert source.identity() != tasks.identity()
