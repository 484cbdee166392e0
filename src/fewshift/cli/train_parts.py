"""The work behind the train commands that put a part into a kit: selector, flute, cnaps, trim and maml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from fewshift.cli.options import words
from fewshift.cli.train_options import PartSource, Run
from fewshift.cli.train_shared import Session, about, capped, finish, places, session_of, training_domains
from fewshift.data.protocol import VARYING
from fewshift.data.resident import ResidentDomain, resident
from fewshift.data.subset import hold_out
from fewshift.evaluation.pixel_rule import pixel_rule
from fewshift.methods.flute import PART as FLUTE
from fewshift.methods.simple_cnaps import PART as SIMPLE_CNAPS
from fewshift.methods.trim import PART as TRIM
from fewshift.methods.urt import PART as URT
from fewshift.nets.bundled import find_kit
from fewshift.nets.extractors import extractors_of
from fewshift.nets.kit import Kit, Part
from fewshift.nets.tensor_file import join
from fewshift.presets import baselines
from fewshift.presets.maml import paper_maml, quick_maml
from fewshift.presets.training import QUICK_TASKS, Recipe, changed
from fewshift.training.augment import Augmentation
from fewshift.training.blender import train_blender
from fewshift.training.flute import train_template
from fewshift.training.maml import train_maml
from fewshift.training.modulators import Which, train_modulator
from fewshift.training.selector import train_selector
from fewshift.training.tasks import ResidentTasks

S = TypeVar("S")
Changes: TypeAlias = Mapping[str, Any]  # settings that the command line names, None where it does not


@dataclass(frozen=True)
class Ready:
    """What was asked for, a kit on its device, the images to learn from, and who watches."""

    source: PartSource
    run: Run
    kit: Kit
    held: Mapping[str, ResidentDomain]
    session: Session

    def recipe(self, preset: Recipe[S], changes: Changes) -> Recipe[S]:
        """The preset with the options in it."""
        return changed(preset, self.run.save_every, **self.run.changes, **changes)

    def keep(self, path: Path, parts: Mapping[str, Part], info: Mapping[str, Any], sentence: str) -> None:
        """Write the kit with these parts, beside those it had."""
        kit = self.kit.to("cpu")
        kit = replace(kit, parts={**kit.parts, **parts}, info={**kit.info, **info})
        finish(kit, path, self.session, sentence)


@contextmanager
def ready(source: PartSource, run: Run) -> Iterator[Ready]:
    """Everything a run reads. Classes that the kit's backbone was not shown are not shown here either."""
    with session_of(run) as session:
        _, kit = find_kit(source.kit, session.device)
        rule, held = pixel_rule(kit), {}
        kept_back = kit.info.get("backbone", {}).get("hold_out", {})
        for domain in training_domains(source.records, source.suite, words(source.domains), session.track):
            shown = domain
            if kept_back.get("fraction"):
                shown = hold_out(domain, kept_back["fraction"], kept_back["seed"])[0]
            held[domain.name] = resident(shown, rule, session.device, ("train", "valid"), session.track)
        yield Ready(source, run, kit, held, session)


def run_selector(source: PartSource, run: Run, changes: Changes, support_cap: int | None) -> None:
    """URT's heads, on the kit's extractors."""
    kit_path, folder = places(source.out, "selector")
    with ready(source, run) as found:
        make = baselines.quick_selector if source.quick else baselines.paper_selector
        recipe = found.recipe(make(), changes)
        protocol = capped(QUICK_TASKS if source.quick else VARYING, support_cap)
        trained = train_selector(
            extractors_of(found.kit),
            found.held,
            recipe.settings,
            folder,
            protocol=protocol,
            **found.session.options(recipe.watch),
        )
        info = {"selector": about(recipe.settings, trained.outcome, protocol)}
        names = ", ".join(trained.part.settings["domains"])
        found.keep(kit_path, {URT: trained.part}, info, f"trained a selector of {names}")


