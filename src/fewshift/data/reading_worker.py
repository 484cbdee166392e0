"""What a reading process does: take plans from its standard input, write their pixels where it is told.

It imports no torch unless the reader it is given does, so that it starts quickly and takes little memory. It
ends when its standard input does, which also happens when the process that started it is killed.
"""

from __future__ import annotations

import math
import mmap
import os
import pickle
import shutil
import sys
import traceback
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fewshift.data.reading_messages import Failed, Part, Place, Reader, pack
from fewshift.data.resize import Floats
from fewshift.errors import FewshiftError

READERS = 2  # that stay open


def main() -> None:
    """Work until there is no more input."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a source prints must not get between the answers
    memory = _Memory()
    try:
        _send(answers, None)
        _work(sys.stdin.buffer, answers, memory)
    except (EOFError, BrokenPipeError, KeyboardInterrupt, pickle.UnpicklingError):  # cut short, perhaps
        pass
    memory.remove(sys.argv[2])
    os._exit(0)  # at once: nothing here is worth an orderly end


def _work(jobs: BinaryIO, answers: BinaryIO, memory: _Memory) -> None:
    readers: OrderedDict[bytes, Any] = OrderedDict()
    pickled = b""
    while True:
        job = pickle.load(jobs)
        if isinstance(job, Reader):
            pickled = job.pickled
            continue
        try:
            if pickled not in readers:
                readers[pickled] = _unpickled(pickled)
                while len(readers) > READERS:
                    readers.popitem(last=False)
            readers.move_to_end(pickled)
            read = readers[pickled]
            _send(answers, memory.write(read, job) if isinstance(job, Part) else pack(read(job.plan)))
        except BrokenPipeError:
            raise
        except Exception as problem:
            _send(answers, _failed(problem))


def _send(answers: BinaryIO, answer: object) -> None:
    pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
    answers.flush()


def _unpickled(pickled: bytes) -> Any:
    try:
        return pickle.loads(pickled)
    except Exception as problem:
        raise FewshiftError(
            f"the reader of tasks cannot be made again in another process ({problem}): "
            "define it in a module that can be imported, or read with threads"
        ) from problem


def _failed(problem: Exception) -> Failed:
    trace = traceback.format_exc()
    try:
        pickle.loads(pickle.dumps(problem))
    except Exception:
        problem = RuntimeError(f"{type(problem).__name__}: {problem}")
    return Failed(problem, trace)


class _Memory:
    """The files of shared memory that this process has in view."""

    def __init__(self) -> None:
        self._views: dict[Path, Floats] = {}

    def write(self, read: Any, part: Part) -> bool:
        support = self._view(part.support, (sum(map(len, part.plan.support)), 3, part.size, part.size))
        query = self._view(part.query, (sum(map(len, part.plan.query)), 3, part.size, part.size))
        read.read_into(support, query, part.plan)
        return True

    def remove(self, folder: str) -> None:
        """In place of a parent that could not, perhaps because it was killed before it lent any memory."""
        for found in {folder, *(str(path.parent) for path in self._views)} - {""}:
            shutil.rmtree(found, ignore_errors=True)

    def _view(self, place: Place, shape: tuple[int, int, int, int]) -> Floats:
        file, stop = place.file, place.start + math.prod(shape)
        if file not in self._views or len(self._views[file]) < stop:  # it has grown
            with open(file, "r+b") as opened:
                self._views[file] = np.frombuffer(mmap.mmap(opened.fileno(), 0), np.float32)
        return self._views[file][place.start : stop].reshape(shape)
