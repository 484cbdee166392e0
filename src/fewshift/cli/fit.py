"""`fewshift fit`: a folder of labelled images to one classifier file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fewshift.cli.console import bars, print_table
from fewshift.cli.options import DeviceOption, EngineOption, MethodOption, PrecisionOption
from fewshift.cli.outputs import keep_images, keep_input, make_place

if TYPE_CHECKING:
    from fewshift.estimator.classifier import FewShotClassifier

HINTS_SHOWN = 10
SHARES_SHOWN = 3
LEAST_SHARE = 0.005  # below it, a share would be printed as nothing


def fit(
    support: Annotated[
        Path, typer.Argument(help="A folder that holds a folder of images a class.", metavar="SUPPORT")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The classifier file to write.")],
    method: MethodOption = "tsp",
    kit: Annotated[
        str | None, typer.Option(help="A kit file or a bundled kit's name. Default: the best on validation.")
    ] = None,
    settings: Annotated[
        str,
        typer.Option(
            help="auto: as the kit's validation says, unless held-out images object; published: the paper's."
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Equal seeds and images give equal classifiers.")] = 0,
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
    precision: PrecisionOption = "auto",
    with_backbone: Annotated[
        bool, typer.Option("--with-backbone", help="Put the backbone into the file: it needs no kit then.")
    ] = False,
    with_support: Annotated[
        bool, typer.Option("--with-support", help="Keep small copies of the images, to add classes later.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No bars and no tables.")] = False,
) -> None:
    """Learn to tell classes apart from a few images of each.

    Example: `fewshift fit birds/ -o birds.fewshift`, where `birds/` holds `robin/`, `wren/`, ...; then
    `fewshift predict birds.fewshift new/*.jpg`
    """
    from fewshift.estimator.classifier import FewShotClassifier

    make_place(out, "--out", "birds.fewshift")
    keep_input(out, "--out", kit, "kit", "birds.fewshift")
    keep_images(out, "--out", support, "birds.fewshift")
    classifier = FewShotClassifier(
        method=method,
        kit=kit,
        settings=settings,
        seed=seed,
        device=device,
        engine=engine,
        precision=precision,
        quiet=True,
    )
    classifier.fit(support, track=bars(quiet))
    classifier.save(out, with_backbone=with_backbone, with_support=with_support)
    if not quiet:
        _describe(classifier, support, out)


def _describe(classifier: FewShotClassifier, support: Path, out: Path) -> None:
    from fewshift.nets.choice import named_engine

    fitted, settings = classifier.fitted_, classifier.settings_
    counts = zip(map(str, classifier.classes_.tolist()), map(str, fitted.counts), strict=True)
    print_table(("class", "images"), counts, right=("images",), fold=("class",))
    engine = classifier.engine_
    print(f"kit        {classifier.kit_name_}, engine {named_engine(engine)} on {engine.backbone.device}")
    rates = ", ".join(f"{rate:.3g}" for rate in settings.rates)
    print(f"settings   {classifier.method}, {settings.steps} steps at rates {rates}: {settings.why}")
    ranked = sorted(classifier.coefficients_.items(), key=lambda item: -item[1])[:SHARES_SHOWN]
    shares = [f"{domain} {share:.0%}" for domain, share in ranked if share >= LEAST_SHARE]
    if shares:
        print("resembles  " + ", ".join(shares))
    _say_left_out(support)
    for hint in classifier.support_hints_[:HINTS_SHOWN]:
        print(f"hint       {hint}")
    if len(classifier.support_hints_) > HINTS_SHOWN:
        print(f"hint       and {len(classifier.support_hints_) - HINTS_SHOWN} more images like these")
    size = out.stat().st_size
    print(f"wrote      {out} ({size / 1e6:.1f} MB) after {classifier.seconds_:.1f} s")
    print(f"next       fewshift predict {shlex.quote(str(out))} IMAGES...")


def _say_left_out(support: Path) -> None:
    """Name images beside the class folders and what is no image in them, unless it is hidden."""
    from fewshift.data.folder import SUFFIXES, list_folder

    ignored = list_folder(support).ignored.items()
    seen = [(path, why) for path, why in ignored if path.name[0] != "."]
    left = [(path, why) for path, why in seen if path.parent != support or path.suffix.lower() in SUFFIXES]
    if left:
        path, why = left[0]
        more = f" ({len(left)} in all)" if len(left) > 1 else ""
        print(f"left out   {path}: {why}{more}")
