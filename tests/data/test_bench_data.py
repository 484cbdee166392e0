"""The benchmark of reading counts every process, and compares readers that give the same tasks."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tfrecord")

from small_records import images_of

from fewshift.benchmarks import data
from fewshift.data.records_write import write_domain
from fewshift.data.spec import flat_spec
from fewshift.errors import DataError

CHILD = """
import sys, time
memory = b"1" * (64 * 2**20)
begin = time.process_time()
while time.process_time() - begin < 0.3:
    pass
print("done", flush=True)
sys.stdin.read()
"""


def test_children_count() -> None:
    busy, resident = data._busy(), data._resident()
    command = [sys.executable, "-c", CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert data._busy() - busy >= 0.3
        assert data._resident() - resident >= 64 * data.MIB
        child.communicate()


def test_growth_is_of_the_largest_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest is between the first moment and the last, and reading lasts until it has been looked at."""
    moments, looked = iter((500, 510, 570)), threading.Event()

    def resident() -> int:
        moment = next(moments, None)
        if moment is None:
            looked.set()
        return moment or 520

    def read(_: object) -> Iterator[data.Tensors]:
        assert looked.wait(60)
        yield from ()

    monkeypatch.setattr(data, "_resident", resident)
    assert data._memory_growth(read, [[]]) == 70


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:unclosed file"
)  # `tfrecord` leaves a file open that is not read to its end
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_all_readers_read_the_same_tasks(tmp_path: Path) -> None:
    names = tuple(f"class {number}" for number in range(10))
    spec = flat_spec("small", names, (20,) * 10, {"train": 2, "valid": 2, "test": 6})
    write_domain(tmp_path / "small", spec, lambda class_id: images_of(spec, class_id))
    found = data.run(tmp_path, 3)
    values = {line["name"]: line["value"] for line in found["results"]}
    assert found["tasks"]["count"] == 3
    ratio = values["cache: tasks a second"] / values["streaming: tasks a second"]
    np.testing.assert_allclose(values["cache / streaming"], ratio, rtol=0.05)
    assert values["cache: growth of resident memory, MiB"] >= 0  # none, where memory was there already
    assert {line["name"] for line in found["results"] if "target" in line} == {
        "encoded records / streaming",
        "cache / streaming",
        "cache: tasks a second",
        "cache: growth of resident memory, MiB",
    }


def test_a_folder_without_standard_tasks_is_refused(tmp_path: Path) -> None:
    spec = flat_spec("few", ("a", "b", "c"), (4,) * 3, {"train": 1, "valid": 1, "test": 1})
    write_domain(tmp_path / "few", spec, lambda class_id: images_of(spec, class_id))
    with pytest.raises(DataError, match="no domain of this folder can give a standard task"):
        data.run(tmp_path, 2)
