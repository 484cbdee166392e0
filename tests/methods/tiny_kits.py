"""A kit from which every method can be built: a narrow network, small random values for all that is learned.

A method that learns something adds one function here that puts it into the kit, by its own initialiser, and
names it in `FILLERS`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import torch

from fewshift.core.precond import initial_preconditioners
from fewshift.core.rules import RULES
from fewshift.core.starts import DomainStarts
from fewshift.core.urt import initial_selector
from fewshift.nets.backbone import freeze
from fewshift.nets.extractors import extractors_part
from fewshift.nets.film import norms_as_film
from fewshift.nets.kit import Kit, Part
from fewshift.nets.policy import PART, new_policy, policy_part
from fewshift.nets.resnet import ResNet18
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.nets.tensor_file import join
from fewshift.presets.rates import TUNABLE
from fewshift.training.blender import new_blender
from fewshift.training.maml import MamlSettings, maml_part, meta_learned
from fewshift.training.modulators import Which, new_modulator

DOMAINS = ("birds", "cars", "glyphs")


def bare_kit() -> Kit:
    """Random weights and random batch statistics; nothing is learned for it."""
    net = ResNet18(width=4)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.8, 1.2)
    return Kit(freeze(net), domains=DOMAINS)


def with_preconditioners(kit: Kit) -> Kit:
    sizes = {site: value.shape[0] for site, value in kit.backbone.init().items()}
    learned = initial_preconditioners(DOMAINS, sizes)
    roots = {site: root + 0.05 * torch.randn_like(root) for site, root in learned.roots.items()}
    return kit.with_(preconditioners=replace(learned, roots=roots))


def with_starts(kit: Kit) -> Kit:
    values = {site: v + 0.01 * torch.randn(3, *v.shape) for site, v in kit.backbone.init().items()}
    return kit.with_(starts=DomainStarts(DOMAINS, values))


def with_classifier(kit: Kit) -> Kit:
    return kit.with_(classifier=DatasetClassifier(len(DOMAINS), width=4).eval().requires_grad_(False))


def with_rates(kit: Kit) -> Kit:
    rates = {"seen": [0.05, 0.3], "unseen": [0.25, 0.05]}
    return kit.with_(info={**kit.info, "rates": dict.fromkeys(TUNABLE, rates)})


def with_policy(kit: Kit) -> Kit:
    """A random policy: its choices differ from site to site and from task to task."""
    return kit.with_(parts={**kit.parts, PART: policy_part(new_policy(kit.backbone, 1.0, seed=3))})


def with_maml(kit: Kit) -> Kit:
    """Weights and rules as after some training: all of them a little off their start."""
    parts = dict(kit.parts)
    for name, rule in RULES.items():
        settings = MamlSettings(rule=name, inner_rate=0.01, steps=2, test_steps=3, norm="support")
        learned = meta_learned(kit.backbone, settings).start()
        noisy = {name: t + 0.02 * torch.randn_like(t) for name, t in learned.items()}
        parts[rule.method] = maml_part(kit.backbone, settings, noisy)
    return kit.with_(parts=parts)


def with_extractors(kit: Kit) -> Kit:
    """A network a domain, and a selector that attends to them unevenly."""
    extractors = extractors_part(kit, {domain: bare_kit().backbone for domain in DOMAINS})
    generator = torch.Generator().manual_seed(0)
    selector = initial_selector(len(DOMAINS), kit.backbone.dim, 2, 16, generator)
    selector = {name: t if name == "temperature" else 100 * t for name, t in selector.items()}
    parts = {"extractors": extractors, "urt": Part(selector, {"domains": list(DOMAINS)})}
    return kit.with_(parts={**kit.parts, **parts})


def with_modulators(kit: Kit) -> Kit:
    """Hyper-networks whose FiLM is far from the identity."""
    settings, parts = {"code": 8, "domains": list(DOMAINS)}, {}
    kinds: dict[str, Which] = {"simple_cnaps": "cnaps", "trim": "trim"}
    for name, which in kinds.items():
        made = new_modulator(which, kit.backbone, len(DOMAINS), 8, seed=0).state_dict()
        loud = {n: 200 * t if n.endswith(".gain") else t for n, t in made.items()}
        parts[name] = Part(loud, settings)
    return kit.with_(parts={**kit.parts, **parts})


def with_flute(kit: Kit) -> Kit:
    """A random template, different FiLM for every domain, and a blender."""
    template, films = norms_as_film(bare_kit().backbone, len(DOMAINS))
    films = {site: film + 0.1 * torch.randn_like(film) for site, film in films.items()}
    blender = new_blender(len(DOMAINS), 8, seed=0).state_dict()
    tensors = join({"template": template, "films": films, "blender": blender})
    part = Part(tensors, {"code": 8, "domains": list(DOMAINS)})
    return kit.with_(parts={**kit.parts, "flute": part})


def with_bohb(kit: Kit) -> Kit:
    """Another extractor of the same shape."""
    noisy = {
        name: tensor * (1 + 0.1 * torch.rand_like(tensor)) for name, tensor in kit.backbone.frozen.items()
    }
    return kit.with_(parts={**kit.parts, "bohb": Part(noisy, {"best": 0, "trials": []})})


FILLERS: tuple[Callable[[Kit], Kit], ...] = (
    with_preconditioners,
    with_starts,
    with_classifier,
    with_rates,
    with_policy,
    with_maml,
    with_bohb,
    with_extractors,
    with_modulators,
    with_flute,
)


def full_kit() -> Kit:
    """The bare kit after every filler; the same one each time."""
    torch.manual_seed(0)
    kit = bare_kit()
    for fill in FILLERS:
        kit = fill(kit)
    return kit


def in_double(kit: Kit) -> Kit:
    """The same kit in float64, with all that methods learned for it."""
    return kit.with_(
        backbone=kit.backbone.to(dtype=torch.float64),
        preconditioners=kit.preconditioners and kit.preconditioners.to("cpu", torch.float64),
        starts=kit.starts and kit.starts.to("cpu", torch.float64),
        classifier=kit.classifier and copy.deepcopy(kit.classifier).double(),
        parts={name: _part_in_double(part) for name, part in kit.parts.items()},
    )


def _part_in_double(part: Part) -> Part:
    floats = {n: t.double() if t.is_floating_point() else t for n, t in part.tensors.items()}
    return replace(part, tensors=floats)
