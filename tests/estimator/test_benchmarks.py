"""The benchmarks of own images run and count what they say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fewshift as fs
from fewshift.benchmarks import adapt, fit_memory, own_images
from fewshift.benchmarks.even_batches import most_together
from fewshift.benchmarks.own_images import table
from fewshift.benchmarks.own_tasks import draw, sources
from fewshift.estimator.kits import open_kit
from fewshift.nets.graph import GraphEngine


def test_a_fit_is_compared_with_ncc_on_the_same_tasks(md_mini: Path, kit_file: Path) -> None:
    outcome = own_images.run(
        md_mini,
        str(kit_file),
        "pa",
        tasks=2,
        shots=(2, 1),
        device="cpu",
        split="valid",
        domains=("dtd10", "birds"),
    )
    found = [(row["domain"], row["shot"], row["index"]) for row in outcome["tasks"]]
    assert sorted(found) == [(d, k, i) for d in ("birds", "dtd10") for k in (1, 2) for i in (0, 1)]
    gains = [100 * (row["fit"] - row["ncc"]) for row in outcome["tasks"]]
    assert outcome["all"]["difference"] == pytest.approx(np.mean(gains), abs=0.01)
    assert outcome["each"]["birds 2"]["tasks"] == 2
    said = table(outcome).splitlines()
    assert said[0].endswith("2 shots         1 shot")
    assert said[1].startswith("birds")
    short = own_images.run(
        md_mini, str(kit_file), "pa", 5, (1, 2), "cpu", "valid", domains=("birds", "dtd10"), seconds=0.0
    )
    assert [row["domain"] for row in short["tasks"]] == ["birds"]  # one is always done
    assert "dtd10" not in short["domains"]
    assert short["all"]["interval"] is None  # one task has none, and JSON knows no NaN
    assert "nan" not in table(short)
    again = own_images.run(
        md_mini, str(kit_file), "pa", tasks=1, shots=(2,), device="cpu", split="valid", domains=("birds",)
    )
    assert again["tasks"][0]["ncc"] == next(r for r in outcome["tasks"] if r["domain"] == "birds")["ncc"]


def test_a_fit_in_the_benchmark_is_the_users_fit(md_mini: Path, kit_file: Path) -> None:
    outcome = own_images.run(md_mini, str(kit_file), "tsp", 1, (2,), "cpu", "valid", domains=("dtd10",))
    opened = open_kit(str(kit_file), "cpu", "auto", True)
    task = draw(sources(md_mini, "valid", opened, ("dtd10",))[0], 0, 2)
    images = ((task.support + 1) / 2).clamp(0, 1)  # the kit's pixels are -1 to 1 at this very size
    fitted = fs.FewShotClassifier(kit=str(kit_file), device="cpu", quiet=True).fit(
        images, task.labels.tolist()
    )
    assert outcome["tasks"][0]["rates"] == list(fitted.settings_.rates)
    assert outcome["tasks"][0]["steps"] == fitted.settings_.steps


def test_fits_side_by_side_are_the_fits_one_by_one(
    md_mini: Path, kit_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where batches of few shapes are made of the steps that several fits ask for."""

    def run() -> list[dict[str, Any]]:
        names = ("dtd10", "birds")
        return own_images.run(md_mini, str(kit_file), "tsp", 1, (2,), "cpu", "valid", domains=names)["tasks"]

    opened = open_kit(str(kit_file), "cpu", "auto", True, "float32")
    monkeypatch.setattr(own_images, "open_kit", lambda *_: opened)
    alone = run()
    graphs = GraphEngine(opened.kit.backbone, captured=False)
    monkeypatch.setattr(own_images, "open_kit", lambda *_: replace(opened, engine=graphs))
    for one, other in zip(alone, run(), strict=True):
        assert one.keys() == other.keys()
        assert (one["steps"], one["rates"]) == (other["steps"], other["rates"])
        assert one["fit"] == pytest.approx(other["fit"], abs=0.05)
        assert one["cross_entropy"] == pytest.approx(other["cross_entropy"], rel=0.01)
    shapes = {key[0] for key in graphs.steps}
    assert {shape.tasks for shape in shapes} <= {most_together(shape.cell) for shape in shapes}


@pytest.mark.slow
def test_time_and_memory_of_a_fit_are_measured(kit_file: Path) -> None:
    told: list[dict[str, object]] = []
    outcome = fit_memory.run((5,), str(kit_file), "pa", "cpu", tell=told.append)
    (row,) = outcome["results"]
    assert told == [row]
    assert row["images"] == 5
    assert row["peak_mb"] > 50
    assert row["seconds"] > 0
    assert "5 images" in fit_memory.line(row)


def test_sizes_and_memory_of_a_fit(kit_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fs.FewshiftError, match="one of the sizes is 1: a fit takes two images at least"):
        fit_memory.run((5, 1))
    monkeypatch.setattr(adapt, "STATUS", tmp_path / "not on this system")
    row = fit_memory._measured(2, str(kit_file), "ncc", "cpu", "auto")
    assert row["peak_mb"] is None
    assert row["precision"] in ("float32", "bfloat16")
    with pytest.raises(fs.FewshiftError, match="tf32 cannot be had here"):
        fit_memory._measured(2, str(kit_file), "ncc", "cpu", "tf32")
    assert fit_memory.line(row).endswith("ms a prediction")
