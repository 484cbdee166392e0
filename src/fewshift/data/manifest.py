"""Manifests: planned tasks in a file, to share or to keep, so that everybody meets the same images.

JSON lines, gzipped when the name ends in .gz. The first line is a header (protocol, seed, a fingerprint of
every spec, number and checksum of the tasks); every other line is a task: domain, split, index, class ids,
and for each class the indices of its support and query images.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fewshift.data.plan import TaskPlan, describe, plans
from fewshift.data.protocol import Protocol
from fewshift.data.spec import Spec
from fewshift.data.whole_files import write_whole
from fewshift.errors import DataError, FewshiftError
from fewshift.types import SPLITS, Address, Split

FORMAT = "fewshift-tasks-1"
MAX_BYTES = 2**30  # unpacked; 600 tasks of 13 domains have about 40 MB


@dataclass(frozen=True)
class Manifest:
    """Planned tasks with all that is needed to know whether they fit somebody's data."""

    protocol: Protocol
    seed: int
    specs: Mapping[str, str]  # domain -> fingerprint of its spec
    plans: tuple[TaskPlan, ...]


def make_manifest(specs: Iterable[Spec], split: Split, protocol: Protocol, seed: int, tasks: int) -> Manifest:
    """Tasks 0 to `tasks` - 1 of one split of every domain."""
    specs = list(specs)
    planned = (plan for spec in specs for plan in plans(spec, split, protocol, seed, range(tasks)))
    return Manifest(protocol, seed, {spec.name: spec.fingerprint() for spec in specs}, tuple(planned))


