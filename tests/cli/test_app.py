"""What the command itself does with errors that no command has foreseen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fewshift.cli import app, main, wait_politely


def ended(monkeypatch: pytest.MonkeyPatch, problem: BaseException) -> object:
    def command(**_: object) -> None:
        raise problem

    monkeypatch.setattr(app, "app", command)
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code


def test_what_the_system_refuses_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError) as refused:
        (tmp_path / "nowhere" / "file").open()
    assert ended(monkeypatch, refused.value) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"fewshift: {tmp_path / 'nowhere' / 'file'}: No such file or directory: ")
    assert said.count("\n") == 1


def test_a_full_gpu_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 592.00 MiB.")
    assert ended(monkeypatch, full) == 2
    said = capsys.readouterr().err
    assert said.startswith("fewshift: the GPU's memory is full: ")
    assert said.count("\n") == 1


def test_a_fault_of_our_own_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(**_: object) -> None:
        raise OSError("no file is to blame")

    monkeypatch.setattr(app, "app", command)
    with pytest.raises(OSError, match="no file is to blame"):
        main()


LINES = Path(__file__).parents[2] / "docs" / "lines" / "open-lite0.jsonl.gz"


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fewshift.evaluation.scores.read_scores", interrupted)
    monkeypatch.setattr("sys.argv", ["fewshift", "report", str(LINES)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "fewshift: interrupted\n"


def test_interrupted_while_it_is_still_being_imported() -> None:
    """Whoever sees a typing mistake is quicker than the imports."""
    code = (
        "import sys\n"
        "class Early:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Early())\n"
        "import fewshift.__main__\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "fewshift: interrupted\n")


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_a_reader_who_leaves_is_no_failure(form: str) -> None:
    command = [sys.executable, "-m", "fewshift", "report", LINES, "--format", form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait() == 0


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full here")
@pytest.mark.parametrize("words", [["report", str(LINES)], ["--help"]])
def test_a_full_disk_behind_standard_output_is_one_sentence(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "fewshift", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "fewshift: what is printed, or a temporary file, cannot be written (No space"
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
@pytest.mark.parametrize("words", [["report", str(LINES)], ["--help"], ["reproduce"], ["methods"]])
def test_every_encoding_can_print(words: list[str], encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "fewshift", *words]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


def test_threads_wait_politely_unless_told_otherwise() -> None:
    for given, wanted in (
        ({}, {"GOMP_SPINCOUNT": "1000"}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ):
        environment = dict(given)
        wait_politely(environment)
        assert environment == wanted


def test_threads_are_told_before_torch_is_loaded() -> None:
    """OpenMP reads it once, when it is loaded."""
    code = "import sys; import fewshift.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


DROPPED = """
import os, signal, sys, time
from fewshift.cli import app, main

class Cleared:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

def command(**_):
    cleared = Cleared()
    del cleared
    print("the first was dropped", flush=True)
    for _ in range(400):
        time.sleep(0.1)

app.app = command
sys.argv = ["fewshift"]
main()
"""


def test_a_ctrl_c_that_falls_into_a_finalizer_is_heard() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stdout) == (130, "the first was dropped\n")
    assert done.stderr == "fewshift: interrupted\n"
