"""`fewshift bench fit` and `own-images`: what a fit on a user's own images costs, and what it is worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fewshift.cli.outputs import keep_others
from fewshift.cli.precision_option import PrecisionOption
from fewshift.cli.words import words


def _keep_others(path: Path | None) -> Path | None:
    if path is not None:
        keep_others(path, "--json", b'{\n "', "the results of a benchmark", "results.json")
    return path


JsonFile = Annotated[
    Path | None,
    typer.Option("--json", help="Write the results to this file, too.", callback=_keep_others),
]


def fit(
    sizes: Annotated[str, typer.Option(help="Numbers of support images, with commas.")] = "5,25,100,500",
    kit: Annotated[str | None, typer.Option(help="A kit file or a bundled kit's name.")] = None,
    method: Annotated[str, typer.Option(help="tsp, tsa, gd, pa or ncc.")] = "tsp",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "cpu",
    precision: PrecisionOption = "auto",
    json_file: JsonFile = None,
) -> None:
    """Seconds and memory of a fit on own images, against ncc and the published settings.

    Example: `fewshift bench fit --sizes 5,25 --json fit.json`
    """
    from fewshift.benchmarks import fit_memory
    from fewshift.cli.console import bars
    from fewshift.cli.evaluate_inputs import choose_device, counts
    from fewshift.nets.precision import precision_for

    def tell(row: dict[str, Any]) -> None:  # the large sizes take minutes: none waits for the others
        typer.echo(fit_memory.line(row), err=True)

    where = choose_device(device)
    precision_for(precision, where)  # a wrong name is said before anything runs
    outcome = fit_memory.run(
        counts(sizes, "--sizes"), kit, method, str(where), precision, track=bars(), tell=tell
    )
    finish(outcome, json_file)


def own_images(
    records: Annotated[Path, typer.Option(help="A folder of converted domains.")],
    kit: Annotated[str | None, typer.Option(help="A kit file or a bundled kit's name.")] = None,
    method: Annotated[str, typer.Option(help="tsp, tsa, gd or pa.")] = "tsp",
    tasks: Annotated[int, typer.Option(min=1, help="Tasks a domain and number of shots.")] = 10,
    shots: Annotated[str, typer.Option(help="Images a class, with commas.")] = "1,2,5,10",
    domains: Annotated[str | None, typer.Option(help="Names with commas. Default: all.")] = None,
    split: Annotated[str, typer.Option(help="valid or test: classes and domains of each.")] = "test",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    seconds: Annotated[float, typer.Option(help="After these no more fits are begun.")] = float("inf"),
    json_file: JsonFile = None,
) -> None:
    """Accuracy of a fit against ncc on small tasks of five classes, by domain and shots, with intervals.

    `--split valid`: VALID classes of seen domains and the valid_unseen domains; `test`: TEST classes and
    the unseen domains.

    Example: `fewshift bench own-images --records DIR --tasks 10 --json own.json`
    """
    from fewshift.benchmarks import own_images as comparison
    from fewshift.benchmarks.own_summary import table
    from fewshift.cli.console import bars
    from fewshift.cli.evaluate_inputs import counts, split_named

    numbers, names = counts(shots, "--shots"), words(domains)
    outcome = comparison.run(
        records,
        kit,
        method,
        tasks,
        numbers,
        device,
        split_named(split),
        domains=names,
        track=bars(),
        seconds=seconds,
    )
    typer.echo(table(outcome), err=True)
    finish(outcome, json_file)


def own_grid(
    records: Annotated[Path, typer.Option(help="A folder of converted domains.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A file of arrays (.npz).")],
    candidates: Annotated[str, typer.Option(help="Such as 'certainty P 0.25 0.05; usual I 0.5 0.05'.")],
    shot: Annotated[int, typer.Option(min=1, help="Images a class.")] = 1,
    kit: Annotated[str | None, typer.Option(help="A kit file or a bundled kit's name.")] = None,
    seconds: Annotated[float, typer.Option(help="No round is begun that would end later.")] = 60.0,
    each: Annotated[int, typer.Option(min=1, help="Tasks of a domain in a round.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="At most so many rounds.")] = 1000,
    domains: Annotated[str | None, typer.Option(help="Names with commas. Default: all.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
) -> None:
    """Starts and rates on small validation tasks at every stop, on queries and on held-out support images.

    Example: `fewshift bench own-grid --records DIR --shot 5 --candidates "own P 0.25 0.05" -o grid.npz`
    """
    from fewshift.benchmarks import own_grid as grid
    from fewshift.cli.console import bars

    keep_others(out, "--out", b"PK", "a file of arrays", "grid.npz")
    wanted = [grid.candidate(text) for text in candidates.split(";")]
    names = words(domains)
    found = grid.run(
        records, kit, wanted, shot, seconds, device, names=names, each=each, rounds=rounds, track=bars()
    )
    grid.write(found, out)
    typer.echo(json.dumps(grid.summary(found), indent=1))


def own_rules(
    grids: Annotated[list[Path], typer.Argument(help="Files of `own-grid`.")],
    candidates: Annotated[str, typer.Option(help="Those to choose among, the usual one first.")],
) -> None:
    """What rules that choose by held-out images would have been worth, against always taking one candidate.

    Example: `fewshift bench own-rules grid-5.npz --candidates "certainty P 1 0.05; certainty P 0.5 0.05"`
    """
    from fewshift.benchmarks import own_rules as comparison

    names = [text.strip() for text in candidates.split(";")]
    tasks = [task for grid in grids for task in comparison.read(grid, names)]
    typer.echo(f"{len(tasks)} tasks; gain over ncc in points, each domain alike")
    for name, row in comparison.compare(tasks, comparison.rules(names)).items():
        worst, frozen = f"worst domain {row['worst']:+.2f}", f"frozen {row['frozen']:.0%}"
        typer.echo(f"{name:<36} {row['gain']:+.2f}   {worst}   {frozen}")
    agreed = comparison.agreement(tasks)
    typer.echo(f"correlation of held-out and true gain of {names[0]}: {agreed:+.2f}")


def finish(outcome: dict[str, Any], json_file: Path | None) -> None:
    """The results as JSON, on stdout and perhaps in a file."""
    text = json.dumps(outcome, indent=1)
    typer.echo(text)
    if json_file is not None:  # after the terminal has them: a bad name must not cost the measurement
        json_file.write_text(text + "\n", encoding="utf-8", newline="\n")
