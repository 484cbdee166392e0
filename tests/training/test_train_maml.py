"""Proto-MAML's training: what its gradient reaches, that it learns, resumes and lands in a kit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from patterns import WATCH, resnet_backbone, tiny_backbone
from torch import nn

from fewshift.core.proto_head import WEIGHT
from fewshift.core.rules import RULES
from fewshift.errors import FewshiftError
from fewshift.methods import METHODS
from fewshift.nets.adapters import adapters_at
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.fast_weights import fast_net
from fewshift.nets.kit import Kit, load_kit, save_kit
from fewshift.nets.tensor_file import part
from fewshift.presets.maml import paper_maml, quick_maml
from fewshift.training.checkpoint import load_checkpoint
from fewshift.training.distributed import ALONE
from fewshift.training.loop import LAST
from fewshift.training.maml import MamlLearner, MamlSettings, maml_part, meta_learned, task_judge, train_maml
from fewshift.training.tasks import ResidentTasks, task_addresses
from fewshift.types import Episode, Labelled, Task

QUICK = MamlSettings(
    updates=4,
    tasks_per_update=2,
    rate=1e-3,
    fall=1.0,
    inner_rate=0.01,
    steps=2,
    test_steps=2,
    validation_tasks=1,
)


def some_episode(tasks: ResidentTasks, dtype: torch.dtype = torch.float32) -> Episode:
    episode = tasks.episode(task_addresses("maml", 0, tasks.domains, "train", 0, 1, "stratified")[0])
    support = replace(episode.task.support, images=episode.task.support.images.to(dtype))
    query = replace(episode.query, images=episode.query.images.to(dtype))
    return replace(episode, task=replace(episode.task, support=support), query=query)


def test_queries_in_training_are_normalised_as_at_test(tasks: ResidentTasks) -> None:
    net, episode = fast_net(resnet_backbone()), some_episode(tasks)
    weights = net.settled.init()
    params = net.start(weights, episode.task)
    together = net.query_logits(weights, params, episode)
    alone = net.predictor(weights, params, episode.task)(episode.query.images)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("norm", ["support", "running"])
def test_without_steps_it_is_nearest_centroid_by_squared_distance(tasks: ResidentTasks, norm: str) -> None:
    net, episode = fast_net(resnet_backbone(), norm), some_episode(tasks)  # type: ignore[arg-type]
    weights, task = net.settled.init(), episode.task
    logits = net.predictor(weights, net.start(weights, task), task)(task.support.images)
    features = (net.own or net.settled)(weights, task.support.images)
    centres = torch.stack([features[task.support.labels == c].mean(dim=0) for c in range(task.way)])
    wanted = -(features[:, None] - centres[None]).square().sum(dim=-1)
    torch.testing.assert_close(logits.log_softmax(1), wanted.log_softmax(1), rtol=1e-3, atol=1e-3)


def test_first_order_still_reaches_the_weights_through_the_head(tasks: ResidentTasks) -> None:
    """The head at the start is made of features: cut it off, and the gradient is another one."""
    meta, episode = meta_learned(resnet_backbone(), QUICK), some_episode(tasks)
    learned = {name: value.requires_grad_() for name, value in meta.start().items()}
    weights = part(learned, "weights")
    start = meta.net.start(weights, episode.task)
    names = [name for name in start if name not in weights]
    found = torch.autograd.grad(sum(start[name].sum() for name in names), list(weights.values()))
    assert all(bool(gradient.abs().sum() > 0) for gradient in found)


@pytest.mark.parametrize("rule", ["sgd", "meta-sgd"])
def test_the_second_order_gradient_is_exact(tasks: ResidentTasks, rule: str) -> None:
    settings = replace(QUICK, rule=rule, order=2, inner_rate=0.3)
    meta, episode = meta_learned(tiny_backbone(torch.float64), settings), some_episode(tasks, torch.float64)
    first = meta.start()

    def loss_at(reach: float, direction: dict[str, torch.Tensor]) -> float:
        moved = {n: (v + reach * direction[n]).requires_grad_() for n, v in first.items()}
        return float(task_judge(moved, meta)(episode).loss.detach())

    learned = {name: value.clone().requires_grad_() for name, value in first.items()}
    found = torch.autograd.grad(
        task_judge(learned, meta)(episode).loss, list(learned.values()), materialize_grads=True
    )
    generator = torch.Generator().manual_seed(0)
    direction = {n: torch.randn(v.shape, generator=generator, dtype=v.dtype) for n, v in first.items()}
    slope = sum(float((g * direction[n]).sum()) for n, g in zip(learned, found, strict=True))
    assert slope == pytest.approx((loss_at(1e-6, direction) - loss_at(-1e-6, direction)) / 2e-6, rel=1e-4)


def test_the_outer_loss_goes_down(tasks: ResidentTasks) -> None:
    learner = MamlLearner(resnet_backbone(), tasks, QUICK, ALONE)
    before = float(learner.update(0)["loss"])
    for step in range(1, 6):
        learner.update(step)
    assert float(learner.update(0)["loss"]) < before - 0.05


def test_the_rule_moves_at_its_own_rate(backbone: Backbone, tasks: ResidentTasks) -> None:
    """Adam's first step is its rate in every number that has a gradient."""
    settings = replace(QUICK, rule="meta-curvature", rate=1e-3, rule_rate=0.02, weight_decay=0.0)
    learner = MamlLearner(backbone, tasks, settings, ALONE)
    before = learner.meta.rule_tensors({n: t.detach().clone() for n, t in learner.weights.items()})
    kernel = learner.weights["weights/conv.weight"].detach().clone()
    learner.update(0)
    after = learner.meta.rule_tensors({n: t.detach() for n, t in learner.weights.items()})
    moved = (after[f"{WEIGHT}|inputs"] - before[f"{WEIGHT}|inputs"]).abs().max()
    assert float(moved) == pytest.approx(0.02, rel=1e-2)
    shift = (learner.weights["weights/conv.weight"].detach() - kernel).abs().max()
    assert float(shift) == pytest.approx(1e-3, rel=1e-2)


