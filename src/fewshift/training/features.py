"""A domain's features below the last map, computed once per image, from which tasks are gathered by index.

Where the last map alone moves, a task needs no image. Features are kept as 16-bit floats, in memory and in
the user's cache folder, where every later run on the same images, pixels and weights finds them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from fewshift.data.domain import Domain, Item
from fewshift.data.pixels import PixelRule, prepare
from fewshift.data.plan import TaskPlan
from fewshift.data.spec import Spec
from fewshift.data.state import image_state
from fewshift.data.user_cache import cache_folder
from fewshift.data.whole_files import check_place
from fewshift.errors import DataError, FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.last_map import below_last
from fewshift.nets.tensor_file import Kind, read_tensors, write_tensors
from fewshift.progress import Track, silent
from fewshift.types import SPLITS, Episode, Labelled, Split, Task

KIND = Kind("feature file", "fewshift-features", version=1)
CHUNK = 32  # images read and embedded at a time


@dataclass(frozen=True)
class FeatureDomain:
    """Features of some splits of a domain's images. `spec` is the whole domain's."""

    spec: Spec
    rule: PixelRule
    features: Tensor  # (n, d) half precision
    first: Mapping[int, int]  # class id -> row of its first image
    weights: str  # the backbone's fingerprint
    seen: bool | None = None  # goes into the tasks

    @property
    def made_of(self) -> str:
        """The name of its pixels and of the weights that they went through."""
        return f"{self.rule.name} through {self.weights[:16]}"

    @property
    def device(self) -> torch.device:
        """Where the features are."""
        return self.features.device

    def episode(self, plan: TaskPlan) -> Episode:
        """The task of this plan, with features (n, d) in the place of images."""
        support, query = (self._labelled(plan.class_ids, chosen) for chosen in (plan.support, plan.query))
        return Episode(Task(support, plan.way, self.seen), query, plan.address, plan.class_ids)

    def to(self, device: torch.device | str) -> FeatureDomain:
        """The same on another device."""
        return replace(self, features=self.features.to(device))

    def _labelled(self, class_ids: Sequence[int], chosen: Sequence[Sequence[int]]) -> Labelled:
        rows = [self._start(c) + i for c, images in zip(class_ids, chosen, strict=True) for i in images]
        labels = [label for label, images in enumerate(chosen) for _ in images]
        features = self.features[torch.tensor(rows, device=self.device)].float()
        return Labelled(features, torch.tensor(labels, device=self.device))

    def _start(self, class_id: int) -> int:
        if class_id not in self.first:
            raise DataError(
                f"{self.spec.name}: the features of class {class_id} ({self.spec.class_names[class_id]}) are "
                "not held: name their split when making them"
            )
        return self.first[class_id]


@dataclass(frozen=True)
class FeatureReader:
    """Planned tasks of these domains, made of features as `EpisodeReader` makes them of images."""

    domains: Mapping[str, Domain]
    rule: PixelRule
    backbone: Backbone
    reveal_seen: bool = False
    track: Track = silent
    _held: dict[tuple[str, Split], FeatureDomain] = field(default_factory=dict, compare=False, repr=False)
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    def __call__(self, plan: TaskPlan) -> Episode:
        """The task; the features of its split are made when the first task asks."""
        key = (plan.address.domain, plan.address.split)
        with self._one_at_a_time:
            if key not in self._held:
                self._held[key] = featured(
                    self.domains[key[0]],
                    self.rule,
                    self.backbone,
                    (key[1],),
                    reveal_seen=self.reveal_seen,
                    track=self.track,
                )
        return self._held[key].episode(plan)


def featured(
    domain: Domain,
    rule: PixelRule,
    backbone: Backbone,
    splits: Iterable[Split] = SPLITS,
    *,
    reveal_seen: bool = False,
    track: Track = silent,
    folder: Path | None = None,
) -> FeatureDomain:
    """The features of these splits' images, from the cache folder or computed now and kept there."""
    spec, wanted, mark = domain.spec, set(splits), backbone.fingerprint()
    folder = folder or cache_folder() / "features"
    first: dict[int, int] = {}
    parts, count = [], 0
    for split in SPLITS:
        if split not in wanted or not len(spec.splits[split]):
            continue
        items: list[Item] = []
        for class_id in spec.splits[split]:
            first[class_id] = count + len(items)
            items += [(class_id, image) for image in range(spec.images_per_class[class_id])]
        path = folder / _name(domain, split, items, rule, mark)
        parts.append(_of_split(domain, split, items, rule, backbone, path, track))
        count += len(items)
    seen = domain.role == "seen" if reveal_seen else None
    features = torch.cat(parts) if parts else torch.empty(0, backbone.dim, dtype=torch.float16)
    return FeatureDomain(spec, rule, features.to(backbone.device), first, mark, seen)


def _name(domain: Domain, split: Split, items: list[Item], rule: PixelRule, mark: str) -> str:
    """A name that no other features have: of classes, images, their preparation and the weights."""
    counts = [
        (domain.spec.class_names[c], domain.spec.images_per_class[c]) for c in domain.spec.splits[split]
    ]
    digest = hashlib.sha256(f"{counts} {rule} {mark} {image_state(domain, items)}".encode())
    return f"{domain.name}-{split}-{digest.hexdigest()[:20]}.safetensors"


def _of_split(
    domain: Domain,
    split: Split,
    items: list[Item],
    rule: PixelRule,
    backbone: Backbone,
    path: Path,
    track: Track,
) -> Tensor:
    if path.is_file():
        try:
            return read_tensors(path, KIND)[1]["features"]
        except FewshiftError:  # damaged: made again
            path.unlink(missing_ok=True)
    _make_room(path.parent)
    starts = range(0, len(items), CHUNK)
    found = []
    for start in track(starts, label=f"features of {domain.name} ({split})", total=len(starts)):
        images = prepare(domain.source.read(items[start : start + CHUNK]), rule)
        found.append(below_last(backbone, images.to(backbone.device)).to("cpu", torch.float16))
    features = torch.cat(found)
    write_tensors(path, KIND, {"domain": domain.name, "split": split}, {"features": features})
    return features


def _make_room(folder: Path) -> None:
    """The folder for the features, before the work: what cannot be kept would be lost after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_place(folder / "new.safetensors")
    except (OSError, FewshiftError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "no right to write in it"
        raise DataError(
            f"{folder}: features cannot be kept here ({reason}): set FEWSHIFT_CACHE to a folder that you may "
            "write to"
        ) from problem
