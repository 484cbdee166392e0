"""The whole story in minutes on two CPU cores: backbone, preconditioners, classifier, five methods, a report.

Everything is small on purpose (a narrow network, small pictures, small tasks), so its numbers say how the
pieces work together and not how good a method is. Each stage keeps its files; a second run takes up where the
first one stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from fewshift.data.domain import Domain
from fewshift.data.pixels import PixelRule, practical
from fewshift.data.protocol import Protocol
from fewshift.data.resident import ResidentDomain, resident
from fewshift.evaluation.fingerprint import kit_fingerprint
from fewshift.evaluation.run import Job, run, with_roles
from fewshift.methods import METHODS
from fewshift.nets.choice import choose_engine
from fewshift.nets.kit import ImageSettings, Kit, save_kit
from fewshift.progress import Track, silent
from fewshift.training.augment import Augmentation
from fewshift.training.backbone import train_backbone
from fewshift.training.classifier import train_classifier
from fewshift.training.loop import Watch
from fewshift.training.preconditioners import train_preconditioners
from fewshift.training.settings import BackboneSettings, ClassifierSettings, PreconditionerSettings
from fewshift.training.tasks import ResidentTasks

SMALL_TASKS = Protocol(max_way=10, max_support=30, max_query=5)
DEMO_METHODS = ("ncc", "pa", "tsa", "gd", "tsp")


@dataclass(frozen=True, kw_only=True)
class DemoPlan:
    """How large each part of the demo is."""

    rule: PixelRule = field(default_factory=lambda: practical(32, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))
    protocol: Protocol = SMALL_TASKS
    backbone: BackboneSettings = field(
        default_factory=lambda: BackboneSettings(
            updates=600,
            default_batch=32,
            period=600,
            width=16,
            validation_tasks=10,
            augmentation=Augmentation(pad=3),
        )
    )
    # Few updates of few tasks: without weight decay and with gradients of length 1, M moves at all.
    preconditioners: PreconditionerSettings = field(
        default_factory=lambda: PreconditionerSettings(
            updates=30,
            tasks_per_update=8,
            period=30,
            rate=0.03,
            weight_decay=0.0,
            normalise=True,
            validation_tasks=3,
        )
    )
    classifier: ClassifierSettings = field(
        default_factory=lambda: ClassifierSettings(
            updates=30, tasks_per_update=8, period=30, width=32, rate=0.01, validation_tasks=5
        )
    )
    suite: str = "open"
    tasks: int = 8  # test tasks per domain
    seed: int = 0  # of all training and of the test tasks

    def __post_init__(self) -> None:
        for part in ("backbone", "preconditioners", "classifier"):
            object.__setattr__(self, part, replace(getattr(self, part), seed=self.seed))


@dataclass(frozen=True)
class Demo:
    """Where the demo left what it made."""

    kit: Path
    results: Path


def run_demo(
    domains: Sequence[Domain],
    folder: Path,
    plan: DemoPlan,
    *,
    say: Callable[[str], None] = lambda sentence: None,
    track: Track = silent,
) -> Demo:
    """Train on the seen domains' TRAIN classes, test on all domains' TEST classes, on identical tasks."""
    folder.mkdir(parents=True, exist_ok=True)
    seen = [domain for domain in domains if domain.role == "seen"]
    held = {d.name: resident(d, plan.rule, splits=("train", "valid"), track=track) for d in seen}
    kit = _train(held, folder, plan, say, track)
    path = folder / "demo.kit"
    save_kit(kit, path)
    tested = [d for d in domains if len(d.spec.splits["test"]) > 0 and d.role != "valid_unseen"]
    job = Job(
        domains=with_roles(tested, kit.trained_on),
        protocol=plan.protocol,
        seed=plan.seed,
        tasks=plan.tasks,
        rule=plan.rule,
    )
    say(f"testing {', '.join(DEMO_METHODS)} on {plan.tasks} identical tasks of each of {len(tested)} domains")
    engine = choose_engine(kit.backbone)
    methods = [METHODS[name](kit, engine, oracle=True) for name in DEMO_METHODS]
    results = folder / "results.jsonl"
    mark = kit_fingerprint(kit)
    run(methods, job, results, kit=path.name, fingerprint=mark, track=track)
    return Demo(path, results)


def _train(
    held: Mapping[str, ResidentDomain], folder: Path, plan: DemoPlan, say: Callable[[str], None], track: Track
) -> Kit:
    say(f"training a ResNet-18 of width {plan.backbone.width} on {', '.join(held)}")
    trained = train_backbone(
        held,
        plan.backbone,
        folder / "backbone",
        protocol=plan.protocol,
        watch=Watch(log_every=20, checkpoint_every=300),
        resume=True,
        track=track,
    )
    backbone, tasks = trained.backbone, ResidentTasks(held, plan.protocol)
    say("Algorithm 1: meta-training a preconditioner for every site and domain")
    learned = train_preconditioners(
        backbone,
        tasks,
        plan.preconditioners,
        folder / "preconditioners",
        watch=Watch(log_every=5, checkpoint_every=20),
        resume=True,
        track=track,
    )
    say("Algorithm 2: meta-training the dataset classifier")
    told = train_classifier(
        backbone,
        learned.preconditioners,
        tasks,
        plan.classifier,
        folder / "classifier",
        watch=Watch(log_every=5, checkpoint_every=20),
        resume=True,
        track=track,
    )
    info = {
        "made_by": "fewshift demo",
        "protocol": plan.protocol.to_dict(),
        "suite": plan.suite,
        "seed": plan.seed,
    }
    return Kit(
        backbone,
        ImageSettings(**asdict(plan.rule)),
        learned.preconditioners,
        learned.starts,
        told.classifier,
        info=info,
    )
