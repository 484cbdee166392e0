"""What a reading process does: take plans from its standard input, write their pixels where it is told.

It imports no torch unless the reader it is given does, so that it starts quickly and takes little memory. It
ends when its standard input does, which also happens when the process that started it is killed.
"""

from __future__ import annotations

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

from fewshift.data.reading_messages import Failed, Part, Reader, pack
from fewshift.data.resize import Floats
from fewshift.errors import FewshiftError

MAPS = 8  # files in view at once
READERS = 2  # that stay open


def main() -> None:
    """Work until there is no more input."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a source prints must not get between the answers
    slots = _Slots()
    try:
        _send(answers, None)
        _work(sys.stdin.buffer, answers, slots)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass
    slots.remove()
    os._exit(0)  # at once: nothing here is worth an orderly end


def _work(jobs: BinaryIO, answers: BinaryIO, slots: _Slots) -> None:
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
            _send(answers, slots.write(read, job) if isinstance(job, Part) else pack(read(job.plan)))
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


class _Slots:
    """The files that were written to lately."""

    def __init__(self) -> None:
        self._maps: OrderedDict[Path, Floats] = OrderedDict()

    def write(self, read: Any, part: Part) -> bool:
        spans = [
            (first, sum(map(len, rows)) * 3 * part.size**2)
            for first, rows in ((part.support, part.plan.support), (part.query, part.plan.query))
        ]
        whole = self._view(part.slot, max(first + length for first, length in spans))
        shape = (-1, 3, part.size, part.size)
        read.read_into(*(whole[first : first + length].reshape(shape) for first, length in spans), part.plan)
        return True

    def remove(self) -> None:
        """For a parent that could not do so itself."""
        for folder in {path.parent for path in self._maps}:
            shutil.rmtree(folder, ignore_errors=True)

    def _view(self, path: Path, floats: int) -> Floats:
        if path not in self._maps or len(self._maps[path]) < floats:  # it may have grown
            with open(path, "r+b") as file:
                self._maps[path] = np.frombuffer(mmap.mmap(file.fileno(), 0), np.float32)
        self._maps.move_to_end(path)
        while len(self._maps) > MAPS:
            self._maps.popitem(last=False)
        return self._maps[path]
