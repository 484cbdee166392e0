"""The benchmark runs, says what it promises, and counts work as torch counts it."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fewshift.benchmarks import adapt
from fewshift.errors import FewshiftError
from fewshift.nets.resnet import ResNet18


def test_a_small_run() -> None:
    outcome = adapt.run((5, 12), steps=2, width=4, image_size=28, engines=("public", "folded"), repeats=1)
    assert outcome["machine"]["matrix_product_tflops"]["float32"] > 0
    rows = outcome["results"]
    assert [(row["size"], row["engine"]) for row in rows] == [
        (5, "public"),
        (5, "folded"),
        (12, "public"),
        (12, "folded"),
    ]
    for row in rows:
        assert row["seconds"] > 0
        assert row["tflops"] >= 0
    assert [row["ratio"] for row in rows if row["engine"] == "public"] == [1.0, 1.0]
    assert rows[0]["accuracy"] == rows[1]["accuracy"]
    assert "folded" in adapt.table(outcome)


def test_the_public_loop_is_the_yardstick_even_when_not_asked_for() -> None:
    outcome = adapt.run((5,), steps=1, width=4, image_size=28, engines=("folded",), repeats=1)
    (row,) = outcome["results"]
    assert row["engine"] == "folded"
    assert row["ratio"] > 0


@pytest.mark.parametrize("name", ["plain bfloat16", "folded tf32", "folded float16"])
def test_a_row_says_no_precision_that_was_not_computed(name: str) -> None:
    with pytest.raises(FewshiftError, match=f"'{name}' cannot be had here, .* computes in float32 on cpu"):
        adapt.run((5,), steps=1, width=4, image_size=28, engines=("public", name), repeats=1)


@pytest.mark.parametrize(("width", "size", "padding"), [(8, 84, 1), (4, 28, 2)])
def test_work_is_counted_as_torch_counts_it(width: int, size: int, padding: int) -> None:
    net = ResNet18(width, padding).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(torch.randn(1, 3, size, size))
    side = (size + 2 * padding - 5) // 2 + 1
    stem, last = 2 * side**2 * 75 * width, 2 * (8 * width) ** 2
    layers = counter.get_total_flops() - stem - last
    first = 2 * side**2 * 9 * width * width
    projections = sum(
        2 * width**2 * 2 ** (2 * stage - 1) * (-(-side // 2**stage)) ** 2 for stage in (1, 2, 3)
    )
    centres = (layers - projections) // 9
    expected = 2 * layers - 2 * first + first // 9 + centres + last
    assert adapt.step_work(width, size, padding) == expected
