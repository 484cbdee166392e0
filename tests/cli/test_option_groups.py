"""Groups of options: typer sees the fields, the command gets the value, and every train command is whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from fewshift.cli.option_groups import with_groups
from fewshift.cli.train import train

LengthOption = Annotated[int, typer.Option(min=1, help="How long.")]


@dataclass(frozen=True, kw_only=True)
class Size:
    length: LengthOption
    name: str = "box"


@pytest.fixture
def called() -> tuple[typer.Typer, list[Any]]:
    app, calls = typer.Typer(add_completion=False), []

    @app.command()
    @with_groups
    def measure(*, loud: bool = False, size: Size, colour: str = "red") -> None:
        """Measure it."""
        calls.append((loud, size, colour))

    return app, calls


def test_fields_are_options_in_the_place_of_the_value(called: tuple[typer.Typer, list[Any]]) -> None:
    app, calls = called
    done = CliRunner().invoke(app, ["--length", "3", "--colour", "blue"])
    assert done.exit_code == 0, done.output
    assert calls == [(False, Size(length=3, name="box"), "blue")]
    names = [parameter.name for parameter in typer.main.get_command(app).params]
    assert names == ["loud", "length", "name", "colour"]


def test_a_field_keeps_its_limits_and_help(called: tuple[typer.Typer, list[Any]]) -> None:
    app, calls = called
    for words in ([], ["--length", "0"], ["--length", "3", "--size", "4"]):
        assert CliRunner().invoke(app, words).exit_code == 2
    assert not calls
    told = CliRunner().invoke(app, ["--help"]).output
    assert "How long." in told
    assert "Measure it." in told


def test_every_train_command_that_runs_has_the_options_of_a_run() -> None:
    commands: Any = typer.main.get_command(train)
    usual = {"seed", "device", "validation_tasks", "save_every", "resume", "exact", "quiet", "out"}
    for name, command in commands.commands.items():
        if name not in ("rates", "shrink", "curves"):  # they choose and rewrite, without a run's folder
            assert usual <= {parameter.name for parameter in command.params}, name
