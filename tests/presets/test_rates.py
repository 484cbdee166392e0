"""Rates come from validation tasks, by a search one can follow by hand."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fewshift.core.precond import initial_preconditioners
from fewshift.core.starts import DomainStarts
from fewshift.errors import FewshiftError
from fewshift.methods import METHODS
from fewshift.methods.rates import ByCertainty, BySeen, Pair, certainty
from fewshift.nets.backbone import freeze
from fewshift.nets.choice import choose_engine
from fewshift.nets.kit import Kit
from fewshift.nets.resnet import ResNet18
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.presets.rates import (
    OF_DOMAINS,
    Grid,
    Point,
    begun_at,
    best_threshold,
    choose_rates,
    tune,
    unchosen,
)
from fewshift.types import Address, Episode, Labelled, Task


def test_the_search_climbs_one_axis_at_a_time() -> None:
    def accuracy_of(point: Point) -> float:
        return 1 - abs(point.adapters - 0.25) - abs(point.last - 3.0) / 10 - (point.start - 0.5) ** 2

    tuned = tune(accuracy_of, Point(0.05, 0.3), Grid())
    assert tuned.best == Point(0.25, 3.0, 0.5)
    assert tuned.tried[Point(0.05, 0.3)] == pytest.approx(accuracy_of(Point(0.05, 0.3)))


def test_the_published_pair_stays_where_nothing_is_better() -> None:
    assert tune(lambda point: 0.5, Point(0.05, 0.3), Grid()).best == Point(0.05, 0.3)


def test_the_threshold_parts_certain_from_uncertain_tasks() -> None:
    assert best_threshold([0.9, 0.95, 0.8], [0.2, 0.6]) == pytest.approx(0.7)
    assert certainty(torch.tensor([1.0, 0.0, 0.0])) == pytest.approx(1)
    assert certainty(torch.full((4,), 0.25)) == pytest.approx(0, abs=1e-6)


def test_a_rate_of_nothing_on_one_side_does_not_silence_the_other() -> None:
    seen, unseen = Pair(0.0, 0.4), Pair(0.25, 0.1)
    rule = ByCertainty(seen, unseen)
    task = Task(Labelled(torch.zeros(2, 3, 8, 8), torch.arange(2)), 2)
    unsure, sure = torch.full((4,), 0.25), torch.tensor([1.0, 0.0, 0.0, 0.0])
    assert rule(task, unsure).rates == pytest.approx((0.25, 0.1), abs=1e-3)
    assert rule(task, sure).rates == pytest.approx((0.0, 0.4), abs=1e-3)
    between = ByCertainty(seen, unseen, threshold=0.0)(task, unsure).rates  # at the threshold
    assert between == pytest.approx((0.125, 0.2))


def test_what_validation_chose_with_another_p_is_forgotten(kit: Kit) -> None:
    alone = ("gd", "tsa", "white")
    rates = {name: {"seen": [1.0, 1.0], "unseen": [1.0, 1.0]} for name in (*alone, *OF_DOMAINS)}
    told = {"backbone": {"width": 4}, "preconditioners": {"updates": 3}}
    chosen = {"certainty_threshold": 0.3, "validation": {"scale": 6.0}, "start_shares": {"tsp_start": {}}}
    chosen["rates_chosen_on"] = {name: {"tasks": 8} for name in rates}
    half = {"seen": 0.0, "unseen": 0.5}
    chosen["whitening_shares"] = {"white": half, "start_white": half}
    whole = replace(kit, info={**told, **chosen, "rates": rates, "classifier": {"width": 4}})
    assert unchosen(whole, ("a", "b")) == {
        **told,
        "rates": {name: rates[name] for name in alone},
        "rates_chosen_on": {name: {"tasks": 8} for name in alone},
        "whitening_shares": {"white": half},
    }
    assert unchosen(whole, ("a", "c")) == told  # "seen" means something else


@pytest.fixture(scope="module")
def kit() -> Kit:
    torch.manual_seed(0)
    backbone = freeze(ResNet18(width=4))
    sizes = {site: len(value) for site, value in backbone.init().items()}
    return Kit(
        backbone,
        preconditioners=initial_preconditioners(("a", "b"), sizes),
        classifier=DatasetClassifier(2, width=4).eval().requires_grad_(False),
    )


def lazy(index: int) -> Callable[[], Episode]:
    def read() -> Episode:
        generator = torch.Generator().manual_seed(index)
        labels = torch.arange(6) % 2
        images = torch.randn(6, 3, 28, 28, generator=generator) + labels[:, None, None, None]
        some = Labelled(images, labels)
        return Episode(Task(some, 2), some, Address(0, "a", "valid", index), (0, 1))

    return read


def test_chosen_rates_go_into_the_kit_and_into_the_tuned_methods(kit: Kit) -> None:
    grid = Grid(adapters=(0.05, 0.1), last=(0.3,), rounds=1)
    engine = choose_engine(kit.backbone)
    chosen = choose_rates(kit, engine, ["gd", "tsp", "pa"], [lazy(0)], [lazy(1)], grid)
    tuned = chosen.into(kit)
    for name in ("gd", "tsp"):
        pairs = tuned.info["rates"][name]
        rule = METHODS[f"{name}_tuned"](tuned).rates  # type: ignore[attr-defined]
        assert rule == BySeen(Pair(*pairs["seen"]), Pair(*pairs["unseen"]))
        assert len(chosen.tried[name]["seen"]) == 2 + (pairs["seen"][0] not in (0.05, 0.1))
    assert 0 <= tuned.info["certainty_threshold"] <= 1
    assert "rates" not in kit.info


def test_starts_and_preconditioners_are_searched_over_only_where_a_method_has_them(kit: Kit) -> None:
    start = kit.backbone.init()
    starts = DomainStarts(("a", "b"), {site: value.expand(2, -1, -1) for site, value in start.items()})
    whole = kit.with_(starts=starts)
    grid = Grid(adapters=(0.05,), last=(0.3,), rounds=1)
    engine = choose_engine(kit.backbone)
    chosen = choose_rates(whole, engine, ["tsp", "start", "tsp_start"], [lazy(0)], [lazy(1)], grid)
    info = chosen.into(whole).info
    assert set(info["start_shares"]) == {"start", "tsp_start"}
    assert set(info["preconditioner_shares"]) == {"tsp_start"}
    tried = {name: {tuple(row[2:4]) for row in chosen.tried[name]["seen"]} for name in chosen.tried}
    assert tried["tsp"] == {(1.0, 1.0)}
    assert all(matrix == 1.0 for _, matrix in tried["start"])
    assert any(matrix != 1.0 for _, matrix in tried["tsp_start"])
    assert {row[4] for row in chosen.tried["tsp_start"]["seen"]} == {1.0}  # the domains share nothing
    common = kit.with_(starts=replace(starts, base={site: value + 1 for site, value in start.items()}))
    searched = choose_rates(common, engine, ["start"], [lazy(0)], [lazy(1)], grid)
    assert {row[4] for row in searched.tried["start"]["seen"]} > {1.0}
    assert set(searched.into(common).info["common_shares"]["start"]) == {"seen", "unseen"}


def test_how_much_inputs_are_whitened_is_searched_where_they_are(kit: Kit) -> None:
    grid = Grid(adapters=(0.05,), last=(0.3,), rounds=1)
    chosen = choose_rates(kit, choose_engine(kit.backbone), ["gd", "white"], [lazy(0)], [lazy(1)], grid)
    tried = {name: {row[5] for row in chosen.tried[name]["seen"]} for name in chosen.tried}
    assert tried["gd"] == {1.0}
    assert {0.5, 1.0} <= tried["white"]
    info = chosen.into(kit).info
    assert set(info["whitening_shares"]) == {"white"}
    share = METHODS["white_tuned"](kit.with_(info=info)).input_share  # type: ignore[attr-defined]
    assert (share.seen, share.unseen) == tuple(info["whitening_shares"]["white"].values())


def test_a_search_can_begin_where_another_kit_ended(kit: Kit) -> None:
    chosen = {
        "gd": {"seen": [0.5, 0.1], "unseen": [1.0, 0.3]},
        "tsp": {"seen": [2.0, 0.1], "unseen": [2.0, 0.1]},
    }
    other = replace(kit, info={"rates": chosen})
    own = {"tsp": {"seen": [0.1, 0.1], "unseen": [0.1, 0.1]}}
    begun = begun_at(other, replace(kit, info={"rates": own}))
    assert begun.info["rates"] == {"gd": chosen["gd"], "tsp": own["tsp"]}
    engine = choose_engine(kit.backbone)
    nothing_else = Grid(adapters=(0.5, 1.0), last=(0.1, 0.3), rounds=0)
    found = choose_rates(begun, engine, ["gd"], [lazy(0)], [lazy(1)], nothing_else)
    assert found.pairs == {"gd": chosen["gd"]}


def test_a_suite_without_validation_tasks_is_refused(kit: Kit) -> None:
    with pytest.raises(FewshiftError, match="valid_unseen"):
        choose_rates(kit, choose_engine(kit.backbone), ["gd"], [lazy(0)], [])


def test_methods_without_rates_are_refused(kit: Kit) -> None:
    def unread() -> Episode:
        raise AssertionError("a search began")

    engine = choose_engine(kit.backbone)
    for methods, said in ((["gd", "ncc"], "ncc has no rates"), ([], "no method"), (["gd", "ta2"], "policy")):
        with pytest.raises(FewshiftError, match=said):
            choose_rates(kit, engine, methods, [unread], [unread])
