"""What the learned parts do apart and together."""

from dataclasses import replace

import pytest
import torch
from small_kits import kit_with_starts

from fewshift.core.starts import DomainStarts, shortened, task_start
from fewshift.errors import FewshiftError
from fewshift.methods import METHODS
from fewshift.methods.rates import Share
from fewshift.nets.kit import Kit
from fewshift.types import Labelled, Task

DOMAINS = ("birds", "cars")


@pytest.fixture(scope="module")
def kit() -> Kit:
    return kit_with_starts(DOMAINS)


@pytest.fixture(scope="module")
def task() -> Task:
    torch.manual_seed(2)
    return Task(Labelled(torch.randn(6, 3, 28, 28), torch.tensor([0, 0, 1, 1, 2, 2])), way=3)


def logits(kit: Kit, name: str, task: Task) -> torch.Tensor:
    method = replace(METHODS[name](kit, oracle=False), steps=3)  # type: ignore[type-var]
    return method.adapt(task)(task.support.images)


def moved(kit: Kit) -> Kit:
    assert kit.starts is not None
    values = {site: v + 0.05 * torch.randn_like(v) for site, v in kit.starts.values.items()}
    return kit.with_(starts=DomainStarts(DOMAINS, values))


def test_shared_starts_change_nothing(kit: Kit, task: Task) -> None:
    torch.testing.assert_close(logits(kit, "tsp_start", task), logits(kit, "tsp", task))
    torch.testing.assert_close(logits(kit, "start", task), logits(kit, "gd", task))


def test_tsp_stays_the_paper_s_where_a_kit_has_starts(kit: Kit, task: Task) -> None:
    other = moved(kit)
    assert torch.equal(logits(other, "tsp", task), logits(kit, "tsp", task))
    assert not torch.allclose(logits(other, "tsp_start", task), logits(kit, "tsp_start", task))
    assert not torch.allclose(logits(other, "start", task), logits(other, "tsp_start", task))


def test_a_one_hot_coefficient_starts_at_that_domain_s_values(kit: Kit) -> None:
    starts = moved(kit).starts
    assert starts is not None
    for site, value in starts.blend(torch.tensor([0.0, 1.0])).items():
        torch.testing.assert_close(value, starts.values[site][1])


def test_a_kit_without_starts_names_the_command(kit: Kit) -> None:
    with pytest.raises(FewshiftError, match="train preconditioners --train-starts"):
        METHODS["tsp_start"](kit.with_(starts=None))


def test_no_share_of_the_domains_leaves_the_common_start(kit: Kit, task: Task) -> None:
    other = moved(kit)
    assert other.starts is not None
    none = Share(0.0, 0.0)
    method = replace(METHODS["start"](other, oracle=False), steps=0, start_share=none)  # type: ignore[type-var]
    usual = replace(METHODS["gd"](other, oracle=False), steps=0)  # type: ignore[type-var]
    images = task.support.images
    torch.testing.assert_close(method.adapt(task)(images), usual.adapt(task)(images))
    base = {site: value.mean(dim=0) for site, value in other.starts.values.items()}
    common = other.with_(starts=replace(other.starts, base=base))
    learned = replace(METHODS["start"](common, oracle=False), steps=0, start_share=none)  # type: ignore[type-var]
    assert not torch.allclose(learned.adapt(task)(images), usual.adapt(task)(images))


def test_a_start_takes_its_shares_of_what_is_common_and_of_what_is_the_domains_own(kit: Kit) -> None:
    starts, usual, p = moved(kit).starts, kit.backbone.init(), torch.tensor([0.25, 0.75])
    assert starts is not None
    base = {site: value.mean(dim=0) for site, value in starts.values.items()}
    shared = replace(starts, base=base)
    found = task_start(usual, shared, p, share=0.5, common=0.25)
    for site, blended in shared.blend(p).items():
        wanted = usual[site] + 0.25 * (base[site] - usual[site]) + 0.5 * (blended - base[site])
        torch.testing.assert_close(found[site], wanted)
    alone = task_start(usual, starts, p, share=0.5, common=0.25)  # nothing is common: the own part alone
    torch.testing.assert_close(alone, task_start(usual, starts, p, share=0.5))


def test_tuned_methods_take_the_common_share_that_validation_chose(kit: Kit, task: Task) -> None:
    other, rates = moved(kit), {"seen": [0.3, 0.1], "unseen": [0.3, 0.1]}
    assert other.starts is not None
    base = {site: value.mean(dim=0) for site, value in other.starts.values.items()}
    other = other.with_(starts=replace(other.starts, base=base))
    for name in ("start", "tsp_start"):
        info = {"rates": {name: rates}, "start_shares": {name: {"seen": 0.0, "unseen": 0.0}}}
        less = {**info, "common_shares": {name: {"seen": 0.5, "unseen": 0.5}}}
        whole, half = (logits(other.with_(info=told), f"{name}_tuned", task) for told in (info, less))
        assert not torch.allclose(whole, half)


def test_no_share_of_the_preconditioners_is_plain_descent(kit: Kit, task: Task) -> None:
    other, rates = moved(kit), {"seen": [0.3, 0.1], "unseen": [0.3, 0.1]}
    info = {"rates": {"tsp_start": rates, "start": rates}}
    none = {"tsp_start": {"seen": 0.0, "unseen": 0.0}}
    plain = logits(other.with_(info=info), "start_tuned", task)
    full = logits(other.with_(info=info), "tsp_start_tuned", task)
    torch.testing.assert_close(
        logits(other.with_(info={**info, "preconditioner_shares": none}), "tsp_start_tuned", task), plain
    )
    assert not torch.allclose(full, plain)


def test_the_share_follows_certainty_where_there_is_no_oracle() -> None:
    share = Share(seen=1.0, unseen=0.2, oracle=False, threshold=0.5)
    task = Task(Labelled(torch.zeros(1, 3, 8, 8), torch.zeros(1, dtype=torch.int64)), 1, seen=True)
    sure, unsure = torch.tensor([1.0, 0.0, 0.0]), torch.full((3,), 1 / 3)
    assert share(task, sure) == pytest.approx(1.0, abs=1e-3)
    assert share(task, unsure) == pytest.approx(0.2, abs=1e-3)
    assert replace(share, oracle=True)(task, unsure) == 1.0


def test_shortened_starts_are_exact_at_full_rank_and_near_at_less(kit: Kit) -> None:
    starts, base = moved(kit).starts, kit.backbone.init()
    assert isinstance(starts, DomainStarts)
    whole, half = shortened(starts, base, 1000), shortened(starts, base, 16)
    for site, values in starts.values.items():
        torch.testing.assert_close(whole.values[site], values, atol=1e-5, rtol=0)
        assert (half.values[site] - values).norm() < 0.8 * (values - base[site]).norm()
