"""The hierarchical spec: a graph of WordNet nodes per split, whose leaves are the classes.

The groups are all inner nodes, sorted by WordNet id, each with the class ids of the leaves under it, sorted
likewise. Which of them may give a task (how many leaves are too few or too many) is the sampler's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, TypeAlias

from fewshift.data.spec import Group, Spec, split_ranges
from fewshift.data.spec_fields import SPLIT_KEYS, Fields, show
from fewshift.types import SPLITS, Split

MAX_SPANNED = 2_000_000  # leaves under nodes, all nodes added up; the official graphs have under 20,000
Children: TypeAlias = dict[str, tuple[str, ...]]  # node -> its children; leaves have none


def hierarchical_spec(fields: Fields, name: str) -> Spec:
    """The spec in the fields of a `HierarchicalDatasetSpecification`."""
    graphs = fields.by_split("split_subgraphs", lambda nodes, what: _graph(fields, nodes, what))
    _check_apart(fields, graphs)
    leaves = {s: sorted(node for node, below in graphs[s].items() if not below) for s in SPLITS}
    classes = sum(len(leaves[s]) for s in SPLITS)
    class_names = fields.by_id("class_names", fields.text, classes, "the leaves of split_subgraphs are")
    counts = fields.by_split("images_per_class", fields.mapping)

    splits = split_ranges({s: len(leaves[s]) for s in SPLITS})
    groups: dict[Split, tuple[Group, ...]] = {}
    images: list[int] = []
    for split in SPLITS:
        names = class_names[splits[split].start : splits[split].stop]
        _check_leaves(fields, split, names, leaves[split])
        images += [_leaf_count(fields, counts[split], split, leaf) for leaf in names]
        ids = {leaf: class_id for class_id, leaf in zip(splits[split], names, strict=True)}
        spans = _spans(fields, graphs[split], split)
        groups[split] = tuple(
            Group(node, tuple(ids[leaf] for leaf in sorted(spans[node])))
            for node in sorted(graphs[split])
            if graphs[split][node]
        )
    return Spec(name, class_names, tuple(images), splits, "hierarchical", groups)


def _graph(fields: Fields, nodes: Any, what: str) -> Children:
    if not isinstance(nodes, list):
        fields.refuse(f"{what} is {show(nodes)}: it must be a JSON array of nodes")
    children: Children = {}
    parents: Children = {}
    for place, node in enumerate(nodes):
        if not isinstance(node, dict):
            fields.refuse(f"{what}: node {place} is {show(node)}: it must be a JSON object")
        name = fields.text(node.get("wn_id"), f"{what}: wn_id of node {place}")
        if name in children:
            fields.refuse(f"{what}: the node {show(name)} occurs twice: keep one of them")
        children[name] = _ids(fields, node.get("children_ids"), f"{what}: children_ids of {show(name)}")
        parents[name] = _ids(fields, node.get("parents_ids"), f"{what}: parents_ids of {show(name)}")
    for name, below in children.items():
        for child in below:
            if child not in parents or name not in parents[child]:
                fields.refuse(
                    f"{what}: {show(name)} names the child {show(child)}, which does not name it back"
                )
    edges = sum(len(below) for below in children.values())
    if edges != sum(len(above) for above in parents.values()):
        lone = next((n, p) for n, above in parents.items() for p in above if n not in children.get(p, ()))
        fields.refuse(
            f"{what}: {show(lone[0])} names the parent {show(lone[1])}, which does not name it back"
        )
    return children


def _ids(fields: Fields, value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        fields.refuse(f"{what} is {show(value)}: it must be a JSON array of texts")
    if len(set(value)) != len(value):
        fields.refuse(f"{what} names a node twice: keep one of them")
    return tuple(value)


def _check_apart(fields: Fields, graphs: Mapping[Split, Children]) -> None:
    for first, second in combinations(SPLITS, 2):
        if shared := graphs[first].keys() & graphs[second].keys():
            fields.refuse(
                f"split_subgraphs: the node {show(min(shared))} occurs in two splits: "
                "splits must not share classes, so copy the file again"
            )


def _check_leaves(fields: Fields, split: Split, names: Sequence[str], leaves: Sequence[str]) -> None:
    if strange := sorted(set(names) - set(leaves)):
        fields.refuse(
            f"class_names has {show(strange[0])} among the {SPLIT_KEYS[split]} classes, "
            f"but it is not a leaf of the {SPLIT_KEYS[split]} graph: copy the file again"
        )
    if missing := sorted(set(leaves) - set(names)):
        fields.refuse(f"class_names lacks {show(missing[0])}, a leaf of the {SPLIT_KEYS[split]} graph")


def _leaf_count(fields: Fields, counts: Mapping[str, Any], split: Split, leaf: str) -> int:
    what = f"images_per_class of {SPLIT_KEYS[split]}, {show(leaf)}"
    if leaf not in counts:
        fields.refuse(f"{what} is missing: copy the file again")
    return fields.whole(counts[leaf], what, 1)


def _spans(fields: Fields, children: Children, split: Split) -> dict[str, frozenset[str]]:
    """Node -> the leaves under it. From the leaves upwards, without recursion; what remains is a cycle."""
    waiting = {node: len(below) for node, below in children.items()}
    parents: dict[str, list[str]] = {node: [] for node in children}
    for node, below in children.items():
        for child in below:
            parents[child].append(node)
    ready = [node for node, count in waiting.items() if count == 0]
    spans: dict[str, frozenset[str]] = {}
    spanned = 0
    while ready:
        node = ready.pop()
        below = children[node]
        spans[node] = frozenset().union(*(spans[child] for child in below)) if below else frozenset((node,))
        spanned += len(spans[node])
        if spanned > MAX_SPANNED:
            fields.refuse(
                f"split_subgraphs of {SPLIT_KEYS[split]}: the graph is too large to be true: write it anew"
            )
        for parent in parents[node]:
            waiting[parent] -= 1
            if waiting[parent] == 0:
                ready.append(parent)
    if len(spans) != len(children):
        stuck = min(node for node in children if node not in spans)
        fields.refuse(
            f"split_subgraphs of {SPLIT_KEYS[split]}: the node {show(stuck)} is below itself: "
            "copy the file again"
        )
    return spans
