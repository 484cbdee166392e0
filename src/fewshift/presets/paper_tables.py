"""The paper's tables and figures, one experiment each.

On Meta-Dataset at the paper's scale these are its experiments; on any other records they are the same
experiments on other images. What a method needs is read from what it says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fewshift.errors import FewshiftError
from fewshift.methods import ABOUT
from fewshift.presets.ablations import (
    CHOLESKY,
    CHOLESKY_IDENTITY,
    FREE,
    FREE_MINUS,
    GRAM,
    GRAM_ONLY,
    LOSSES,
    LOW_RANK,
    ablations,
    moved_ablations,
)
from fewshift.presets.proof import proof
from fewshift.presets.reproduce import Setup, Stage, begun, commands_for, trained_for

IMAGENET = "ilsvrc_2012"
MULTI = ("sur", "urt", "flute", "trim", "pa", "tsa", "ta2", "mokd", "tsp", "tsp_ta2")
SINGLE = ("alfa", "bohb", "gap", "flute", "tsa", "ta2", "mokd", "tsp", "tsp_ta2")
KEPT = ("preconditioners", "classifier", "rates")
FEW_SHOT = ("simple_cnaps", "sur", "urt", "pa", "tsa", "ta2", "mokd", "tsp", "tsp_ta2")


@dataclass(frozen=True)
class Table:
    """A table or figure: what it shows, how it is made, and how ours differs from the paper's."""

    title: str
    stages: Callable[[Setup], list[Stage]]
    beware: tuple[str, ...] = ()


def compared(
    methods: Sequence[str], name: str, protocol: str = "varying", one_domain: bool = False
) -> Callable[[Setup], list[Stage]]:
    """Methods against each other; with `one_domain` trained on ImageNet, or else on the first seen domain."""

    def stages(setup: Setup) -> list[Stage]:
        domain = None
        if one_domain:
            domain = IMAGENET if IMAGENET in setup.seen else setup.seen[0]
        before, kit = trained_for(setup, commands_for(methods), domain)
        known = [method for method in methods if method in ABOUT or ":" in method]
        scored = setup.evaluate(kit, known, protocol)
        return [*before, scored, *setup.report([scored], name)]

    return stages


def every_method(setup: Setup) -> list[Stage]:
    """All methods on one backbone. A kit that is given keeps its preconditioners, classifier and rates."""
    own = () if setup.kit is not None else ("preconditioners --train-starts", "classifier")
    wanted = [c for c in commands_for(ABOUT) if c.split()[0] not in KEPT or "--policy" in c]
    before, kit = trained_for(setup, (*own, *wanted))
    scored = setup.evaluate(kit, ("all",), "varying")
    return [*before, scored, *setup.report([scored], "all-methods", "--summary")]


def with_designs(
    designs: Mapping[str, tuple[str, ...]], name: str, protocols: Sequence[str] = ("varying",)
) -> Callable[[Setup], list[Stage]]:
    """TSP† with preconditioners trained in several ways, beside TSA and plain descent."""

    def stages(setup: Setup) -> list[Stage]:
        (made, base), scored = begun(setup), []
        for number, (design, flags) in enumerate(designs.items()):
            made.append(setup.train("preconditioners", *flags, kit=base))
            made.append(setup.train("classifier", kit=made[-1].makes, name=design))
            methods = ("tsa", "gd", "tsp") if number == 0 else ("tsp",)
            scored += [setup.evaluate(made[-1].makes, methods, protocol) for protocol in protocols]
        return [*made, *scored, *setup.report(scored, name)]

    return stages


def with_losses(setup: Setup) -> list[Stage]:
    """TSP† with dataset classifiers trained at several λ, with cross-entropy only and without it."""
    (made, base), scored = begun(setup), []
    made.append(setup.train("preconditioners", kit=base))
    roots = made[-1].makes
    for name, flags in LOSSES.items():
        made.append(setup.train("classifier", *flags, kit=roots, name=name))
        scored.append(setup.evaluate(made[-1].makes, ("tsp",), "varying"))
    return [*made, *scored, *setup.report(scored, "lambda")]


def spectra(designs: Mapping[str, tuple[str, ...]], name: str) -> Callable[[Setup], list[Stage]]:
    """What trained preconditioners look like: effective ranks and the share that is not positive definite."""

    def stages(setup: Setup) -> list[Stage]:
        (made, base), seen = begun(setup), []
        for design, flags in designs.items():
            made.append(setup.train("preconditioners", *flags, kit=base))
            seen.append(setup.spectrum(made[-1].makes, f"{name}-{design}"))
        return [*made, *seen]

    return stages


