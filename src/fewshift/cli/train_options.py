"""The options that several research commands have, with one help text each, alone and in groups.

A command takes a group as one parameter under `with_groups`, and hands it on as one value.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from fewshift.cli.options import QuietOption, RecordsOption, SuiteOption


class TwoPresets(str, Enum):
    """Which settings to start from."""

    paper = "paper"
    quick = "quick"


class Preset(str, Enum):
    """The same for extractors, which have one more."""

    paper = "paper"
    quick = "quick"
    small = "small"


class MetaPreset(str, Enum):
    """The same for meta-training, which has yet one more."""

    paper = "paper"
    quick = "quick"
    small = "small"
    last_map = "last-map"


class Classes(str, Enum):
    """Whose classes meta-training makes its tasks of."""

    train = "train"
    valid = "valid"
    held_out = "held-out"


class Precision(str, Enum):
    """How activations are computed; weights are always float32."""

    float32 = "float32"
    bfloat16 = "bfloat16"


OutOption = Annotated[
    Path, typer.Option(help="The kit to write (NAME.kit; its run goes to NAME.run), or the run's folder.")
]
DomainsOption = Annotated[
    str | None, typer.Option(help="Names with commas. Default: all seen domains with TRAIN classes.")
]
TwoPresetsOption = Annotated[TwoPresets, typer.Option(help="paper: as published. quick: minutes on a CPU.")]
MetaPresetOption = Annotated[
    MetaPreset,
    typer.Option(
        help="paper: as published. quick: minutes on a CPU. small: on a GPU. last-map: --sites last."
    ),
]
UpdatesOption = Annotated[int | None, typer.Option(min=1, help="Optimizer steps, if not the preset's.")]
RateOption = Annotated[float | None, typer.Option(help="Step size, if not the preset's.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
KitOption = Annotated[str, typer.Option(help="The kit to start from: a file, or a bundled kit's name.")]
ClassesOption = Annotated[
    Classes, typer.Option(help="Tasks of TRAIN or VALID classes, or of those held out from the backbone.")
]
CapOption = Annotated[
    int | None, typer.Option(min=50, help="At most so many support images a task: cheaper, and reported.")
]
OrderOption = Annotated[
    int | None,
    typer.Option(min=1, max=2, help="1: without second derivatives. 2: exact, three to five times as long."),
]
InnerStepsOption = Annotated[int | None, typer.Option(min=1, help="Inner steps of a task, T.")]
InnerRateOption = Annotated[float | None, typer.Option(help="Inner step size.")]


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a run reads and where it writes."""

    kit: KitOption
    out: OutOption
    records: RecordsOption = None
    suite: SuiteOption = None


@dataclass(frozen=True, kw_only=True)
class PartSource(Source):
    """The same for a run that puts a part into a kit."""

    domains: DomainsOption = None
    preset: TwoPresetsOption = TwoPresets.paper

    @property
    def quick(self) -> bool:
        """Is it the small preset?"""
        return self.preset is TwoPresets.quick


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """The tasks that meta-training learns from, and how their inner steps are computed."""

    train_images: Annotated[
        int | None, typer.Option(min=1, help="At most about so many TRAIN images a domain: cheaper features.")
    ] = None
    support_cap: CapOption = None
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--resident",
            help="Read images task by task, or hold them all. Default: hold them if half the memory is "
            "enough.",
        ),
    ] = None
    precision: Annotated[
        str,
        typer.Option(
            "--precision",
            help="Of the inner steps: float32, tf32 or float16 on a GPU; on a CPU bfloat16, all else is "
            "float32.",
        ),
    ] = "tf32"


@dataclass(frozen=True, kw_only=True)
class PresetChanges:
    """Options that replace settings of the preset; None leaves them."""

    @property
    def changes(self) -> dict[str, Any]:
        """By the settings' names."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Learning(PresetChanges):
    """How much is learned from tasks."""

    updates: UpdatesOption = None
    tasks_per_update: Annotated[
        int | None, typer.Option(min=1, help="Tasks an update, if not the preset's.")
    ] = None
    rate: RateOption = None


@dataclass(frozen=True, kw_only=True)
class Inner:
    """The steps inside a task; each replaces a setting of the preset."""

    order: OrderOption = None
    inner_steps: InnerStepsOption = None
    inner_rate: InnerRateOption = None
    inner_last_rate: Annotated[
        float | None, typer.Option(help="Inner step size of the last map, if it has its own.")
    ] = None

    @property
    def changes(self) -> dict[str, Any]:
        """By the settings' names."""
        return {name.removeprefix("inner_"): value for name, value in asdict(self).items()}


@dataclass(frozen=True, kw_only=True)
class Run:
    """Where a run happens, how it is watched and gone on with."""

    seed: Annotated[
        int, typer.Option(min=0, help="Decides weights, tasks and images: same seed, same run.")
    ] = 0
    device: DeviceOption = "auto"
    validation_tasks: Annotated[
        int | None,
        typer.Option(min=0, help="VALID tasks a domain, if not the preset's; 0: the last state counts."),
    ] = None
    save_every: Annotated[int | None, typer.Option(min=1, help="Updates between saved states.")] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in --out stopped.")] = False
    exact: Annotated[
        bool,
        typer.Option("--exact", help="On a GPU: only algorithms that repeat to the bit. A CPU always does."),
    ] = False
    quiet: QuietOption = False

    @property
    def changes(self) -> dict[str, Any]:
        """Those that are settings, by their names."""
        return {"validation_tasks": self.validation_tasks, "seed": self.seed}
