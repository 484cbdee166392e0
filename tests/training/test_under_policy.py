"""Algorithm 1 under a policy: its meta-gradient is that of explicit copies, and its run resumes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from patterns import WATCH, preconditioner_settings, resnet_backbone, some_preconditioners
from torch import Tensor

from fewshift.core.descent import gradients
from fewshift.core.losses import inner_objective, outer_objective
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.policy import AdapterPolicy, new_policy
from fewshift.training.checkpoint import load_checkpoint
from fewshift.training.loop import LAST
from fewshift.training.metagradients import FoldedOneByOne, Job, OneByOne
from fewshift.training.preconditioners import train_preconditioners
from fewshift.training.settings import InnerLevel
from fewshift.training.tasks import ResidentTasks, task_addresses
from fewshift.training.under_policy import ConfiguredEngine, UnderPolicy
from fewshift.types import Episode, Labelled, Task, TaskParams


@pytest.fixture(scope="module")
def network() -> Backbone:
    return resnet_backbone().to(dtype=torch.float64)


@pytest.fixture(scope="module")
def policy(network: Backbone) -> AdapterPolicy:
    return new_policy(network, 1.0, seed=3).double().requires_grad_(False)


@pytest.fixture(scope="module")
def episode(tasks: ResidentTasks) -> Episode:
    found = tasks.episode(task_addresses("any", 0, tasks.domains, "train", 0, 1, "stratified")[0])

    def double(part: Labelled) -> Labelled:
        return Labelled(part.images.double(), part.labels)

    task = Task(double(found.task.support), found.task.way)
    return Episode(task, double(found.query), found.address, found.class_ids)


def test_the_gradient_is_that_of_explicit_copies_by_autograd(
    network: Backbone, policy: AdapterPolicy, episode: Episode
) -> None:
    """Second order: three steps of every copy unrolled, differentiated by P."""
    counts = policy.counts(network, episode.task)
    assert {0, 1} < set(counts.values()) or {0, 2} < set(counts.values())
    matrices = some_preconditioners(network, ("red", "grey")).of("red")
    leaves = {site: matrix.clone().requires_grad_() for site, matrix in matrices.items()}
    start, rate, steps = network.init(), 0.1, 2
    copies = {f"{s} {j}": v for s, v in start.items() for j in range(counts.get(s, 1))}

    def averaged(params: TaskParams) -> TaskParams:
        found: dict[str, list[Tensor]] = {}
        for name, value in params.items():
            found.setdefault(name.split()[0], []).append(value)
        return {site: torch.stack(values).mean(dim=0) for site, values in found.items()}

    inside, outside = inner_objective(network, episode.task), outer_objective(network, episode)
    for _ in range(steps):
        params = {n: v if v.requires_grad else v.clone().requires_grad_() for n, v in copies.items()}
        _, pulls = gradients(lambda p: inside(averaged(p)), params, create_graph=True)
        copies = {n: params[n] - rate * leaves[n.split()[0]] @ pulls[n] for n in params}
    expected = torch.autograd.grad(outside(averaged(copies)), list(leaves.values()), materialize_grads=True)

    job = Job(episode, matrices, start)
    under = UnderPolicy(network, policy, OneByOne(network))
    (found,) = under([job], InnerLevel(rate=rate, steps=steps, order=2), False)
    for site, gradient in zip(leaves, expected, strict=True):
        torch.testing.assert_close(found.preconditioner[site], gradient, rtol=1e-7, atol=1e-12)
    off = next(site for site, count in counts.items() if count == 0)
    assert not found.preconditioner[off].any()

    first = InnerLevel(rate=rate, steps=steps)
    (plain,) = under([job], first, False)
    (folded,) = UnderPolicy(network, policy, FoldedOneByOne(network))([job], first, False)
    for site in leaves:
        torch.testing.assert_close(folded.preconditioner[site], plain.preconditioner[site])


def test_a_run_in_two_parts_is_the_run_in_one(tasks: ResidentTasks, tmp_path: Path) -> None:
    network = resnet_backbone()
    policy = new_policy(network, 1.0, seed=3).requires_grad_(False)
    settings = [preconditioner_settings(updates=n) for n in (2, 1)]
    whole = tmp_path / "whole"
    trained = train_preconditioners(network, tasks, settings[0], whole, watch=WATCH, policy=policy)
    for wanted, resume in ((settings[1], False), (settings[0], True)):
        folder = tmp_path / "parts"
        train_preconditioners(network, tasks, wanted, folder, watch=WATCH, resume=resume, policy=policy)
    one, two = (load_checkpoint(tmp_path / run / LAST) for run in ("whole", "parts"))
    assert one.step == two.step == 2
    assert all(torch.equal(one.tensors[name], two.tensors[name]) for name in one.tensors)
    assert trained.preconditioners.domains == ("red", "grey")
    other = new_policy(network, 1.0, seed=4).requires_grad_(False)
    with pytest.raises(FewshiftError, match="policy"):
        train_preconditioners(network, tasks, settings[0], whole, watch=WATCH, resume=True, policy=other)


def test_starting_values_are_not_learned_beside_it(
    network: Backbone, policy: AdapterPolicy, tasks: ResidentTasks, tmp_path: Path
) -> None:
    settings = preconditioner_settings(train_starts=True)
    with pytest.raises(FewshiftError, match="leave one of the two out"):
        train_preconditioners(network, tasks, settings, tmp_path, watch=WATCH, policy=policy)


def test_its_engine_keeps_what_the_policy_freezes(
    network: Backbone, policy: AdapterPolicy, episode: Episode
) -> None:
    from fewshift.core.updates import Adadelta, Preconditioned
    from fewshift.nets.engine import FoldedEngine

    engine = ConfiguredEngine(FoldedEngine(network), policy)
    rates = dict.fromkeys(network.sites, 0.1)
    counts = policy.counts(network, episode.task)
    found = engine.adapt(episode.task, network.init(), Preconditioned(None, rates), 1).params
    assert list(found) == [site for site in network.sites if counts.get(site, 1)]
    with pytest.raises(FewshiftError, match="preconditioned descent only"):
        engine.adapt(episode.task, network.init(), Adadelta(rates), 1)
