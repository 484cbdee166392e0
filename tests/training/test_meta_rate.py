"""The benchmark of meta-training runs and says what it promises."""

from fewshift.benchmarks import meta_rate
from fewshift.data.protocol import Protocol


def test_a_small_run() -> None:
    few = Protocol(min_way=5, max_way=5, max_query=2, max_support=10, max_contribution=2)
    outcome = meta_rate.run(
        "cpu", 2, image_size=16, updates=1, tasks_per_update=2, domains=2, protocol=few, orders=(1, 2)
    )
    assert outcome["machine"]["matrix_product_tflops"]["float32"] > 0
    assert outcome["settings"]["tasks_per_update"] == 2
    assert [(row["order"], row["engine"]) for row in outcome["results"]] == [
        (1, "FoldedOneByOne"),
        (2, "FoldedOneByOne"),
    ]
    assert all(row["tasks_per_second"] > 0 for row in outcome["results"])
