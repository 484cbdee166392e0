"""The work behind `fewshift train policy` and `fewshift train preconditioners --policy`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fewshift.cli.options import words
from fewshift.cli.train_meta import MetaWanted, prepared, refuse_idle, ways_to_learn
from fewshift.cli.train_shared import places
from fewshift.errors import FewshiftError
from fewshift.nets.kit import Kit, Part
from fewshift.nets.policy import (
    PART,
    UNDER_POLICY,
    adapted_convs,
    policy_of,
    policy_part,
    preconditioner_part,
)
from fewshift.presets.meta_training import PRECONDITIONERS
from fewshift.presets.rates import BY_METHOD
from fewshift.presets.training import paper_policy, quick_policy
from fewshift.training.policy import train_policy
from fewshift.training.preconditioners import train_preconditioners


def run_under_policy(wanted: MetaWanted) -> None:
    """Algorithm 1 under the kit's policy; TSP†'s preconditioners and the classifier stay in the kit."""
    if wanted.preset not in ("paper", "quick"):
        raise FewshiftError(f"--policy has no settings for --preset {wanted.preset}: choose paper or quick")
    kit_path, folder = places(wanted.source.out, "tsp_ta2")
    with prepared(wanted, words(wanted.domains), policy_of) as ready:
        domains = ready.tasks.domains
        if ready.kit.domains and ready.kit.domains != domains:
            raise FewshiftError(
                f"--policy: the kit's domains are {', '.join(ready.kit.domains)}, these are "
                f"{', '.join(domains)}: name the same with --domains"
            )
        recipe = ready.recipe(PRECONDITIONERS[wanted.preset](domains))
        refuse_idle(wanted, recipe.settings)
        ways = ways_to_learn(ready)
        trained = train_preconditioners(
            ready.kit.backbone,
            ready.tasks,
            recipe.settings,
            folder,
            meta_gradients=ways,
            policy=policy_of(ready.kit),
            **ready.session.options(recipe.watch),
        )
        part = preconditioner_part(trained.preconditioners)
        about = ready.about(recipe.settings, trained.outcome, ways)
        kit = _with_part(_without_rates(ready.kit, "tsp_ta2"), UNDER_POLICY, part, about)
        sentence = f"trained preconditioners of {', '.join(domains)} under the policy"
        ready.finish(kit, kit_path, sentence, trained.outcome)


def run_policy(wanted: MetaWanted) -> None:
    """TA²-Net's policy, then write the kit."""
    kit_path, folder = places(wanted.source.out, "policy")
    with prepared(wanted, words(wanted.domains), lambda kit: adapted_convs(kit.backbone)) as ready:
        make = quick_policy if wanted.preset == "quick" else paper_policy
        recipe = ready.recipe(make(ready.tasks.domains))
        trained = train_policy(
            ready.kit.backbone, ready.tasks, recipe.settings, folder, **ready.session.options(recipe.watch)
        )
        about = ready.about(recipe.settings, trained.outcome)
        before = _without_rates(ready.kit, "ta2", "tsp_ta2")
        # preconditioners that were trained under the old policy go
        others = {name: own for name, own in before.parts.items() if name != UNDER_POLICY}
        kit = _with_part(replace(before, parts=others), PART, policy_part(trained.policy), about)
        sentence = f"trained a policy on {', '.join(ready.tasks.domains)}"
        ready.finish(kit, kit_path, sentence, trained.outcome)


def _without_rates(kit: Kit, *methods: str) -> Kit:
    """The kit without what validation chose for these methods as they were."""
    told = {
        name: {method: own for method, own in found.items() if method not in methods}
        for name, found in kit.info.items()
        if name in BY_METHOD
    }
    return replace(kit, info={**kit.info, **told})


def _with_part(kit: Kit, name: str, part: Part, about: Mapping[str, Any]) -> Kit:
    """The kit with one more part."""
    kit = kit.to("cpu")
    return replace(kit, parts={**kit.parts, name: part}, info={**kit.info, name: about})
