"""The settings of training runs: one frozen value per stage, whose defaults are the published ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from fewshift.core.precond import design_named
from fewshift.core.updates import site_rates
from fewshift.errors import FewshiftError
from fewshift.training.augment import Augmentation
from fewshift.training.distill import Distillation
from fewshift.training.refusals import above_zero, at_least
from fewshift.training.tasks import TaskChoice


@dataclass(frozen=True, kw_only=True)
class BackboneSettings:
    """Everything that decides an extractor. The defaults are the published ones of MDL and URL."""

    updates: int = 240_000
    batches: Mapping[str, int] = field(default_factory=dict)  # domain -> images per step, if not the default
    default_batch: int = 64
    rate: float = 0.03
    momentum: float = 0.9
    weight_decay: float = 7e-4  # on all weights, batch norm's too
    period: int = 48_000
    augmentation: Augmentation = field(default_factory=Augmentation)
    never_mirrored: tuple[str, ...] = ()  # domains whose images keep their sides when others are flipped
    distillation: Distillation = field(default_factory=Distillation)  # used where there are teachers
    width: int = 64
    stem_padding: int = 2
    precision: Literal["float32", "bfloat16"] = "float32"  # of activations; weights are always float32
    validation_tasks: int = 300  # per domain; 0 for no validation
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(1, "train backbone: ", self, "updates", "period", "width", "default_batch")
        for name, size in self.batches.items():
            if size < 1:
                raise FewshiftError(f"train backbone: the batch of {name} is {size}: give 1 or more")
        above_zero("train backbone: the rate", self.rate)

    def batch(self, domain: str) -> int:
        """How many images of this domain a step reads."""
        return self.batches.get(domain, self.default_batch)


@dataclass(frozen=True, kw_only=True)
class InnerLevel:
    """The steps inside a task (Eq. 9 and 14), with the paper's values."""

    rate: float = 0.1  # for the adapters and, unless it has its own, for the last map
    steps: int = 5
    order: Literal[1, 2] = 1
    last_rate: float | None = None

    def rates(self, sites: Iterable[str], last_site: str) -> dict[str, float]:
        """The step size of each site."""
        last = self.rate if self.last_rate is None else self.last_rate
        return site_rates(sites, self.rate, last, last_site)

    def __post_init__(self) -> None:
        rates = (self.rate, self.rate if self.last_rate is None else self.last_rate)
        if not all(0 < rate < inf for rate in rates) or self.steps < 1 or self.order not in (1, 2):
            raise FewshiftError(
                f"inner level: rate {self.rate}, steps {self.steps}, order {self.order}: "
                "give a rate above 0, one step or more, and order 1 or 2"
            )


@dataclass(frozen=True, kw_only=True)
class PreconditionerSettings(TaskChoice):
    """Everything Algorithm 1 leaves to choose. The defaults are the paper's for eight domains."""

    stage = "train preconditioners"

    updates: int = 10_000
    tasks_per_update: int = 16
    inner: InnerLevel = field(default_factory=InnerLevel)
    design: str = "gram"
    scale: float = 0.1  # roots start at this times the identity
    rank: int | None = None  # of `low_rank` and `bounded`
    rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 7e-4
    period: int = 2_500  # updates from one cosine restart to the next
    normalise: bool = False  # each site's gradient gets length 1: it is faint, and short runs need more
    train_starts: bool = False  # learn theta_0 of each domain, too
    common_start: bool = False  # theta_0 of a domain is a value that all share and learn, plus its own
    start_rate: float = 1e-3  # of Adam: starting values are ours, and their sites differ much in scale
    start_rank: int | None = None  # theta_0^k = theta_0 + U_k V_k of this rank, for the last map alone
    start_weight_decay: float = 0.0  # towards theta_0, of such starting values
    validation_tasks: int = 50  # per domain; 0 for no validation
    validation_steps: int = 40
    validation_rates: tuple[float, float] = (0.05, 0.30)  # adapters, last map: the test rates of seen domains
    spectrum_every: int = 50  # steps between looks at the largest eigenvalue

    def __post_init__(self) -> None:
        super().__post_init__()
        design_named(self.design)
        at_least(1, f"{self.stage}: ", self, "period", "spectrum_every", "start_rank")
        above_zero(f"{self.stage}: the rate of the starting values", self.start_rate)


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings(TaskChoice):
    """Everything Algorithm 2 leaves to choose. The defaults are the paper's.

    `auxiliary` is λ of Eq. 12; 0 leaves the inner level out altogether (cross-entropy only). `cross_entropy`
    False leaves the domain labels out (auxiliary loss only).
    """

    stage = "train classifier"

    updates: int = 4_000
    tasks_per_update: int = 16
    inner: InnerLevel = field(default_factory=InnerLevel)
    auxiliary: float = 0.1
    cross_entropy: bool = True
    width: int = 256  # filters per layer; of features, hidden units
    reads: Literal["images", "features"] = "images"  # features: of the backbone, see FeatureClassifier
    rate: float = 1e-3
    weight_decay: float = 7e-4
    period: int = 500
    validation_tasks: int = 20  # per domain; 0 for no validation

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, f"{self.stage}: ", self, "period", "width")
        if not 0 <= self.auxiliary < inf:
            raise FewshiftError(
                f"{self.stage}: auxiliary is {self.auxiliary}: give an auxiliary weight of 0 or more"
            )
        if not self.cross_entropy and self.auxiliary == 0:
            raise FewshiftError(
                "train classifier: with neither cross-entropy nor auxiliary loss there is nothing to learn: "
                "keep one"
            )