def save_manifest(manifest: Manifest, path: Path) -> None:
    """Write it whole or not at all."""
    for plan in manifest.plans:
        if (plan.protocol, plan.address.seed) != (manifest.protocol.name, manifest.seed):
            raise FewshiftError(
                f"{describe(plan.address)} is of protocol {plan.protocol}, and the manifest of "
                f"{manifest.protocol.name}, seed {manifest.seed}: save them in two files"
            )
    body = "".join(_json(_to_fields(plan)) + "\n" for plan in manifest.plans).encode()
    header = {
        "format": FORMAT,
        "protocol": manifest.protocol.to_dict(),
        "protocol_name": manifest.protocol.name,
        "seed": manifest.seed,
        "specs": dict(manifest.specs),
        "tasks": len(manifest.plans),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    content = _json(header).encode() + b"\n" + body
    write_whole(path, gzip.compress(content, 6, mtime=0) if path.suffix == ".gz" else content)


def load_manifest(path: Path, specs: Iterable[Spec]) -> Manifest:
    """The tasks in the file, every one checked against these specs; a task for other data is refused."""
    head, _, body = _read(path).partition(b"\n")
    header = _parse(head, f"{path}, line 1")
    if header.get("format") != FORMAT:
        raise DataError(f"{path}: this is not a manifest of tasks ({FORMAT}): give one that fewshift wrote")
    seed, fingerprints, constants = header.get("seed"), header.get("specs"), header.get("protocol")
    if type(seed) is not int or not isinstance(fingerprints, dict) or not isinstance(constants, dict):
        raise DataError(f"{path}: its first line lacks a seed, specs or a protocol: get the file again")
    try:
        protocol = Protocol.from_dict(constants)
    except FewshiftError as problem:
        raise DataError(f"{path}: {problem}") from problem
    if header.get("sha256") != hashlib.sha256(body).hexdigest():
        raise DataError(f"{path}: its tasks do not have the checksum of its first line: get the file again")
    known = _matching(path, fingerprints, {spec.name: spec for spec in specs})
    loaded: dict[Address, TaskPlan] = {}
    for number, line in enumerate(body.splitlines(), start=2):
        where = f"{path}, line {number}"
        plan = _from_fields(_parse(line, where), seed, protocol, where)
        if plan.address in loaded or plan.address.domain not in known:
            why = "occurs twice" if plan.address in loaded else "is of a domain that the first line lacks"
            raise DataError(f"{where}: {describe(plan.address)} {why}: get the file again")
        if wrong := what_is_wrong(plan, known[plan.address.domain]):
            raise DataError(
                f"{where}: {describe(plan.address)}: {wrong}: get the file again or make a new one"
            )
        loaded[plan.address] = plan
    if header.get("tasks") != len(loaded):
        raise DataError(f"{path}: {len(loaded)} tasks of {header.get('tasks')} are there: get the file again")
    return Manifest(protocol, seed, fingerprints, tuple(loaded.values()))


def what_is_wrong(plan: TaskPlan, spec: Spec) -> str | None:
    """Why this plan is no task of this domain; None when it is one."""
    classes = spec.splits[plan.address.split]
    if not plan.way == len(plan.support) == len(plan.query):
        return f"it has {plan.way} classes, {len(plan.support)} supports and {len(plan.query)} queries"
    if plan.way < 2 or len(set(plan.class_ids)) < plan.way:
        return "it needs two or more classes, each of them once"
    for c, support, query in zip(plan.class_ids, plan.support, plan.query, strict=True):
        if c not in classes:
            return (
                f"class {c} is not in the {plan.address.split} split ({classes.start} to {classes.stop - 1})"
            )
        if not support or not query:
            return f"class {c} has no {'query' if support else 'support'} image"
        if len({*support, *query}) < len(support) + len(query):
            return f"class {c} uses an image twice"
        if min(*support, *query) < 0 or max(*support, *query) >= spec.images_per_class[c]:
            return (
                f"class {c} has {spec.images_per_class[c]} images, numbered from 0, and others are asked for"
            )
    return None


def _matching(path: Path, fingerprints: Mapping[Any, Any], specs: Mapping[str, Spec]) -> dict[str, Spec]:
    for domain, fingerprint in fingerprints.items():
        if domain not in specs:
            raise DataError(
                f"{path}: it has tasks of {domain!r}, not one of {', '.join(specs) or 'no domains'}: "
                "add that domain, or use a manifest without it"
            )
        here = specs[domain].fingerprint()
        if fingerprint != here:
            raise DataError(
                f"{path}: it was made for other data of {domain!r} (spec {fingerprint}, here {here}): "
                "use the same records as its maker, or make a new manifest from these"
            )
    return {domain: specs[domain] for domain in fingerprints}


def _to_fields(plan: TaskPlan) -> dict[str, Any]:
    where = plan.address
    return {
        "domain": where.domain,
        "split": where.split,
        "index": where.index,
        "classes": plan.class_ids,
        "support": plan.support,
        "query": plan.query,
    }


def _from_fields(fields: Mapping[str, Any], seed: int, protocol: Protocol, where: str) -> TaskPlan:
    domain, split, index = fields.get("domain"), fields.get("split"), fields.get("index")
    if not isinstance(domain, str) or split not in SPLITS or type(index) is not int or index < 0:
        raise DataError(f"{where}: a task needs a domain, a split and an index: get the file again")
    address = Address(seed, domain, split, index)
    classes = _integers(fields.get("classes"), where)
    support, query = (_rows(fields.get(part), where) for part in ("support", "query"))
    return TaskPlan(address, protocol.name, classes, support, query)


def _rows(value: Any, where: str) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list):
        raise DataError(f"{where}: support and query must be lists of lists of integers: get the file again")
    return tuple(_integers(row, where) for row in value)


def _integers(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or any(type(entry) is not int for entry in value):
        raise DataError(f"{where}: classes and images must be lists of integers: get the file again")
    return tuple(value)


def _read(path: Path) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            content: bytes = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as problem:
        raise DataError(f"{path}: it cannot be read ({problem}): check the path or get it again") from problem
    if len(content) > MAX_BYTES:
        raise DataError(f"{path}: over {MAX_BYTES // 2**20} MiB of tasks are not read: split it")
    return content


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise DataError(f"{where}: this is not JSON ({problem}): get the file again") from problem
    if not isinstance(fields, dict):
        raise DataError(f"{where}: this is not a JSON object: get the file again")
    return fields


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
