"""What a reading process does: take parts of tasks from its standard input, write their pixels where told.

It imports no torch, so that it starts quickly and takes little memory. It ends when its standard input does,
which also happens when the process that started it is killed. All that is said goes as pickles through pipes
between a process and its own children; no file is ever unpickled.
"""

from __future__ import annotations

import math
import mmap
import os
import pickle
import sys
import traceback
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO

import numpy as np

from fewshift.data.episodes import EpisodeReader
from fewshift.data.pixels import PixelRule
from fewshift.data.plan import TaskPlan
from fewshift.data.resize import Floats


@dataclass(frozen=True, slots=True)
class Place:
    """Where images belong in shared memory."""

    file: int  # its descriptor
    start: int  # the first float
    images: int


@dataclass(frozen=True, slots=True)
class Part:
    """Read these classes of a task and write their images to shared memory."""

    plan: TaskPlan  # of the classes alone
    support: Place
    query: Place


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer to a part that went wrong; that to any other is None."""

    problem: Exception
    trace: str


def main() -> None:
    """Work until there is no more input."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a source prints must not get between the answers
    try:
        _send(answers, None)
        _work(sys.stdin.buffer, answers)
    except (EOFError, BrokenPipeError, KeyboardInterrupt, pickle.UnpicklingError):  # cut short, perhaps
        pass
    os._exit(0)  # at once: nothing here is worth an orderly end


def _work(jobs: BinaryIO, answers: BinaryIO) -> None:
    pickled = b""
    while True:
        job: bytes | Part = pickle.load(jobs)
        if isinstance(job, bytes):  # from now on, read with this
            pickled = job
            continue
        answer = None
        try:
            read = _reader(pickled)
            read.read_into(_view(job.support, read.rule), _view(job.query, read.rule), job.plan)
        except Exception as problem:
            answer = Failed(problem, traceback.format_exc())
        _send(answers, answer)


@lru_cache(maxsize=2)  # whose files stay open
def _reader(pickled: bytes) -> EpisodeReader:
    reader: EpisodeReader = pickle.loads(pickled)
    return reader


_views: dict[int, Floats] = {}  # the files that this process has in view


def _view(place: Place, rule: PixelRule) -> Floats:  # (n, 3, size, size)
    shape = (place.images, 3, rule.size, rule.size)
    stop = place.start + math.prod(shape)
    if place.file not in _views or len(_views[place.file]) < stop:  # it has grown
        _views[place.file] = np.frombuffer(mmap.mmap(place.file, 0), np.float32)
    return _views[place.file][place.start : stop].reshape(shape)


def _send(answers: BinaryIO, answer: object) -> None:
    pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
    answers.flush()
