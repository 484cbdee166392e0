"""Two gloo processes on one CPU take the steps that one process takes."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from two_processes import main as alone

from fewshift.errors import FewshiftError
from fewshift.training import journal
from fewshift.training.distributed import ALONE, Team

SCRIPT = Path(__file__).with_name("two_processes.py")


def started(command: list[str], **environment: str) -> None:
    usual = {k: v for k, v in os.environ.items() if k not in {"WORLD_SIZE", "RANK", "LOCAL_RANK"}}
    done = subprocess.run(
        command,
        env={**usual, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path) -> None:
    out = str(tmp_path / "state")
    alone(Path(out))
    started(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
            *(str(SCRIPT), out),
        ]
    )
    one, first, second = (load_file(tmp_path / f"state-{name}.safetensors") for name in ("1-0", "2-0", "2-1"))
    assert one.keys() == first.keys() == second.keys()
    assert {name.split("/")[0] for name in one} == {"roots", "classifier", "model", "trained", "metrics"}
    for name, wanted in one.items():
        if not name.endswith("norm") and "/trained" not in name:
            assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(
            first[name], wanted, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
    logs = [[line["step"] for line in journal.read(tmp_path / f"run{n}" / "log.jsonl")] for n in (1, 2)]
    assert logs[0] == logs[1] == [1, 2, 3, 4, 4]


def test_shares_are_all_items_each_once() -> None:
    items = list(range(11))
    parts = [Team(rank, 3).share(items) for rank in range(3)]
    assert sorted(chain.from_iterable(parts)) == items
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert ALONE.share(items) == items


def test_nobody_is_left_without_work() -> None:
    Team(0, 3).check_enough(3, "sets")
    with pytest.raises(FewshiftError, match="3 processes cannot share 2 sets a step: start 2 at most"):
        Team(0, 3).check_enough(2, "sets")


def test_alone_nothing_is_sent() -> None:
    value = torch.ones(3)
    ALONE.add_up([value])
    ALONE.wait()
    assert torch.equal(value, torch.ones(3))
    assert ALONE.any(True, torch.device("cpu"))
    assert not ALONE.any(False, torch.device("cpu"))
