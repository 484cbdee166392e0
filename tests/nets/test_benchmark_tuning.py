"""The comparison of tuning: all three run on every engine, end in the same place, ratios are of its times."""

import pytest

from fewshift.benchmarks import tuning


def test_it_times_every_method_on_every_engine() -> None:
    outcome = tuning.run((10, 15), 4, 16, "cpu", steps=2, repeats=1)
    rows = outcome["results"]
    assert [(row["method"], row["support"]) for row in rows] == [
        (name, size) for name in ("fine_tune", "norm_tune", "pmf") for size in (10, 15)
    ]
    for row in rows:
        for precision in tuning.PRECISIONS:
            assert row[f"{precision}_last_loss"] == pytest.approx(row["plain_last_loss"], rel=0.02)
            ratio = row["plain_seconds"] / row[f"{precision}_seconds"]
            assert row[f"plain_by_{precision}"] == pytest.approx(ratio, rel=0.2, abs=0.02)
    assert len(tuning.table(outcome).splitlines()) == 7
