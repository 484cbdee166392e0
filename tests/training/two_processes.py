"""A few updates of each stage, the weights to a file: in one process, or in two that torchrun starts."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from patterns import (
    PROTOCOL,
    backbone_settings,
    classifier_settings,
    preconditioner_settings,
    some_preconditioners,
    tiny_backbone,
    two_domains,
)
from safetensors.torch import save_file

from fewshift.nets.tensor_file import join
from fewshift.training.augment import Augmentation
from fewshift.training.backbone import BackboneLearner, train_backbone
from fewshift.training.classifier import ClassifierLearner
from fewshift.training.distributed import joined
from fewshift.training.loop import Watch
from fewshift.training.metagradients import OneByOne
from fewshift.training.preconditioner_learner import PreconditionerLearner
from fewshift.training.tasks import ResidentTasks


def main(out: Path) -> None:
    torch.set_num_threads(1)
    with joined(torch.device("cpu")) as (team, _):
        residents, backbone = two_domains(), tiny_backbone()
        tasks = ResidentTasks(residents, PROTOCOL)
        first = PreconditionerLearner(
            backbone,
            tasks,
            preconditioner_settings(tasks_per_update=3, normalise=False),
            OneByOne(backbone),
            team,
        )
        learned = some_preconditioners(backbone, tasks.domains)
        second = ClassifierLearner(
            backbone, learned, None, tasks, classifier_settings(tasks_per_update=3), OneByOne(backbone), team
        )
        settings = backbone_settings(default_batch=7, augmentation=Augmentation(pad=2, flip=True))
        third = BackboneLearner(residents, settings, {}, PROTOCOL, team)
        metrics = {}
        for name, learner, steps in (("first", first, 2), ("second", second, 1), ("third", third, 1)):
            for step in range(steps):
                found = learner.update(step)
            metrics |= {
                f"metrics/{name}/{key}": torch.as_tensor(value).float() for key, value in found.items()
            }
            checked = learner.validate()
            assert checked is not None
            metrics[f"metrics/{name}/validation"] = torch.tensor(checked.score)
        weights = {
            **{f"roots/{name}": root for name, root in join(first.roots).items()},
            **{f"classifier/{name}": weight.detach() for name, weight in second.weights.items()},
            **{
                f"model/{name}": w.contiguous()
                for name, w in third.model.state_dict().items()
                if "tracked" not in name
            },
        }
        trained = train_backbone(
            residents,
            settings,
            out.parent / f"run{team.size}",
            protocol=PROTOCOL,
            watch=Watch(log_every=2),
            team=team,
        )
        weights |= {f"trained/{name}": weight for name, weight in trained.backbone.frozen.items()}
        save_file({**weights, **metrics}, out.with_name(f"{out.stem}-{team.size}-{team.rank}.safetensors"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
