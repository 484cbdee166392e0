"""The benchmarks of own images run and count what they say."""

from pathlib import Path

import numpy as np
import pytest

from fewshift.benchmarks import fit_memory, own_images


def test_a_fit_is_compared_with_ncc_on_the_same_tasks(md_mini: Path, kit_file: Path) -> None:
    outcome = own_images.run(
        md_mini, str(kit_file), "pa", tasks=2, shots=(2, 1), device="cpu", domains=("mnist", "birds")
    )
    found = [(row["domain"], row["shot"]) for row in outcome["tasks"]]
    assert sorted(found) == [("birds", 1), ("birds", 2), ("mnist", 1), ("mnist", 2)]
    gains = [100 * (row["fit"] - row["ncc"]) for row in outcome["tasks"]]
    assert outcome["all"]["difference"] == pytest.approx(np.mean(gains), abs=0.01)
    assert "birds" in own_images.table(outcome)
    again = own_images.run(
        md_mini, str(kit_file), "pa", tasks=1, shots=(2,), device="cpu", domains=("birds",)
    )
    assert again["tasks"][0]["ncc"] == next(r for r in outcome["tasks"] if r["domain"] == "birds")["ncc"]


@pytest.mark.slow
def test_time_and_memory_of_a_fit_are_measured(kit_file: Path) -> None:
    outcome = fit_memory.run((5,), str(kit_file), "pa", "cpu")
    (row,) = outcome["results"]
    assert row["images"] == 5
    assert row["peak_mb"] > 50
    assert row["seconds"] > 0
    assert "5 images" in fit_memory.table(outcome)
