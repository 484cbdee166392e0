"""What the command itself does with errors that no command has foreseen."""

from pathlib import Path

import pytest

from fewshift.cli import app, main


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


def test_a_fault_of_our_own_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(**_: object) -> None:
        raise OSError("no file is to blame")

    monkeypatch.setattr(app, "app", command)
    with pytest.raises(OSError, match="no file is to blame"):
        main()


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(monkeypatch, KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "fewshift: interrupted\n"
