"""The comparison of GAP and TSP: every method runs, and ratios are those of its times."""

import pytest

from fewshift.benchmarks import gap


def test_it_times_every_form_on_one_task() -> None:
    outcome = gap.run(10, 4, 16, "cpu", tsp_steps=1, gap_steps=2, repeats=1)
    rows = {row["method"]: row for row in outcome["results"]}
    assert list(rows) == ["tsp", "tsp_plain", "proto_maml", "gap", "gap_eigen", "gap_approximate"]
    for row in rows.values():
        assert row["seconds_a_task"] > 0
        assert row["times_tsp"] == pytest.approx(
            row["seconds_a_task"] / rows["tsp"]["seconds_a_task"], rel=0.05, abs=0.01
        )
    assert rows["tsp"]["times_tsp"] == rows["tsp_plain"]["times_tsp_plain"] == 1
    assert len(gap.table(outcome).splitlines()) == 7
