"""Self-critical REINFORCE: the gradient, what moves, and that a run goes on to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from patterns import WATCH, resnet_backbone
from torch import Tensor

from fewshift.core.losses import support_loss
from fewshift.core.parallel import Counts
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import FoldedEngine, PlainEngine
from fewshift.nets.graph import GraphEngine
from fewshift.nets.policy import Decision, new_policy
from fewshift.training import journal
from fewshift.training.checkpoint import load_checkpoint
from fewshift.training.distributed import ALONE
from fewshift.training.loop import LAST, LOG
from fewshift.training.policy import (
    PolicyLearner,
    PolicySettings,
    reinforce_loss,
    train_policy,
    tried,
)
from fewshift.training.tasks import ResidentTasks, task_addresses
from fewshift.training.validation import centroid_accuracy
from fewshift.types import Episode


@pytest.fixture(scope="module")
def network() -> Backbone:
    return resnet_backbone()


def policy_settings(**changes: Any) -> PolicySettings:
    usual = {"updates": 3, "tasks_per_update": 2, "rate": 1e-3, "trial_steps": 2}
    return PolicySettings(**{**usual, "validation_tasks": 1, "validation_steps": 2, **changes})


def test_the_gradient_is_reinforces(network: Backbone) -> None:
    """−R ∇ log π(a): by hand, a softmax's logits are pulled by −R (1[a] − π)."""
    logits = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    table = logits.log_softmax(dim=1)
    decision = Decision(("a", "b"), table, table.argmax(dim=1), torch.empty(0))
    sampled, reward = torch.tensor([3, 0]), torch.tensor(0.25, dtype=torch.float64)
    loss = reinforce_loss(decision, sampled, reward, torch.zeros((), dtype=torch.float64))
    (found,) = torch.autograd.grad(loss, logits)
    chosen = torch.nn.functional.one_hot(sampled, 4).double()
    torch.testing.assert_close(found, -0.25 * (chosen - table.detach().exp()))


def test_it_learns_which_configuration_pays(
    network: Backbone, tasks: ResidentTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a made-up world in which accuracy is the share of sites with three adapters."""
    learner = PolicyLearner(network, tasks, policy_settings(rate=0.05, temperature=1.0), ALONE)

    def share(episode: Episode, counts: Counts) -> Tensor:
        return torch.tensor(sum(count == 3 for count in counts.values()) / len(counts))

    monkeypatch.setattr(learner, "_tried", share)
    before = float(learner.update(0)["accuracy"])
    for step in range(1, 12):
        last = learner.update(step)
    assert float(last["accuracy"]) > before + 0.2


def episode_of(tasks: ResidentTasks) -> Episode:
    return tasks.episode(task_addresses("policy", 0, tasks.domains, "train", 0, 1, "stratified")[0])


def test_a_trial_of_nothing_is_the_frozen_network(network: Backbone, tasks: ResidentTasks) -> None:
    none = dict.fromkeys(network.sites[:-1], 0)
    found = tried(FoldedEngine(network), episode_of(tasks), none, (0.5, 0.0), 3)
    assert found == centroid_accuracy(network.embed, episode_of(tasks))


def test_a_trial_moves_the_adapters_that_there_are_and_is_the_same_on_every_engine(
    network: Backbone, tasks: ResidentTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {site: place % 4 for place, site in enumerate(network.sites[:-1])}
    features = lambda embed, episode: embed(episode.query.images)  # noqa: E731
    monkeypatch.setattr("fewshift.training.validation.centroid_accuracy", features)
    engines = (PlainEngine(network), FoldedEngine(network), GraphEngine(network, captured=False))
    plain, folded, graph = (tried(engine, episode_of(tasks), counts, (0.5, 0.0), 3) for engine in engines)
    torch.testing.assert_close(folded, plain, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(graph, plain, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(plain, network.embed(episode_of(tasks).query.images), atol=1e-2)
    learner = PolicyLearner(network, tasks, policy_settings(tasks_per_update=1), ALONE)
    none = learner._tried(episode_of(tasks), dict.fromkeys(counts, 0))  # nor does the last map move
    torch.testing.assert_close(none, network.embed(episode_of(tasks).query.images))


def test_its_own_adapters_learn_where_sampling_brings_nothing(
    network: Backbone, tasks: ResidentTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = PolicyLearner(network, tasks, policy_settings(tasks_per_update=1), ALONE)
    monkeypatch.setattr(learner, "_tried", lambda episode, counts: torch.tensor(0.5))
    address = task_addresses("policy", 0, tasks.domains, "train", 0, 1, "stratified")[0]
    (judged,) = learner.judged([address])
    assert judged.numbers["reward"] == 0
    episode = tasks.episode(address)
    decision = learner.policy(network, episode.task)
    own = support_loss(decision.features, episode.task.support.labels, episode.task.way)
    torch.testing.assert_close(judged.loss, own)


def test_a_run_in_two_parts_is_the_run_in_one(
    network: Backbone, tasks: ResidentTasks, tmp_path: Path
) -> None:
    whole = train_policy(network, tasks, policy_settings(), tmp_path / "whole", watch=WATCH)
    train_policy(network, tasks, policy_settings(updates=1), tmp_path / "parts", watch=WATCH)
    parts = train_policy(network, tasks, policy_settings(), tmp_path / "parts", watch=WATCH, resume=True)
    one, two = (load_checkpoint(tmp_path / run / LAST) for run in ("whole", "parts"))
    assert one.step == two.step == 3
    assert one.tensors.keys() == two.tensors.keys()
    assert all(torch.equal(one.tensors[name], two.tensors[name]) for name in one.tensors)
    fresh = new_policy(network, 10.0, seed=0).state_dict()
    last = {k.removeprefix("net/"): v for k, v in one.tensors.items() if k.startswith("net/")}
    assert any(not torch.equal(last[name], fresh[name]) for name in fresh)
    lines = list(journal.read(tmp_path / "whole" / LOG))
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3]
    assert {"reward", "accuracy", "sampled_accuracy", "entropy", "adapters_per_site"} <= lines[0].keys()
    assert 0 <= lines[0]["adapters_per_site"] <= 3
    assert parts.outcome.best is not None
    assert whole.policy.counts(network, tasks.episode(_first(tasks)).task).keys() == set(network.sites[:-1])


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"updates": 0}, {"rate": 0.0}, {"temperature": -1.0}):
        with pytest.raises(FewshiftError, match="train policy"):
            policy_settings(**wrong)


def _first(tasks: ResidentTasks) -> Any:
    return task_addresses("policy", 0, tasks.domains, "train", 0, 1, "stratified")[0]
