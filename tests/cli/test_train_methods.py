"""The commands that train further methods, from pictures of the drawn suite to a table."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny_world import Fewshift

from fewshift.data.domain import Domain
from fewshift.data.records_write import write_domain
from fewshift.data.spec import flat_spec
from fewshift.data.suite_file import SuiteEntry, write_suite
from fewshift.data.suites import open_suite
from fewshift.nets.backbone import freeze
from fewshift.nets.kit import ImageSettings, Kit, load_kit, save_kit
from fewshift.nets.resnet import ResNet18

ROLES = {"shapes": "seen", "glyphs": "seen", "plants": "unseen"}


def some_pictures(domain: Domain, class_id: int) -> Iterator[bytes]:
    for pixels in domain.source.read([(class_id, image) for image in range(8)]):
        file = io.BytesIO()
        Image.fromarray(pixels.squeeze()).resize((16, 16)).save(file, "png")
        yield file.getvalue()


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few classes of three domains of the drawn suite, in 16 pixels."""
    root = tmp_path_factory.mktemp("records")
    for domain in open_suite("drawn", list(ROLES)):
        seen = ROLES[domain.name] == "seen"
        counts = {"train": 6, "valid": 5, "test": 5} if seen else {"train": 0, "valid": 0, "test": 5}
        total = sum(counts.values())
        spec = flat_spec(domain.name, tuple(f"{domain.name}{c}" for c in range(total)), (8,) * total, counts)
        write_domain(root / domain.name, spec, lambda c, domain=domain: some_pictures(domain, c))
    write_suite(root, {name: SuiteEntry(role) for name, role in ROLES.items()})
    return root


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A narrow network for 16 pixels that was never trained."""
    path = tmp_path_factory.mktemp("kits") / "backbone.kit"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = ResNet18(4)
    images = ImageSettings(size=16, kind="practical")
    save_kit(Kit(freeze(net), images, info={"backbone": {"settings": {"never_mirrored": ["glyphs"]}}}), path)
    return path


def train(stage: str, kit: Path, records: Path, out: Path, *more: object) -> tuple[object, ...]:
    usual = ("--preset", "quick", "--device", "cpu", "--validation-tasks", 1, "--quiet")
    return ("train", stage, "--kit", kit, "--records", records, "--out", out, *usual, *more)


TINY = ("--updates", 2, "--tasks-per-update", 2, "--code", 4)
TEMPLATE = ("--updates", 2, "--sets-per-update", 2, "--set-size", 4, "--blender-updates", 2, "--code", 4)


@pytest.mark.slow
def test_from_pictures_to_a_table(fewshift: Fewshift, backbone: Path, records: Path, tmp_path: Path) -> None:
    kits = [backbone, *(tmp_path / f"{name}.kit" for name in ("x", "u", "f", "c", "t"))]
    stages = {
        "extractors": ("--updates", 2, "--batch", 4, "--half"),
        "selector": ("--updates", 3, "--hidden", 4),
        "flute": TEMPLATE,
        "cnaps": TINY,
        "trim": TINY,
    }
    for (stage, more), kit, out in zip(stages.items(), kits[:-1], kits[1:], strict=True):
        done = fewshift(*train(stage, kit, records, out, *more))
        assert done.code == 0, done.err
        assert f"wrote {out}" in done.err
    last = load_kit(kits[-1])
    assert set(last.parts) == {"extractors", "urt", "flute", "simple_cnaps", "trim"}
    assert last.parts["extractors"].tensors["shapes/conv1.weight"].dtype == torch.float16
    assert last.parts["trim"].settings == {"code": 4, "domains": ["shapes", "glyphs"]}
    assert last.info["flute"]["settings"]["never_mirrored"] == ["glyphs"]
    assert last.info["flute"]["settings"]["augmentation"]["pad"] == 2
    assert last.info["simple_cnaps"]["updates_done"] == 2
    for folder in ("x.run/shapes", "u.run", "f.run/template", "f.run/blender", "c.run", "t.run"):
        lines = [json.loads(line) for line in (tmp_path / folder / "log.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines if "loss" in line][:2] == [1, 2]

    again = tmp_path / "again.kit"
    done = fewshift(*train("extractors", kits[-1], records, again, *stages["extractors"]))
    assert done.code == 0, done.err
    assert set(load_kit(again).parts) == set(last.parts) - {"urt"}  # which selected among others

    results = tmp_path / "results.jsonl"
    done = fewshift(
        *(
            "evaluate",
            "--kit",
            kits[-1],
            "--records",
            records,
            "--methods",
            "sur,urt,flute,simple_cnaps,trim",
        ),
        *("--domains", "glyphs,plants", "--tasks", 1, "--device", "cpu", "--out", results),
    )
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    scored = {(row["method"], row["domain"]) for row in rows if "accuracy" in row}
    assert len(scored) == 10
    assert not any(row.get("oracle") or row.get("failure") for row in rows)


def test_finished_extractors_are_taken_as_they_are(
    fewshift: Fewshift, backbone: Path, records: Path, tmp_path: Path
) -> None:
    given = [word for name in ("shapes", "glyphs") for word in ("--extractor", f"{name}={backbone}")]
    done = fewshift(*train("extractors", backbone, records, tmp_path / "x.kit", *given))
    assert done.code == 0, done.err
    kit = load_kit(tmp_path / "x.kit")
    for name, tensor in kit.backbone.frozen.items():
        assert torch.equal(kit.parts["extractors"].tensors[f"glyphs/{name}"], tensor)
    assert not (tmp_path / "x.run" / "shapes").exists()
    assert kit.info["extractors"]["shapes"] == {"kit": "backbone.kit"}
    other = tmp_path / "other.kit"
    save_kit(replace(load_kit(backbone), images=ImageSettings(size=24, kind="practical")), other)
    done = fewshift(
        *train("extractors", backbone, records, tmp_path / "y.kit", "--extractor", f"shapes={other}")
    )
    assert done.code == 2
    assert "its images are of 24 pixels" in done.err


def test_flute_stopped_between_its_stages_goes_on(
    fewshift: Fewshift, backbone: Path, records: Path, tmp_path: Path
) -> None:
    def command(name: str, *more: object) -> tuple[object, ...]:
        return train("flute", backbone, records, tmp_path / f"{name}.kit", *TEMPLATE, *more)

    assert fewshift(*command("whole")).code == 0
    assert fewshift(*command("stopped")).code == 0
    (tmp_path / "stopped.kit").unlink()
    for file in (tmp_path / "stopped.run" / "blender").iterdir():
        file.unlink()
    again = fewshift(*command("stopped"))
    assert again.code == 2
    assert "add --resume to go on with it" in again.err
    assert fewshift(*command("stopped", "--resume")).code == 0
    ours, theirs = (
        load_kit(tmp_path / f"{name}.kit").parts["flute"].tensors for name in ("whole", "stopped")
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    ("stage", "more", "said"),
    [
        ("selector", (), "nothing trained for extractors: run fewshift train extractors"),
        ("extractors", ("--extractor", "shapes"), "give DOMAIN=KIT"),
        ("extractors", ("--extractor", "plants=K"), "not among the domains shapes, glyphs"),
        ("cnaps", ("--domains", "plants"), "plants has no TRAIN classes"),
        ("trim", ("--rate", "0"), "the rate is 0.0: give more than 0"),
    ],
)
def test_mistakes_are_one_sentence(
    fewshift: Fewshift,
    backbone: Path,
    records: Path,
    tmp_path: Path,
    stage: str,
    more: tuple[str, ...],
    said: str,
) -> None:
    done = fewshift(*train(stage, backbone, records, tmp_path / "x.kit", *more))
    assert done.code == 2
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "x.kit").exists()


@pytest.mark.parametrize("stage", ["extractors", "selector", "flute", "cnaps", "trim"])
def test_every_help_has_an_example(fewshift: Fewshift, stage: str) -> None:
    done = fewshift("train", stage, "--help")
    assert done.code == 0
    assert f"fewshift train {stage}" in done.out
