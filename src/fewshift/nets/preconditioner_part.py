"""Preconditioners that a kit keeps beside TSP†'s: as one of its parts."""

from __future__ import annotations

from fewshift.core.precond import DomainPreconditioners
from fewshift.errors import FewshiftError
from fewshift.nets.kit import Kit, Part

UNDER_POLICY = "preconditioners under the policy"  # TSP††'s


def preconditioner_part(learned: DomainPreconditioners) -> Part:
    """Preconditioners as a kit's part."""
    settings = {"domains": list(learned.domains), "design": learned.design}
    return Part({site: root.detach().cpu() for site, root in learned.roots.items()}, settings)


def preconditioners_of(kit: Kit, name: str) -> DomainPreconditioners:
    """The preconditioners in the part of this name, in the kit's precision."""
    part = kit.parts[name]
    domains = tuple(part.settings["domains"])
    if domains != kit.domains:
        raise FewshiftError(
            f"the kit's {name} are for {', '.join(domains)}, but its domains are {', '.join(kit.domains)}: "
            "train them again"
        )
    learned = DomainPreconditioners(domains, part.tensors, part.settings["design"])
    return learned.to(kit.backbone.device, kit.backbone.dtype)
