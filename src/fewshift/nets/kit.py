"""Kits as files: one safetensors file per kit. The value itself is in `fewshift.nets.kit_value`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fewshift.core.precond import DomainPreconditioners
from fewshift.core.starts import DomainStarts, LowRankStarts, Starts
from fewshift.errors import FewshiftError
from fewshift.nets import architectures
from fewshift.nets.adapters import ResidualAdapters, adapters_at
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.kit_value import ImageSettings, Kit, Part
from fewshift.nets.learned import blank
from fewshift.nets.resnet import ResNet18
from fewshift.nets.set_encoder import DatasetClassifier, FeatureClassifier
from fewshift.nets.tensor_file import Kind, join, part, read_tensors, write_tensors
from fewshift.nets.weights import load_fully

__all__ = ["KIT", "ImageSettings", "Kit", "Part", "load_kit", "save_kit", "write_info"]

KIT = Kind("kit", "fewshift-kit", version=1)


def save_kit(
    kit: Kit,
    path: str | Path,
    *,
    weights: bool | None = None,
    roots_dtype: torch.dtype | None = None,
    starts_dtype: torch.dtype | None = None,
    weights_dtype: torch.dtype | None = None,
) -> None:
    """Write a kit, all or nothing.

    Without `weights` it holds only the backbone's fingerprint, and loading needs that backbone or the package
    that carries it; None leaves out just those that a package carries. `roots_dtype`, `starts_dtype` and
    `weights_dtype` (float16 or bfloat16) halve preconditioners, starting values and backbone, which are used
    in full precision again. Rounded weights are another backbone: its fingerprint is the one that is kept.
    Weights that are left out are not rounded.
    """
    backbone = kit.backbone
    classifier, architecture = kit.classifier, architectures.described(backbone.net)
    if weights is None:
        weights = not architectures.its_package_has(backbone)
    if weights and weights_dtype is not None:
        backbone = backbone.to(dtype=weights_dtype).to(dtype=backbone.dtype)
    if weights and architecture is None:
        raise FewshiftError(
            f"a kit can hold the weights of networks that Fewshift can build, not those of "
            f"{type(backbone.net).__name__}: use weights=False"
        )
    roots = kit.preconditioners.roots if kit.preconditioners else {}
    starts = _starts_parts(kit.starts, kit.backbone)
    header = {
        "architecture": architecture,
        "sites": list(backbone.sites) if isinstance(backbone.adapters, ResidualAdapters) else None,
        "fingerprint": backbone.fingerprint(),
        "weights": weights,
        "dtype": str(backbone.dtype).removeprefix("torch."),
        "images": asdict(kit.images),
        "domains": list(kit.domains),
        "design": kit.preconditioners.design if kit.preconditioners else None,
        "classifier": _classifier_header(classifier),
        "info": dict(kit.info),
        "parts": {name: dict(found.settings) for name, found in kit.parts.items()},
    }
    parts: dict[str, Mapping[str, Tensor]] = {
        "backbone": _as(backbone.frozen, weights_dtype) if weights else {},
        "roots": _as(roots, roots_dtype),
        **{name: _as(tensors, starts_dtype) for name, tensors in starts.items()},
        "classifier": classifier.state_dict() if classifier else {},
        **{f"part {name}": found.tensors for name, found in kit.parts.items()},
    }
    write_tensors(path, KIT, header, join(parts))


def write_info(source: Path, info: Mapping[str, Any], path: Path) -> None:
    """A kit's file again with other `info`: its tensors stay as they are stored, 16 bits or 32."""
    header, tensors = read_tensors(source, KIT)
    write_tensors(path, KIT, {**header, "info": dict(info)}, tensors)


