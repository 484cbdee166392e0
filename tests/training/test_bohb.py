"""The search: how trials are shared out, that it finds what is good, and that runs are its trials."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from patterns import PROTOCOL, WATCH, backbone_settings

from fewshift.data.resident import ResidentDomain
from fewshift.errors import FewshiftError
from fewshift.methods import METHODS
from fewshift.nets.kit import Kit, load_kit, save_kit
from fewshift.training.augment import Augmentation
from fewshift.training.bohb import SPACE, settings_at, train_bohb, values_at
from fewshift.training.checkpoint import Best, Checkpoint, save_checkpoint
from fewshift.training.loop import LAST, Diverged
from fewshift.training.search import (
    AT_RANDOM,
    CANDIDATES,
    ETA,
    GOOD,
    WIDER,
    Point,
    log_density,
    proposal,
    rungs,
    search,
    widths,
)
from fewshift.training.settings import BackboneSettings


def bowl(number: int, point: Point, share: float) -> float:
    """Best at 0.7 in every direction; short runs see it blurred."""
    blur = (1 - share) * 0.02 * np.sin(37.0 * number)
    return float(-sum((x - 0.7) ** 2 for x in point) + blur)


def test_a_third_goes_on_for_three_times_as_long() -> None:
    assert [count for count, _ in rungs(27)] == [27, 9, 3]
    assert [count for count, _ in rungs(2)] == [2, 1, 1]
    found = search(bowl, 9, 2)
    assert [round(t.share, 3) for t in found.trials] == [0.111] * 9 + [0.333] * 3 + [1.0]
    assert found.best == found.trials[-1]
    best = sorted(found.trials[:9], key=lambda t: -t.score)[:3]
    assert [t.number for t in found.trials[9:12]] == [t.number for t in best]


def test_the_model_proposes_better_points_than_chance() -> None:
    """Over several searches, so that it is no luck."""
    late, early = [], []
    for seed in range(10):
        trials = search(bowl, 60, 3, seed).trials[:60]
        early += [t.score for t in trials[:5]]
        late += [t.score for t in trials[-30:]]
    assert np.mean(late) > np.mean(early) + 0.1


def test_the_same_seed_searches_the_same_points_inside_the_cube() -> None:
    first, again = search(bowl, 30, 4, 5), search(bowl, 30, 4, 5)
    assert first == again
    assert first != search(bowl, 30, 4, 6)
    assert all(0 <= x <= 1 for trial in first.trials for x in trial.point)


def test_proposals_without_scores_are_drawn_evenly() -> None:
    points = np.array([proposal(0, number, 2, []) for number in range(300)])
    assert abs(points.mean() - 0.5) < 0.05


def test_the_density_is_one_in_all() -> None:
    points = np.array([[0.2], [0.3], [0.8]])
    places = np.linspace(-2, 3, 2001)[:, None]
    assert np.exp(log_density(places, points)).sum() * 5 / 2000 == pytest.approx(1, rel=1e-3)


def test_kernels_are_as_wide_as_the_normal_reference_rule_says() -> None:
    points = np.random.default_rng(0).uniform(size=(9, 3))
    wanted = [1.06 * np.std(points[:, j]) * 9 ** (-1 / 7) for j in range(3)]
    np.testing.assert_allclose(widths(points), wanted)
    assert widths(np.full((4, 2), 0.3)).tolist() == [1e-3, 1e-3]  # statsmodels has no width for equal points


def test_the_model_has_the_papers_numbers() -> None:
    """Falkner et al. 2018: the best 15 %, 64 candidates, kernels thrice as wide, a third drawn at random."""
    assert (ETA, GOOD, CANDIDATES, WIDER, AT_RANDOM) == (3, 0.15, 64, 3.0, 1 / 3)


def test_nothing_to_search() -> None:
    with pytest.raises(FewshiftError, match="0 configurations"):
        search(bowl, 0, 2)


def test_points_are_settings() -> None:
    base = replace(backbone_settings(updates=90), augmentation=Augmentation(pad=4))
    low, high = (settings_at((edge,) * len(SPACE), base, 1 / 3) for edge in (0.0, 1.0))
    assert (low.rate, low.updates, low.period) == (pytest.approx(0.003), 30, 30)
    assert (high.rate, high.augmentation.pad, high.augmentation.flip) == (pytest.approx(0.3), 8, True)
    assert not low.augmentation.flip
    middle = values_at((0.5,) * len(SPACE))
    assert middle["rate"] == pytest.approx(0.03)


@pytest.mark.slow
def test_every_trial_is_a_run_that_is_not_repeated(
    residents: dict[str, ResidentDomain], tmp_path: Path
) -> None:
    base = backbone_settings(updates=9, validation_tasks=1)
    options = {"configurations": 3, "protocol": PROTOCOL, "watch": WATCH}
    found = train_bohb(residents, base, tmp_path / "runs", **options)  # type: ignore[arg-type]
    assert [t.share for t in found.searched.trials] == pytest.approx([1 / 9, 1 / 9, 1 / 9, 1 / 3, 1])
    assert sorted(p.name for p in (tmp_path / "runs").iterdir())[0] == "000-1"
    with pytest.raises(FewshiftError, match="already holds a run"):
        train_bohb(residents, base, tmp_path / "runs", **options)  # type: ignore[arg-type]
    again = train_bohb(residents, base, tmp_path / "runs", resume=True, **options)  # type: ignore[arg-type]
    assert again.searched == found.searched
    home = found.trained.backbone
    kit = Kit(home, parts={"bohb": found.part()})
    save_kit(kit, tmp_path / "bohb.kit")
    assert METHODS["bohb"](load_kit(tmp_path / "bohb.kit")).backbone.fingerprint() == home.fingerprint()  # type: ignore[attr-defined]


def test_shares_of_so_few_updates_that_they_are_equal_are_one_run(
    residents: dict[str, ResidentDomain], tmp_path: Path
) -> None:
    base = backbone_settings(updates=3, validation_tasks=1)
    found = train_bohb(residents, base, tmp_path, configurations=3, protocol=PROTOCOL, watch=WATCH)
    short, third = found.searched.trials[:3], found.searched.trials[3]
    assert third.score == short[third.number].score
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.endswith("-1")) == ["000-1", "001-1", "002-1"]
    assert found.trained.outcome.step == 3


def test_a_run_that_diverges_scores_nothing(
    residents: dict[str, ResidentDomain], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(*_: object, **__: object) -> None:
        raise Diverged("the loss is not finite at step 3: start again with a lower rate")

    monkeypatch.setattr("fewshift.training.bohb.train_backbone", diverge)
    with pytest.raises(FewshiftError, match="every configuration diverged"):
        train_bohb(residents, backbone_settings(), tmp_path, configurations=2)


def test_another_problem_is_not_taken_for_divergence_whatever_it_says(
    residents: dict[str, ResidentDomain], tmp_path: Path
) -> None:
    folder = tmp_path / "not finite"
    (folder / "000-1").mkdir(parents=True)
    save_checkpoint(folder / "000-1" / LAST, Checkpoint("backbone", {}, 1, {}))
    with pytest.raises(FewshiftError, match="already holds a run"):
        train_bohb(residents, backbone_settings(updates=9), folder, configurations=1, protocol=PROTOCOL)


def test_a_configuration_that_diverges_at_the_end_leaves_nothing_smaller_behind(
    residents: dict[str, ResidentDomain], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge_later(_: object, settings: BackboneSettings, *__: object, **___: object) -> object:
        if settings.updates == 9:
            raise Diverged("the loss is not finite at step 9: start again with a lower rate")
        return SimpleNamespace(outcome=SimpleNamespace(best=Best(settings.updates, 0.5)))

    monkeypatch.setattr("fewshift.training.bohb.train_backbone", diverge_later)
    with pytest.raises(FewshiftError, match="every configuration diverged"):
        train_bohb(residents, backbone_settings(updates=9), tmp_path, configurations=3)


def test_a_search_without_validation_is_refused(residents: dict[str, ResidentDomain], tmp_path: Path) -> None:
    with pytest.raises(FewshiftError, match="validation tasks tell configurations apart"):
        train_bohb(residents, backbone_settings(validation_tasks=0), tmp_path)
