"""The work behind `fewshift train maml`."""

from __future__ import annotations

from fewshift.cli.train_parts import about, capped, ready, with_changes
from fewshift.cli.train_shared import places
from fewshift.cli.train_wanted import Wanted
from fewshift.data.protocol import VARYING
from fewshift.presets.maml import paper_maml, quick_maml
from fewshift.presets.training import QUICK_TASKS
from fewshift.training.maml import train_maml
from fewshift.training.tasks import ResidentTasks


def run(rule: str, wanted: Wanted) -> None:
    """Meta-train, then write the kit with what was learned as a part of it."""
    kit_path, folder = places(wanted.source.out, f"maml-{rule}")
    with ready(wanted) as found:
        names = tuple(found.held)
        recipe = (quick_maml if wanted.quick else paper_maml)(rule, names)
        recipe = with_changes(recipe, wanted, wanted.changes)
        protocol = capped(QUICK_TASKS if wanted.quick else VARYING, wanted)
        trained = train_maml(
            found.kit.backbone,
            ResidentTasks(found.held, protocol),
            recipe.settings,
            folder,
            watch=recipe.watch,
            resume=wanted.run.resume,
            track=found.track,
            team=found.team,
        )
        info = {trained.method: about(recipe.settings, trained.outcome, protocol)}
        sentence = f"trained {trained.method} on {', '.join(names)}"
        found.keep(kit_path, {trained.method: trained.part}, info, sentence)
