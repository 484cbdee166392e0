"""The benchmark of meta-training runs and says what it promises."""

from typing import Any

from fewshift.benchmarks import meta_rate
from fewshift.data.protocol import Protocol


def test_a_small_run() -> None:
    few = Protocol(min_way=5, max_way=5, max_query=2, max_support=10, max_contribution=2)
    small: Any = {"image_size": 16, "updates": 1, "tasks_per_update": 2, "domains": 2, "protocol": few}
    outcome = meta_rate.run("cpu", 2, **small)
    assert outcome["machine"]["matrix_product_tflops"]["float32"] > 0
    assert outcome["settings"]["tasks_per_update"] == 2
    assert [(row["order"], row["engine"], row["precision"]) for row in outcome["results"]] == [
        (1, "FoldedOneByOne", "float32"),  # a processor has no TF32, whatever is asked for
        (2, "FoldedOneByOne", "float32"),
    ]
    short = meta_rate.run("cpu", 2, precision="bfloat16", **small)
    assert [row["precision"] for row in short["results"]] == ["bfloat16", "float32"]
    assert all(row["tasks_per_second"] > 0 for row in outcome["results"])
