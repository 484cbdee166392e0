"""Memory of meta-gradients is that of the process that computes them."""

import numpy as np
import pytest

from fewshift.benchmarks.meta_memory import MIB, Setting, _in_a_process, memory_and_time, saved_by_autograd

SMALL = Setting(width=2, size=16, support=10, query=10)


@pytest.mark.slow
def test_what_the_parent_held_does_not_count() -> None:
    """On Linux a child's `ru_maxrss` starts with its parent's peak, which hid all smaller ones."""
    held = np.ones(100 * MIB)  # 800 MiB
    memory, seconds = _in_a_process(memory_and_time, SMALL, "order 1", 2)
    assert held.nbytes == 800 * MIB
    assert 0 < memory < 200 * MIB
    assert seconds > 0


def test_unrolled_steps_keep_a_graph_each_and_the_meta_gradient_one() -> None:
    unrolled, ours = (
        [saved_by_autograd(SMALL, how, steps) for steps in (1, 3)] for how in ("unrolled", "order 2")
    )
    assert unrolled[1] > 1.5 * unrolled[0]
    assert ours[1] < 1.1 * ours[0]
