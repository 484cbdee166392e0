"""Scripts that read without end, ended from outside."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")


def reading_workers(process: psutil.Process | None = None) -> list[psutil.Process]:
    """The reading processes of this process, or of another."""
    children = (process or psutil.Process()).children()
    return [child for child in children if "reading_worker" in " ".join(child.cmdline())]


def ended_from_outside(
    script: Path, end: signal.Signals, after: int, look: Callable[[psutil.Process], T]
) -> T:
    """What `look` saw of a script that printed this number and was then ended; nothing of it is left.

    Ctrl-C reaches all its processes, as from a terminal, and only the first may print a traceback.
    """
    command, pipe = [sys.executable, str(script)], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        for line in run.stdout:
            if int(line) == after:
                break
        process = psutil.Process(run.pid)
        children = process.children(recursive=True)
        seen = look(process)
        if end == signal.SIGINT:
            os.killpg(run.pid, end)
        else:
            run.kill()
        run.stdout.read()
        said = run.stderr.read()
        assert run.wait(60) != 0
    if end == signal.SIGINT:
        assert said.count("Traceback") == 1
        assert said.rstrip().endswith("KeyboardInterrupt")
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    return seen
