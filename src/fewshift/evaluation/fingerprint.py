"""A kit's fingerprint: equal ones give equal numbers, whatever file they came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict

import torch
from torch import Tensor

from fewshift.nets.kit import Kit

REPORTED = "validation"  # how good a kit was found, and how sure it may be: no accuracy depends on that


def kit_fingerprint(kit: Kit) -> str:
    """A short hash of all that a method may be built from: weights, what was learned for them, settings."""
    settings = {
        "backbone": kit.backbone.fingerprint(),
        "images": asdict(kit.images),
        "domains": kit.domains,
        "design": kit.preconditioners.design if kit.preconditioners else None,
        "info": {name: told for name, told in kit.info.items() if name != REPORTED},
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    parts: dict[str, Mapping[str, Tensor]] = {
        "roots": kit.preconditioners.roots if kit.preconditioners else {},
        "starts": kit.starts.values if kit.starts else {},
        "classifier": kit.classifier.state_dict() if kit.classifier else {},
        **{f"part {name}": part.tensors for name, part in sorted(kit.parts.items())},
    }
    for part, tensors in parts.items():
        for name, tensor in sorted(tensors.items()):
            digest.update(f"{part} {name} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
