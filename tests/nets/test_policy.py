"""The policy over the number of adapters a site."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewshift.core.parallel import collapsed_adadelta, collapsed_descent
from fewshift.errors import FewshiftError
from fewshift.nets.adapters import adapters_at
from fewshift.nets.backbone import Backbone, copied, freeze
from fewshift.nets.engine import FoldedEngine, PlainEngine
from fewshift.nets.graph import GraphEngine
from fewshift.nets.kit import Kit, load_kit, save_kit
from fewshift.nets.policy import (
    MOST,
    PART,
    Decision,
    SitePolicy,
    configured,
    new_policy,
    policy_of,
    policy_part,
)
from fewshift.nets.resnet import ResNet18
from fewshift.types import Labelled, Task


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(1)
    net = ResNet18(width=2)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.8, 1.2)
    return freeze(net).to(dtype=torch.float64)


@pytest.fixture(scope="module")
def task() -> Task:
    images = torch.randn(9, 3, 21, 21, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return Task(Labelled(images, torch.arange(9) % 3), 3)


def test_without_adapters_its_pass_is_the_backbones(backbone: Backbone, task: Task) -> None:
    policy = new_policy(backbone, 10.0, seed=0).double()
    with torch.no_grad():
        for site in policy.at:
            site.adapters.zero_()  # type: ignore[union-attr, operator]
            site.biases.zero_()  # type: ignore[union-attr, operator]
        features = policy(backbone, task).features
    torch.testing.assert_close(features, backbone.embed(task.support.images))


@pytest.mark.parametrize("count", range(MOST + 1))
def test_its_own_adapters_are_averaged(count: int) -> None:
    torch.manual_seed(0)
    site = SitePolicy(4, 6, stride=2).double()
    x = torch.randn(3, 4, 7, 7, dtype=torch.float64)
    each = [F.conv2d(x, a[..., None, None], b, 2) for a, b in zip(site.adapters, site.biases, strict=True)]
    expected = sum(each[:count], torch.zeros_like(each[0])) / max(count, 1)
    torch.testing.assert_close(site(x, torch.tensor(count)), expected)


def test_a_choice_is_greedy_and_does_not_know_the_classes_numbers(backbone: Backbone, task: Task) -> None:
    policy = new_policy(backbone, 1.0, seed=3).double()
    decision = policy(backbone, task)
    assert decision.counts() == policy.counts(backbone, task)
    assert list(decision.counts()) == list(backbone.sites[:-1])
    assert len(set(decision.counts().values())) > 1
    torch.testing.assert_close(decision.log_probabilities.exp().sum(dim=1), torch.ones(16).double())
    renamed = replace(task, support=Labelled(task.support.images, (task.support.labels + 1) % 3))
    torch.testing.assert_close(policy(backbone, renamed).log_probabilities, decision.log_probabilities)


def test_the_pass_is_the_networks_own_with_the_greedy_adapters_beside_each_convolution(
    backbone: Backbone, task: Task
) -> None:
    """The network as it is written down; every adapted convolution is asked by a hook."""
    policy, net = new_policy(backbone, 2.0, seed=3).double(), copied(backbone.net)
    labels, chosen = task.support.labels, []

    def choose(site: SitePolicy, x: Tensor) -> int:
        means = torch.stack([x[labels == c].mean(dim=(0, 2, 3)) for c in range(task.way)])
        inside = means @ site.squeeze.weight.T + site.squeeze.bias
        spread = (inside.var(dim=0, correction=0) + site.norm.eps).sqrt()
        inside = (inside - inside.mean(dim=0)) / spread * site.norm.weight + site.norm.bias
        scores = (inside.relu() @ site.choose.weight.T + site.choose.bias).mean(dim=0)
        chosen.append(F.log_softmax(scores / 2, dim=0))
        return int(chosen[-1].argmax())

    for name in policy.sites:

        def beside(conv: nn.Module, given: tuple[Tensor], out: Tensor, name: str = name) -> Tensor:
            site, (x,) = policy.of(name), given
            each = zip(site.adapters, site.biases, strict=True)
            found = [F.conv2d(x, matrix[..., None, None], bias, site.stride) for matrix, bias in each]
            count = choose(site, x)
            return out + torch.stack(found[:count]).mean(dim=0) if count else out

        net.get_submodule(name).register_forward_hook(beside)
    decision = policy(backbone, task)
    assert len(set(decision.counts().values())) > 2
    torch.testing.assert_close(decision.features, net(task.support.images))
    torch.testing.assert_close(decision.log_probabilities, torch.stack(chosen))


def test_the_temperature_only_flattens(backbone: Backbone, task: Task) -> None:
    sharp, flat = new_policy(backbone, 1.0, seed=3).double(), new_policy(backbone, 10.0, seed=3).double()
    first = [p(backbone, task).log_probabilities[0] for p in (sharp, flat)]
    torch.testing.assert_close(F.log_softmax(first[0] / 10, dim=0), first[1])


def test_draws_follow_the_probabilities() -> None:
    table = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]]).log()
    decision = Decision(("a", "b"), table, table.argmax(dim=1), torch.empty(0))
    assert decision.sampled(torch.tensor([0.0, 0.75])).tolist() == [0, 1]
    assert decision.sampled(torch.tensor([0.5, 0.95])).tolist() == [2, 3]
    uniforms = torch.rand(2, 4000, generator=torch.Generator().manual_seed(0))
    drawn = torch.stack([decision.sampled(u) for u in uniforms.T])
    for site in range(2):
        shares = torch.bincount(drawn[:, site], minlength=4) / len(drawn)
        torch.testing.assert_close(shares, table[site].exp(), atol=0.03, rtol=0)
    choices = torch.tensor([2, 0])
    torch.testing.assert_close(decision.log_probability(choices), torch.tensor(0.3 * 0.7).log())


def test_engines_agree_on_a_configuration(backbone: Backbone, task: Task) -> None:
    counts = dict.fromkeys(backbone.sites[:-1], 1) | dict.fromkeys(backbone.sites[:3], 0)
    counts |= {backbone.sites[5]: 3, backbone.sites[7]: 0, backbone.sites[15]: 2}
    rates = dict.fromkeys(backbone.sites, 0.3)
    start = backbone.init()
    engines = (PlainEngine(backbone), FoldedEngine(backbone), GraphEngine(backbone, captured=False))
    for make in ("adadelta", "descent"):
        losses, features = [], []
        for engine in engines:
            begin = configured(engine, start, counts)
            assert len(begin) == (17 if engine.name == "graph" else 13)
            own = {site: rates[site] for site in begin}
            rule = (
                collapsed_adadelta(begin, own, counts)
                if make == "adadelta"
                else collapsed_descent(None, own, counts)
            )
            found = engine.adapt(task, begin, rule, 4)
            losses.append(found.losses)
            features.append(engine.embed(found.params, task.support.images))
        for other in (1, 2):
            torch.testing.assert_close(losses[other], losses[0], rtol=1e-6, atol=1e-9)
            torch.testing.assert_close(features[other], features[0], rtol=1e-6, atol=1e-8)


def test_a_kit_keeps_it(backbone: Backbone, task: Task, tmp_path: Path) -> None:
    policy = new_policy(backbone, 2.5, seed=3).double()
    kit = Kit(backbone, parts={PART: policy_part(policy)})
    save_kit(kit, tmp_path / "small.kit")
    again = policy_of(load_kit(tmp_path / "small.kit"))
    assert again.temperature == 2.5
    assert torch.equal(again(backbone, task).log_probabilities, policy(backbone, task).log_probabilities)
    assert not any(weight.requires_grad for weight in again.parameters())


def test_a_policy_of_another_width_and_none_at_all_are_said_in_a_sentence(backbone: Backbone) -> None:
    other = new_policy(freeze(ResNet18(width=3)), 10.0, seed=0)
    with pytest.raises(FewshiftError, match="policy"):
        policy_of(Kit(backbone, parts={PART: policy_part(other)}))
    with pytest.raises(FewshiftError, match="run fewshift train policy"):
        policy_of(Kit(backbone))


def test_a_policy_is_for_all_convolutions(backbone: Backbone) -> None:
    some = replace(backbone, adapters=adapters_at(backbone.net, ("layer4.1.conv2",)))
    with pytest.raises(FewshiftError, match="beside every 3x3 convolution"):
        new_policy(some, temperature=10.0, seed=0)
