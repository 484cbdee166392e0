"""A kit: everything a method may be built from, as one value and as one file."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from fewshift.core.precond import DomainPreconditioners
from fewshift.core.starts import DomainStarts
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.resnet import ResNet18
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.nets.tensor_file import Kind, join, part, read_tensors, write_tensors
from fewshift.nets.weights import load_fully
from fewshift.types import TaskParams

KIT = Kind("kit", "fewshift-kit", version=1)


@dataclass(frozen=True)
class ImageSettings:
    """What the backbone expects of its images: the fields of a pixel rule, as plain data."""

    size: int = 84
    kind: Literal["protocol", "practical"] = "protocol"
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)  # on the scale [0, 1]
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    crop: float | None = None
    filter: Literal["bilinear", "bicubic"] = "bilinear"
    rounded: bool = False


@dataclass(frozen=True)
class Part:
    """What one method learned for a kit's backbone: named tensors, and settings that JSON can say."""

    tensors: Mapping[str, Tensor]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to(self, device: torch.device | str) -> Part:
        """The same part on another device."""
        return replace(self, tensors={name: tensor.to(device) for name, tensor in self.tensors.items()})


@dataclass(frozen=True)
class Kit:
    """A frozen backbone and what was learned for it, in parts that may be missing.

    `info` holds hyper-parameters and the protocol they were chosen under: anything that JSON can say.
    """

    backbone: Backbone
    images: ImageSettings = ImageSettings()
    preconditioners: DomainPreconditioners | None = None
    starts: DomainStarts | None = None  # None: TSA's values for every domain
    classifier: DatasetClassifier | None = None
    domains: tuple[str, ...] = ()  # in the order of coefficients; taken from the parts when not given
    info: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)  # of methods other than TSP, by their names

    def __post_init__(self) -> None:
        for name, learned in (("preconditioners", self.preconditioners), ("starting values", self.starts)):
            if learned is None:
                continue
            if not self.domains:
                object.__setattr__(self, "domains", learned.domains)
            if learned.domains != self.domains:
                raise FewshiftError(
                    f"the kit's domains are {', '.join(self.domains)}, "
                    f"but its {name} are for {', '.join(learned.domains)}"
                )
        if self.classifier is not None and self.classifier.domains != len(self.domains):
            raise FewshiftError(
                f"the dataset classifier tells {self.classifier.domains} domains apart, "
                f"but the kit has {len(self.domains)}: {', '.join(self.domains) or 'none'}"
            )
        self._check_sites()

    def start(self, coefficients: Tensor | None = None) -> TaskParams:  # (K,)
        """The parameters a task starts from: the domains' starting values blended, or else TSA's."""
        if self.starts is None or coefficients is None:
            return self.backbone.init()
        return self.starts.blend(coefficients)

    def to(self, device: torch.device | str) -> Kit:
        """The same kit on another device; this one stays where it is."""
        return replace(
            self,
            backbone=self.backbone.to(device),
            preconditioners=self.preconditioners and self.preconditioners.to(device),
            starts=self.starts and self.starts.to(device),
            classifier=self.classifier and copy.deepcopy(self.classifier).to(device),
            parts={name: part.to(device) for name, part in self.parts.items()},
        )

    def part(self, name: str, remedy: str) -> Part:
        """What the method `name` learned; where it learned nothing yet, `remedy` is the command for it."""
        if name not in self.parts:
            raise FewshiftError(f"the kit has nothing trained for {name}: run {remedy}")
        return self.parts[name]

    def with_(self, **changes: Any) -> Kit:
        """The kit with some parts replaced."""
        return replace(self, **changes)

    def _check_sites(self) -> None:
        start = self.backbone.init()
        roots = self.preconditioners.roots if self.preconditioners else {}
        values = self.starts.values if self.starts else {}
        for site in (*roots, *values):
            if site not in start:
                raise FewshiftError(f"the kit has something for {site!r}, a site its backbone does not have")
        for site, root in roots.items():
            if root.shape[-1] != start[site].shape[0]:
                raise FewshiftError(
                    f"the preconditioner of {site} is for {root.shape[-1]} channels, "
                    f"but the backbone has {start[site].shape[0]} there"
                )
        for site, value in values.items():
            if value.shape[1:] != start[site].shape:
                raise FewshiftError(
                    f"the starting values of {site} have shape {tuple(value.shape[1:])}, "
                    f"but the backbone needs {tuple(start[site].shape)}"
                )


