"""Named tensors with a JSON header in one safetensors file, with a checksum over both. No pickle anywhere."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fewshift import __version__
from fewshift.errors import FewshiftError


class Kind(NamedTuple):
    """What a file is: `noun` for people, `mark` for the file, `version` of its layout."""

    noun: str
    mark: str
    version: int


def write_tensors(
    path: str | Path, kind: Kind, header: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Write the file, all or nothing."""
    stored = _apart({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    full = {**header, "version": kind.version, "written_by": __version__}
    try:
        text = json.dumps(full, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise FewshiftError(f"what a {kind.noun} says of itself must be plain JSON: {problem}") from problem
    # One entry only: safetensors writes several in an order that changes from run to run.
    metadata = {kind.mark: json.dumps({"header": text, "sha256": _checksum(text, stored)})}
    _write(Path(path), safetensors.torch.save(stored, metadata))


def read_tensors(path: str | Path, kind: Kind) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors, on the CPU; anything wrong with the file is one sentence."""
    text, checksum, tensors = _opened(Path(path), kind, with_tensors=True)
    if checksum != _checksum(text, tensors):
        raise FewshiftError(f"{path} is damaged, its checksum does not fit its content: get or make it again")
    return _header(text, path, kind), tensors


def read_header(path: str | Path, kind: Kind) -> dict[str, Any]:
    """The header alone, without a look at the tensors: quick, but nothing is checked against the checksum."""
    return _header(_opened(Path(path), kind, with_tensors=False)[0], path, kind)


def _opened(path: Path, kind: Kind, with_tensors: bool) -> tuple[str, str, dict[str, Tensor]]:
    """The header's text, the checksum and the tensors; no text and no checksum where they are damaged."""
    if not path.is_file():
        raise FewshiftError(f"there is no {kind.noun} {path}: give the path of a file that Fewshift wrote")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            names = file.keys() if with_tensors else ()
            tensors = {name: file.get_tensor(name) for name in names}
    except OSError as problem:
        raise FewshiftError(f"{path} cannot be read: {problem.strerror or problem}") from problem
    except Exception as problem:  # the library answers damaged files with several types
        raise FewshiftError(
            f"{path} is no safetensors file, or it is damaged: get or make it again"
        ) from problem
    if kind.mark not in metadata:
        raise FewshiftError(
            f"{path} is a safetensors file but no Fewshift {kind.noun}: give one that Fewshift wrote"
        )
    try:
        described = json.loads(metadata[kind.mark])
        return str(described["header"]), str(described["sha256"]), tensors
    except (ValueError, KeyError, TypeError):
        return "", "", tensors


def _header(text: str, path: str | Path, kind: Kind) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads(text)
        version, writer = header["version"], header["written_by"]
    except (ValueError, LookupError, TypeError) as problem:
        raise FewshiftError(
            f"{path} is damaged, its header cannot be read: get or make it again"
        ) from problem
    if version != kind.version:
        newer = version > kind.version
        age, remedy = ("a newer", "update Fewshift") if newer else ("an older", "make it again")
        raise FewshiftError(f"{path} was written by {age} Fewshift ({writer}): {remedy}")
    return header


def join(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Parts of named tensors as one dictionary, `part/name`."""
    return {f"{part}/{name}": tensor for part, named in parts.items() for name, tensor in named.items()}


def part(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors of one part, under their own names."""
    prefix = f"{name}/"
    return {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each with memory of its own, as safetensors wants it: a kit's backbone may be one of its extractors."""
    known: set[int] = set()
    found = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        found[name] = tensor.clone() if memory in known else tensor
        known.add(memory)
    return found


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _write(path: Path, content: bytes) -> None:
    if path.exists() and not path.is_file() and not path.is_dir():  # the file would take its place
        raise FewshiftError(f"{path} is a pipe or a device, not a file: give the name of a file to write")
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")  # threads have one process number
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as problem:
        raise FewshiftError(
            f"{path} cannot be written ({problem.strerror or problem}): make room or give another place"
        ) from problem
