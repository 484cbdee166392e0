"""The grid of starts and rates: the same numbers as one task at a time, whichever engine."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fewshift.benchmarks import own_grid
from fewshift.benchmarks.own_candidates import candidate
from fewshift.benchmarks.own_tasks import QUERIES, WAY, draw, part_of, sources
from fewshift.data.records_folder import open_records
from fewshift.estimator.kits import open_kit
from fewshift.nets.kit import Kit


def test_validation_and_test_share_no_class(md_mini: Path) -> None:
    for domain in open_records(md_mini, ["birds", "dtd10", "mnist"]):
        valid, test = part_of(domain, "valid"), part_of(domain, "test")
        assert (valid, test) == {
            "seen": ("valid", "test"),
            "valid_unseen": ("test", None),
            "unseen": (None, "test"),
        }[domain.role]


def test_a_task_has_its_shots_and_repeats(md_mini: Path, small_kit: Kit) -> None:
    (birds,) = sources(md_mini, "valid", open_kit(small_kit, "cpu", "auto", True), ["birds"])
    task, again, other = (draw(birds, index, 2) for index in (0, 0, 1))
    assert task.support.shape == (2 * WAY, 3, 32, 32)
    assert task.query.shape[0] == WAY * QUERIES
    assert torch.equal(task.support, again.support)
    assert not torch.equal(task.support, other.support)
    rows = torch.cat([task.support, task.query]).flatten(1)
    assert len(torch.unique(rows, dim=0)) == len(rows)


@pytest.mark.parametrize("shot", [1, 2])
def test_every_candidate_is_measured_at_every_stop(
    shot: int, md_mini: Path, kit_file: Path, tmp_path: Path
) -> None:
    wanted = [candidate(text) for text in ("own P 0.25 0.05", "usual I 0.5 0.05")]
    names = ["birds", "dtd10"]
    found = own_grid.run(md_mini, str(kit_file), wanted, shot, 60.0, "cpu", names=names, rounds=1)
    assert found["query"].shape == (2, 2, len(own_grid.NAMED_STOPS), 1 + len(own_grid.SCALES))
    assert [c.name for c in wanted] == found["candidates"].tolist()
    usual = found["query"][:, 1]
    np.testing.assert_allclose(usual[:, 0, 1:], found["frozen"][:, 1:], rtol=0.01)  # nothing has moved yet
    assert np.abs(usual[:, -1] - usual[:, 0]).max() > 0.01
    if shot > 1:
        assert found["held"].shape == (2, 2, len(own_grid.NAMED_STOPS) - 1, shot * WAY, WAY)
    own_grid.write(found, tmp_path / "grid.npz")
    with np.load(tmp_path / "grid.npz") as again:
        assert (again["query"] == found["query"]).all()
    gains = own_grid.summary(found)["seen"]["gain"]["own P 0.25 0.05"]
    birds = found["domain"] == "birds"
    gain = found["query"][birds, 0, -1, 0].astype(float) - found["frozen"][birds, 0].astype(float)
    assert gains["40"] == pytest.approx(100 * float(gain[0]), abs=0.01)