TABLES: Mapping[str, Table] = {
    "multi-domain": Table(
        "Table: state of the art, several training domains",
        compared(MULTI, "multi-domain"),
        ("the paper copies all columns but its own from other papers; here every method runs",),
    ),
    "single-domain": Table(
        "Table: state of the art, one training domain", compared(SINGLE, "single-domain", one_domain=True)
    ),
    "five-shot": Table("Table: varying-way five-shot", compared(FEW_SHOT, "five-shot", "five-shot")),
    "one-shot": Table("Table: five-way one-shot", compared(FEW_SHOT, "one-shot", "one-shot")),
    "designs": Table(
        "Table: three positive definite designs",
        with_designs(GRAM | CHOLESKY | CHOLESKY_IDENTITY, "designs"),
    ),
    "positive-definite": Table(
        "Table and first figure: with and without positive definiteness, against plain descent",
        with_designs(GRAM | FREE | FREE_MINUS, "positive-definite"),
    ),
    "identity": Table(
        "Tables: two designs with and without the identity, varying shot and five-shot",
        with_designs(GRAM | GRAM_ONLY | CHOLESKY_IDENTITY | CHOLESKY, "identity", ("varying", "five-shot")),
    ),
    "lambda": Table("Table: λ in the classifier's loss", with_losses),
    "non-pd-rates": Table(
        "Table: preconditioners that are not positive definite", spectra(FREE, "non-pd-rates")
    ),
    "effective-ranks": Table(
        "Tables: effective ranks of MᵀM and LLᵀ",
        spectra(GRAM_ONLY | CHOLESKY, "effective-ranks"),
        ("the paper averages over the blends of 600 tasks; here the ranks are of the domains' own matrices",),
    ),
    "coefficients": Table("Figure: task coefficients, in the HTML page", compared(("tsp",), "coefficients")),
    "learning-curves": Table(
        "Figure: loss by step with and without positive definiteness, in the HTML page",
        with_designs(GRAM | FREE, "learning-curves"),
        ("the paper draws accuracies by step; here they are support losses of three tasks a domain",),
    ),
    "time": Table(
        "Section: seconds a task of GAP and TSP†",
        compared(("gap", "gap_eigen", "gap_approximate", "tsp"), "time"),
        ("only ratios taken on one machine mean something: the paper's 14.2 s and 1.1 s are an RTX 3090's",),
    ),
    "all-methods": Table(
        "Ours: every method there is, on one backbone, a row each",
        every_method,
        ("methods at rates from validation need a --kit that has them",),
    ),
    "hard-label": Table(
        "Ours: the likeliest domain's preconditioners alone against the blend",
        compared(("tsp", "fewshift.presets.ablations:hard_label"), "hard-label"),
    ),
    "low-rank": Table("Ours: preconditioners of few rows", with_designs(GRAM | LOW_RANK, "low-rank")),
    "proof": Table(
        "Ours: TSP†, learned starting values and both against TSA and tuned descent; makes kits to ship",
        proof,
        ("it is meant for --scale small (width 32) and full (width 64): minutes to an hour on one GPU",),
    ),
    "ablations": Table(
        "Ours: designs, λ, hard label and order of Algorithm 1, all on the same tasks",
        ablations,
        ("designs are compared under one dataset classifier, trained by cross-entropy alone",),
    ),
    "ablations-moved": Table(
        "Ours: the same with outer steps that move P, each P at rates from validation",
        moved_ablations,
        ("designs are compared under one dataset classifier, trained by cross-entropy alone",),
    ),
}
COLUMNS: Mapping[str, Sequence[str]] = {
    "multi-domain": MULTI,
    "single-domain": SINGLE,
    "five-shot": FEW_SHOT,
    "one-shot": FEW_SHOT,
}


def table_named(name: str) -> Table:
    """A table or figure by its name; columns whose method we do not have are among what to beware of."""
    if name not in TABLES:
        raise FewshiftError(f"there is no table {name!r}: choose among {', '.join(TABLES)}")
    found = TABLES[name]
    absent = [f"there is no method {m}, a column is missing" for m in COLUMNS.get(name, ()) if m not in ABOUT]
    return Table(found.title, found.stages, (*found.beware, *absent))