def load_kit(path: str | Path, device: torch.device | str = "cpu", backbone: Backbone | None = None) -> Kit:
    """Read a kit, by a bundled one's name or its path. Given a backbone, it must have been made for it."""
    from fewshift.nets.bundled import kit_path  # which reads kits itself

    path = kit_path(path)
    header, tensors = read_tensors(path, KIT)
    found = _backbone(header, tensors, path) if backbone is None else _accepted(header, backbone, path)
    domains, design = tuple(header["domains"]), header["design"]
    preconditioners = None
    if design is not None:
        preconditioners = DomainPreconditioners(domains, part(tensors, "roots"), design)
        preconditioners = preconditioners.to("cpu", found.dtype)
    starts = _starts(domains, tensors, found)
    classifier = _classifier(header["classifier"], part(tensors, "classifier"), found.dtype, path)
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in header["images"].items()}
    images = ImageSettings(**fields)
    parts = {name: Part(part(tensors, f"part {name}"), own) for name, own in header["parts"].items()}
    return Kit(found, images, preconditioners, starts, classifier, domains, header["info"], parts).to(device)


def _as(tensors: Mapping[str, Tensor], dtype: torch.dtype | None) -> dict[str, Tensor]:
    if dtype is None:
        return dict(tensors)
    rounded = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    for name, tensor in rounded.items():
        if not bool(tensor.isfinite().all()):
            kind = str(dtype).removeprefix("torch.")
            raise FewshiftError(f"{name} holds numbers that {kind} has no room for: keep this part as it is")
    return rounded


def _starts_parts(starts: Starts | None, backbone: Backbone) -> dict[str, Mapping[str, Tensor]]:
    if starts is None:
        return {}
    usual = backbone.init()  # what is the backbone's own is not stored again
    base = {s: v for s, v in (starts.base or {}).items() if not torch.equal(v, usual[s].to(v.device))}
    if isinstance(starts, LowRankStarts):
        return {"starts left": starts.left, "starts right": starts.right, "starts base": base}
    return {"starts": starts.values, "starts base": base}


def _starts(domains: tuple[str, ...], tensors: dict[str, Tensor], backbone: Backbone) -> Starts | None:
    own = part(tensors, "starts base")
    base = {site: own.get(site, value.cpu()) for site, value in backbone.init().items()}
    if values := part(tensors, "starts"):
        found = DomainStarts(domains, values, base if own else None)
        return found.to("cpu", backbone.dtype)
    if left := part(tensors, "starts left"):
        base = {site: value for site, value in base.items() if site in left}
        return LowRankStarts(domains, base, left, part(tensors, "starts right")).to("cpu", backbone.dtype)
    return None


def _classifier_header(classifier: nn.Module | None) -> dict[str, Any] | None:
    if classifier is None:
        return None
    own = vars(classifier)  # `dim` is a FeatureClassifier's alone
    return {name: own[name] for name in ("domains", "dim", "width") if name in own}


def _classifier(
    header: dict[str, Any] | None, state: dict[str, Tensor], dtype: torch.dtype, path: Path
) -> DatasetClassifier | FeatureClassifier | None:
    if header is None:
        return None
    kind = FeatureClassifier if "dim" in header else DatasetClassifier
    net: DatasetClassifier | FeatureClassifier = blank(lambda: kind(**header))
    load_fully(net, state, path)
    return net.to(dtype).eval().requires_grad_(False)


def _backbone(header: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> Backbone:
    architecture = header["architecture"]
    if not header["weights"]:
        if not architectures.comes_from_a_package(architecture):
            raise FewshiftError(
                f"{path} holds no backbone, only the fingerprint {header['fingerprint'][:12]} of the one "
                "it was made for: give that backbone too"
            )
        return _accepted(header, _with_sites(architectures.with_weights(architecture), header), path)
    dtype = getattr(torch, header["dtype"])
    state = {name: tensor.to(dtype) for name, tensor in part(tensors, "backbone").items()}
    net = architectures.empty(architecture).to(dtype)
    load_fully(net, state, path)
    return _with_sites(net, header)


def _with_sites(net: nn.Module, header: dict[str, Any]) -> Backbone:
    sites = header["sites"]
    return freeze(net) if sites is None else freeze(net, adapters_at(net, sites[:-1], sites[-1]))


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