def run_modulator(
    which: Which, source: PartSource, run: Run, changes: Changes, support_cap: int | None
) -> None:
    """Simple CNAPS's or tri-M's hyper-network, for the kit's backbone."""
    kit_path, folder = places(source.out, which)
    with ready(source, run) as found:
        make = baselines.quick_modulator if source.quick else baselines.paper_modulator
        recipe = found.recipe(make(which), changes)
        protocol = capped(QUICK_TASKS if source.quick else baselines.CNAPS_TASKS, support_cap)
        trained = train_modulator(
            which,
            found.kit.backbone,
            ResidentTasks(found.held, protocol),
            recipe.settings,
            folder,
            **found.session.options(recipe.watch),
        )
        name = SIMPLE_CNAPS if which == "cnaps" else TRIM
        info = {name: about(recipe.settings, trained.outcome, protocol)}
        found.keep(kit_path, {name: trained.part}, info, f"trained {name} on {', '.join(found.held)}")


def run_maml(rule: str, source: PartSource, run: Run, changes: Changes, support_cap: int | None) -> None:
    """Proto-MAML's weights and what a rule on top of it learns; the part is the rule's own."""
    kit_path, folder = places(source.out, f"maml-{rule}")
    with ready(source, run) as found:
        names = tuple(found.held)
        recipe = found.recipe((quick_maml if source.quick else paper_maml)(rule, names), changes)
        protocol = capped(QUICK_TASKS if source.quick else VARYING, support_cap)
        trained = train_maml(
            found.kit.backbone,
            ResidentTasks(found.held, protocol),
            recipe.settings,
            folder,
            **found.session.options(recipe.watch),
        )
        info = {trained.method: about(recipe.settings, trained.outcome, protocol)}
        sentence = f"trained {trained.method} on {', '.join(names)}"
        found.keep(kit_path, {trained.method: trained.part}, info, sentence)


def run_flute(source: PartSource, run: Run, template_changes: Changes, blender_changes: Changes) -> None:
    """FLUTE's template with its FiLM, then its blender; each has its own folder in the run's."""
    kit_path, folder = places(source.out, "flute")
    with ready(source, run) as found:
        kit, sets = found.kit, 0 if run.validation_tasks == 0 else None
        template = baselines.quick_template() if source.quick else baselines.paper_template()
        template = found.recipe(template, template_changes)
        blender = baselines.quick_blender() if source.quick else baselines.paper_blender()
        blender = changed(blender, run.save_every, seed=run.seed, validation_sets=sets, **blender_changes)
        varied = as_the_backbone_was(kit, template.settings.augmentation)
        template = replace(template, settings=replace(template.settings, **varied))
        blender = replace(blender, settings=replace(blender.settings, **varied))
        protocol = QUICK_TASKS if source.quick else VARYING
        first = train_template(
            kit.backbone,
            found.held,
            template.settings,
            folder / "template",
            protocol=protocol,
            **found.session.options(template.watch),
        )
        second = train_blender(
            found.held, blender.settings, folder / "blender", **found.session.options(blender.watch)
        )
        part = Part(
            {**first.tensors, **join({"blender": second.tensors})},
            {"domains": list(found.held), "code": blender.settings.code},
        )
        info = {
            "flute": about(template.settings, first.outcome, protocol),
            "blender": about(blender.settings, second.outcome),
        }
        found.keep(kit_path, {FLUTE: part}, info, f"trained FLUTE on {', '.join(found.held)}")


def as_the_backbone_was(kit: Kit, otherwise: Augmentation) -> dict[str, Any]:
    """Settings that vary images as they were varied for the kit's backbone, where the kit says so."""
    known = kit.info.get("backbone", {}).get("settings", {})
    varied = Augmentation(**known["augmentation"]) if "augmentation" in known else otherwise
    varied = replace(varied, pad=min(varied.pad, kit.images.size // 8))
    return {"augmentation": varied, "never_mirrored": tuple(known.get("never_mirrored", ()))}
