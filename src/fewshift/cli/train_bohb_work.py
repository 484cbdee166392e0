"""The work behind `fewshift train bohb`."""

from __future__ import annotations

from dataclasses import asdict, replace

from fewshift.cli.train_parts import as_the_backbone_was, ready, with_changes
from fewshift.cli.train_shared import places
from fewshift.cli.train_wanted import Wanted
from fewshift.data.protocol import VARYING
from fewshift.errors import FewshiftError
from fewshift.methods.bohb import PART
from fewshift.nets.resnet import ResNet18
from fewshift.presets.bohb import PAPER_CONFIGURATIONS, QUICK_CONFIGURATIONS, paper_bohb, quick_bohb
from fewshift.presets.training import QUICK_TASKS
from fewshift.training.bohb import train_bohb


def run(wanted: Wanted, configurations: int | None, batch: int | None) -> None:
    """Search, then write the kit with the best extractor as a part of it."""
    kit_path, folder = places(wanted.source.out, "bohb")
    with ready(wanted) as found:
        net = found.kit.backbone.net
        if not isinstance(net, ResNet18):
            raise FewshiftError(
                f"--kit {wanted.source.kit}: extractors like its {type(net).__name__} cannot be trained "
                "here: give a kit with a ResNet18"
            )
        recipe = (quick_bohb if wanted.quick else paper_bohb)(tuple(found.held))
        changes = {**wanted.changes, "width": net.width, "stem_padding": net.stem_padding}
        recipe = with_changes(recipe, wanted, changes)
        base = replace(recipe.settings, **as_the_backbone_was(found.kit, recipe.settings.augmentation))
        if batch is not None:
            base = replace(base, default_batch=batch, batches={})
        trained = train_bohb(
            found.held,
            base,
            folder,
            configurations=configurations or (QUICK_CONFIGURATIONS if wanted.quick else PAPER_CONFIGURATIONS),
            protocol=QUICK_TASKS if wanted.quick else VARYING,
            watch=recipe.watch,
            resume=wanted.run.resume,
            track=found.track,
            team=found.team,
        )
        best, tried = trained.searched.best, len(trained.searched.trials)
        info = {PART: {"settings": asdict(trained.settings), "trials": tried, "score": best.score}}
        sentence = f"tried {tried} runs; number {best.number} is best with {best.score:.1%} on VALID tasks"
        found.keep(kit_path, {PART: trained.part()}, info, sentence)