def test_the_rate_falls_in_steps(backbone: Backbone, tasks: ResidentTasks) -> None:
    learner = MamlLearner(backbone, tasks, replace(QUICK, rate=0.1, fall=0.5, fall_every=2), ALONE)
    assert [learner.rate(step) for step in range(5)] == [0.1, 0.1, 0.05, 0.05, 0.025]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_resumes_to_the_same_bits(
    backbone: Backbone, tasks: ResidentTasks, tmp_path: Path, rule: str
) -> None:
    settings = replace(QUICK, rule=rule, validation_tasks=0)
    whole = train_maml(backbone, tasks, settings, tmp_path / "whole", watch=WATCH)
    train_maml(backbone, tasks, replace(settings, updates=2), tmp_path / "half", watch=WATCH)
    half = train_maml(backbone, tasks, settings, tmp_path / "half", watch=WATCH, resume=True)
    assert whole.method == half.method == RULES[rule].method
    ends = [load_checkpoint(tmp_path / which / LAST).tensors for which in ("whole", "half")]
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
    assert all(torch.equal(value, half.part.tensors[name]) for name, value in whole.part.tensors.items())
    start = meta_learned(backbone, settings).start()
    learned = {name.removeprefix("weights/"): value for name, value in ends[0].items()}
    assert any(not torch.equal(value, learned[name]) for name, value in start.items() if name in learned)


def test_another_rule_does_not_resume_it(backbone: Backbone, tasks: ResidentTasks, tmp_path: Path) -> None:
    settings = replace(QUICK, updates=1, validation_tasks=0)
    train_maml(backbone, tasks, settings, tmp_path, watch=WATCH)
    with pytest.raises(FewshiftError, match=r"settings\.rule"):
        train_maml(backbone, tasks, replace(settings, rule="gap"), tmp_path, watch=WATCH, resume=True)


def test_what_was_learned_lands_in_a_kit(tasks: ResidentTasks, tmp_path: Path) -> None:
    home, episode = resnet_backbone(), some_episode(tasks)
    settings = replace(QUICK, rule="gap", updates=1)
    trained = train_maml(home, tasks, settings, tmp_path / "run", watch=WATCH)
    assert trained.outcome.best is not None
    kit = Kit(home, parts={trained.method: trained.part})
    save_kit(kit, tmp_path / "gap.kit")
    loaded = load_kit(tmp_path / "gap.kit")
    wanted = METHODS["gap"](kit).adapt(episode.task)(episode.query.images)
    assert torch.equal(METHODS["gap"](loaded).adapt(episode.task)(episode.query.images), wanted)
    again = METHODS["gap_eigen"](loaded).adapt(episode.task)(episode.query.images)
    torch.testing.assert_close(again, wanted, rtol=1e-2, atol=1e-2)
    with pytest.raises(FewshiftError, match="fewshift train maml --rule alfa"):
        METHODS["alfa"](loaded)


class Headed(nn.Module):
    """A network with a kernel of the name that a task's head once had, as EfficientNet-Lite0 has one."""

    def __init__(self, layers: bool = False) -> None:
        super().__init__()
        kernel = nn.Conv2d(3, 8, 3, 2, bias=False)
        self.head = nn.Sequential(kernel) if layers else kernel
        self.last = nn.Linear(8, 8, bias=False)
        nn.init.eye_(self.last.weight)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.last(torch.relu(self.head(images)).amax(dim=(2, 3)))
        return features


@pytest.mark.parametrize("rule", RULES)
def test_a_networks_own_head_is_no_tasks_head(tasks: ResidentTasks, rule: str) -> None:
    learner = MamlLearner(freeze(Headed()), tasks, replace(QUICK, rule=rule, steps=1), ALONE)
    kernel = learner.weights["weights/head.weight"].detach().clone()
    learner.update(0)
    assert not torch.equal(learner.weights["weights/head.weight"].detach(), kernel)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("layers", [False, True])
def test_a_kit_of_a_network_with_a_head_is_read(rule: str, layers: bool) -> None:
    net, settings = Headed(layers), replace(QUICK, rule=rule)
    backbone = freeze(net, adapters_at(net, ()))
    learned = maml_part(backbone, settings, meta_learned(backbone, settings).start())
    task = Task(Labelled(torch.randn(6, 3, 28, 28), torch.arange(6) % 3), 3)
    method = RULES[rule].method
    adapted = METHODS[method](Kit(backbone, parts={method: learned})).adapt(task)
    assert adapted(task.support.images).shape == (6, 3)


@pytest.mark.parametrize("rule", RULES)
def test_presets_fit_every_rule(rule: str) -> None:
    for domains in (["one"], ["one", "two"]):
        assert paper_maml(rule, domains).settings.updates == 75_000
        assert quick_maml(rule, domains).settings.rule == rule
    assert paper_maml("sgd", ["one"]).settings.steps == 6
    assert paper_maml("sgd", ["one", "two"]).settings.steps == 1


@pytest.mark.parametrize(
    "wrong", [{"rule": "adam"}, {"inner_rate": 0.0}, {"norm": "batch"}, {"steps": 0}, {"fall": 2.0}]
)
def test_settings_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(FewshiftError):
        replace(QUICK, **wrong)  # type: ignore[arg-type]