def save_kit(
    kit: Kit,
    path: str | Path,
    *,
    weights: bool = True,
    roots_dtype: torch.dtype | None = None,
    weights_dtype: torch.dtype | None = None,
) -> None:
    """Write a kit, all or nothing.

    Without `weights` it holds only the backbone's fingerprint, and loading needs that backbone. `roots_dtype`
    and `weights_dtype` (float16 or bfloat16) halve the preconditioners and the backbone; both are used in
    full precision again. Rounded weights are another backbone: its fingerprint is the one that is kept.
    """
    backbone = kit.backbone
    if weights_dtype is not None:
        backbone = backbone.to(dtype=weights_dtype).to(dtype=backbone.dtype)
    net, classifier, roots = backbone.net, kit.classifier, {}
    architecture = None
    if type(net) is ResNet18:
        architecture = {"name": "ResNet18", "width": net.width, "stem_padding": net.stem_padding}
    elif weights:
        raise FewshiftError(
            f"a kit can hold the weights of a ResNet18, not those of {type(net).__name__}: use weights=False"
        )
    if kit.preconditioners is not None:
        roots = {site: root.to(roots_dtype or root.dtype) for site, root in kit.preconditioners.roots.items()}
    header = {
        "architecture": architecture,
        "fingerprint": backbone.fingerprint(),
        "weights": weights,
        "dtype": str(backbone.dtype).removeprefix("torch."),
        "images": asdict(kit.images),
        "domains": list(kit.domains),
        "design": kit.preconditioners.design if kit.preconditioners else None,
        "classifier": {"domains": classifier.domains, "width": classifier.width} if classifier else None,
        "info": dict(kit.info),
        "parts": {name: dict(found.settings) for name, found in kit.parts.items()},
    }
    parts: dict[str, Mapping[str, Tensor]] = {
        "backbone": {n: t.to(weights_dtype or t.dtype) for n, t in backbone.frozen.items()}
        if weights
        else {},
        "roots": roots,
        "starts": kit.starts.values if kit.starts else {},
        "classifier": classifier.state_dict() if classifier else {},
        **{f"part {name}": found.tensors for name, found in kit.parts.items()},
    }
    write_tensors(path, KIT, header, join(parts))


def load_kit(path: str | Path, device: torch.device | str = "cpu", backbone: Backbone | None = None) -> Kit:
    """Read a kit. Given a backbone, the kit must have been made for it."""
    path = Path(path)
    header, tensors = read_tensors(path, KIT)
    found = _backbone(header, tensors, path) if backbone is None else _accepted(header, backbone, path)
    domains, design = tuple(header["domains"]), header["design"]
    preconditioners = starts = classifier = None
    if design is not None:
        preconditioners = DomainPreconditioners(domains, part(tensors, "roots"), design)
        preconditioners = preconditioners.to("cpu", found.dtype)
    if values := part(tensors, "starts"):
        starts = DomainStarts(domains, values).to("cpu", found.dtype)
    if header["classifier"] is not None:
        with torch.device("meta"):  # no random numbers are drawn
            classifier = DatasetClassifier(**header["classifier"])
        classifier = classifier.to_empty(device="cpu").eval().requires_grad_(False)
        load_fully(classifier, part(tensors, "classifier"), path)
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in header["images"].items()}
    images = ImageSettings(**fields)
    known = header.get("parts", {})  # files of earlier versions have none
    parts = {name: Part(part(tensors, f"part {name}"), settings) for name, settings in known.items()}
    return Kit(found, images, preconditioners, starts, classifier, domains, header["info"], parts).to(device)


def _backbone(header: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> Backbone:
    if not header["weights"]:
        raise FewshiftError(
            f"{path} holds no backbone, only the fingerprint {header['fingerprint'][:12]} of the one "
            "it was made for: give that backbone too"
        )
    state = part(tensors, "backbone")
    with torch.device("meta"):
        net = ResNet18(header["architecture"]["width"], header["architecture"]["stem_padding"])
    dtype = getattr(torch, header["dtype"])
    state = {name: tensor.to(dtype) for name, tensor in state.items()}
    net = net.to(dtype).to_empty(device="cpu")
    counters = {n: torch.tensor(0) for n in net.state_dict() if n.endswith("num_batches_tracked")}
    net.load_state_dict(counters, strict=False)
    load_fully(net, state, path)
    return freeze(net)


def _accepted(header: dict[str, Any], backbone: Backbone, path: Path) -> Backbone:
    mark = backbone.fingerprint()
    if mark != header["fingerprint"]:
        raise FewshiftError(
            f"{path} was made for another backbone: its fingerprint is {header['fingerprint'][:12]}, "
            f"the one given has {mark[:12]}"
        )
    wanted, net = header["architecture"], backbone.net
    if wanted and isinstance(net, ResNet18) and net.stem_padding != wanted["stem_padding"]:
        raise FewshiftError(
            f"{path} was made with a stem padding of {wanted['stem_padding']}, "
            f"but the backbone given has {net.stem_padding}: build it with the kit's"
        )
    return backbone
