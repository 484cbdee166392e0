"""The work behind `fewshift train extractors` and `fewshift train bohb`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from fewshift.cli.train_options import PartSource, Run
from fewshift.cli.train_parts import Changes, Ready, as_the_backbone_was, ready
from fewshift.cli.train_shared import about, by_domain, places
from fewshift.data.protocol import VARYING
from fewshift.errors import FewshiftError
from fewshift.methods.bohb import PART as BOHB
from fewshift.methods.urt import PART as URT
from fewshift.nets.backbone import Backbone
from fewshift.nets.extractors import PART, extractors_part
from fewshift.nets.kit import Kit, load_kit
from fewshift.nets.resnet import ResNet18
from fewshift.presets.baselines import PAPER_CONFIGURATIONS, QUICK_CONFIGURATIONS, paper_bohb, quick_bohb
from fewshift.presets.training import QUICK_TASKS, Recipe, paper_backbone, quick_backbone
from fewshift.training.backbone import train_backbone
from fewshift.training.bohb import train_bohb
from fewshift.training.settings import BackboneSettings


def run_extractors(source: PartSource, run: Run, changes: Changes, given: Sequence[str], half: bool) -> None:
    """Train what is not given, one domain after the other, and collect all into the kit."""
    kit_path, folder = places(source.out, "extractors")
    known = by_domain(given, "--extractor", "DOMAIN=KIT, a domain and the kit trained on it")
    with ready(source, run) as found:
        strangers = [domain for domain in known if domain not in found.held]
        if strangers:
            raise FewshiftError(
                f"--extractor {strangers[0]}=…: it is not among the domains {', '.join(found.held)}: add it "
                "to --domains, or leave it out"
            )
        backbones: dict[str, Backbone] = {}
        info: dict[str, Any] = {}
        for domain in found.held:
            if domain in known:
                backbones[domain] = _given_backbone(known[domain], domain, found.kit)
                info[domain] = {"kit": known[domain].name}
                continue
            recipe = (quick_backbone if source.quick else paper_backbone)([domain])
            recipe = _like_the_backbone(recipe, changes, found, "give finished ones with --extractor")
            protocol = QUICK_TASKS if source.quick else VARYING
            trained = train_backbone(
                {domain: found.held[domain]},
                recipe.settings,
                folder / domain,
                protocol=protocol,
                **found.session.options(recipe.watch),
            )
            backbones[domain] = trained.backbone
            info[domain] = about(recipe.settings, trained.outcome, protocol)
        part = extractors_part(found.kit, backbones, torch.float16 if half else None)
        others = {name: own for name, own in found.kit.parts.items() if name != URT}  # it selects among these
        kept = replace(found, kit=replace(found.kit, parts=others))
        kept.keep(kit_path, {PART: part}, {PART: info}, f"collected the extractors of {', '.join(backbones)}")


def _given_backbone(path: Path, domain: str, kit: Kit) -> Backbone:
    """The backbone of a finished kit, which has to read the images that this kit's backbone reads."""
    given = load_kit(path)
    ours, theirs = ((k.images.size, k.images.mean, k.images.std) for k in (kit, given))
    if ours != theirs:
        raise FewshiftError(
            f"--extractor {domain}={path}: its images are of {theirs[0]} pixels, mean {theirs[1]}, spread "
            f"{theirs[2]}, and this kit's of {ours[0]}, {ours[1]}, {ours[2]}: train one on the same images"
        )
    return given.backbone


def run_bohb(
    source: PartSource, run: Run, changes: Changes, configurations: int | None, batch: int | None
) -> None:
    """Search, then write the kit with the best extractor as a part of it."""
    kit_path, folder = places(source.out, "bohb")
    with ready(source, run) as found:
        recipe = (quick_bohb if source.quick else paper_bohb)(tuple(found.held))
        recipe = _like_the_backbone(recipe, changes, found, "give a kit with a ResNet18")
        base = recipe.settings
        if batch is not None:
            base = replace(base, default_batch=batch, batches={})
        trained = train_bohb(
            found.held,
            base,
            folder,
            configurations=configurations or (QUICK_CONFIGURATIONS if source.quick else PAPER_CONFIGURATIONS),
            protocol=QUICK_TASKS if source.quick else VARYING,
            **found.session.options(recipe.watch),
        )
        best, tried = trained.searched.best, len(trained.searched.trials)
        info = {BOHB: {"settings": asdict(trained.settings), "trials": tried, "score": best.score}}
        sentence = f"tried {tried} runs; number {best.number} is best with {best.score:.1%} on VALID tasks"
        found.keep(kit_path, {BOHB: trained.part()}, info, sentence)


def _like_the_backbone(
    recipe: Recipe[BackboneSettings], changes: Changes, found: Ready, remedy: str
) -> Recipe[BackboneSettings]:
    """The preset for networks of the kit's architecture, from images varied as the kit's were."""
    net = found.kit.backbone.net
    if not isinstance(net, ResNet18):
        raise FewshiftError(
            f"--kit {found.source.kit}: extractors like its {type(net).__name__} cannot be trained here: "
            f"{remedy}"
        )
    like = {"width": net.width, "stem_padding": net.stem_padding}
    recipe = found.recipe(recipe, {**changes, **like})
    varied = as_the_backbone_was(found.kit, recipe.settings.augmentation)
    return replace(recipe, settings=replace(recipe.settings, **varied))
