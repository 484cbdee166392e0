"""The command `evaluate`, as a shell sees it."""

import io
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_world import Fewshift, started, wait_until

from fewshift.cli.evaluate_inputs import open_domains
from fewshift.core.precond import initial_preconditioners
from fewshift.data.cache.source import CachedSource
from fewshift.data.folder import FolderSource, folder_domain
from fewshift.data.records_folder import open_records
from fewshift.data.records_write import write_domain
from fewshift.data.suite_cache import cache_of, keep_pixels
from fewshift.methods import ABOUT
from fewshift.nets import precision
from fewshift.nets.backbone import freeze
from fewshift.nets.kit import ImageSettings, Kit, load_kit, save_kit
from fewshift.nets.resnet import ResNet18
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.progress import silent


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `tiny.kit` and `shapes`, eight classes of twelve pictures."""
    root = tmp_path_factory.mktemp("small")
    torch.manual_seed(0)
    backbone = freeze(ResNet18(width=4))
    sizes = {site: value.shape[0] for site, value in backbone.init().items()}
    kit = Kit(
        backbone,
        ImageSettings(size=20),
        initial_preconditioners(("shapes", "cars"), sizes),
        classifier=DatasetClassifier(2, width=4),
    )
    save_kit(kit, root / "tiny.kit")
    rng = np.random.default_rng(0)
    for label in range(8):
        (root / "shapes" / f"class {label}").mkdir(parents=True)
        mean = rng.integers(0, 255, (5, 5, 3))
        for i in range(12):
            pixels = np.clip(mean + rng.integers(-50, 50, (5, 5, 3)), 0, 255).astype(np.uint8)
            picture = Image.fromarray(pixels).resize((20, 20))
            picture.save(root / "shapes" / f"class {label}" / f"{i:02}.png")
    return root


def command(small: Path, out: Path, *more: object) -> list[str]:
    """Seven tasks of `shapes`; a later option takes the place of an earlier one."""
    words = [
        "evaluate",
        "--folder",
        small / "shapes",
        "--kit",
        small / "tiny.kit",
        "--tasks",
        7,
        "--out",
        out,
    ]
    return [str(w) for w in [*words, "--methods", "ncc,pa", "--device", "cpu", *more]]


def lines(path: Path) -> list[dict[str, Any]]:
    """What a results file says, without the times, in an order of its own."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for line in found:
        del line["seconds"]
    return sorted(found, key=lambda r: (r["domain"], r["index"], r["method"]))


def test_evaluate_writes_lines_and_shows_a_table(fewshift: Fewshift, small: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    done = fewshift(*command(small, out, "--methods", "ncc,pa,tsa,gd,tsp", "--tasks", 2))
    assert done.code == 0, done.err
    assert "wrote 10 scores" in done.err
    assert "| shapes" in done.out
    found = lines(out)
    assert len(found) == 10
    for line in found:
        assert (line["protocol"], line["seen"], line["role"], line["seed"]) == ("varying", True, "seen", 0)
        assert (line["pixels"], line["kit"], line["split"]) == ("protocol-20", "tiny", "test")
        assert line["oracle"] == (line["method"] != "ncc")
        assert len(line["fingerprint"]) == 16
    tsp = [line for line in found if line["method"] == "tsp"]
    assert all(set(line["notes"]["coefficients"]) == {"shapes", "cars"} for line in tsp)
    again = fewshift(*command(small, out, "--methods", "ncc,pa,tsa,gd,tsp", "--tasks", 2, "--quiet"))
    assert "wrote 0 scores" in again.err
    assert again.out == ""


def test_without_the_oracle_nothing_is_revealed(fewshift: Fewshift, small: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    done = fewshift(*command(small, out, "--no-oracle", "--methods", "pa,tsp", "--tasks", 1))
    assert done.code == 0, done.err
    assert all(not line["oracle"] and not line["revealed"] and line["seen"] for line in lines(out))
    refused = fewshift(*command(small, out, "--methods", "pa,tsp", "--tasks", 1))
    assert refused.code == 2
    assert "another run (revealed" in refused.err


def test_shards_protocols_and_engines(fewshift: Fewshift, small: Path, tmp_path: Path) -> None:
    one, two, whole = tmp_path / "1.jsonl", tmp_path / "2.jsonl", tmp_path / "whole.jsonl"
    low = ("--protocol", "one-shot", "--workers", 0, "--precision", "float32")
    assert fewshift(*command(small, one, *low, "--shard", "1/2")).code == 0
    assert fewshift(*command(small, two, *low, "--shard", "2/2")).code == 0
    assert fewshift(*command(small, whole, *low)).code == 0
    assert sorted(r["index"] for r in lines(one)) == [0, 0, 2, 2, 4, 4, 6, 6]
    (tmp_path / "both.jsonl").write_text(one.read_text() + two.read_text())
    assert lines(tmp_path / "both.jsonl") == lines(whole)
    together = fewshift("report", one, two, "--format", "csv")
    assert together.out == fewshift("report", tmp_path / "both.jsonl", "--format", "csv").out
    plain = tmp_path / "plain.jsonl"
    assert fewshift(*command(small, plain, *low, "--engine", "plain")).code == 0
    assert [r["accuracy"] for r in lines(plain)] == [r["accuracy"] for r in lines(whole)]
    assert {r["engine"] for r in lines(plain)} == {"plain"}


def test_a_shard_without_tasks_is_done(fewshift: Fewshift, small: Path, tmp_path: Path) -> None:
    out = tmp_path / "3.jsonl"
    asked = command(small, out, "--tasks", 2, "--shard", "3/3")
    done = fewshift(*(word for word in asked if word not in ("--quiet", "-q")))
    assert (done.code, out.read_text()) == (0, "")
    assert "wrote 0 scores" in done.err


@pytest.mark.parametrize("has_it", [True, False])
def test_lines_say_where_a_processor_used_16_bits(
    fewshift: Fewshift, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_it: bool
) -> None:
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: has_it)
    out = tmp_path / "r.jsonl"
    assert fewshift(*command(small, out, "--methods", "ncc,gd", "--tasks", 1)).code == 0
    engines = {line["method"]: line["engine"] for line in lines(out)}
    assert engines == {"ncc": "plain", "gd": "folded in bfloat16" if has_it else "folded"}


def as_records(folder: Path, to: Path, scale: int = 1) -> None:
    """The pictures of a folder-a-class tree in the converted layout, `scale` times as large."""
    domain = folder_domain(folder)
    source = domain.source
    assert isinstance(source, FolderSource)

    def images(class_id: int) -> Iterator[bytes]:
        for path in source.files[class_id]:
            picture = Image.open(path)
            buffer = io.BytesIO()
            picture.resize((scale * picture.width, scale * picture.height)).save(buffer, "png")
            yield buffer.getvalue()

    write_domain(to / domain.name, domain.spec, images)


def test_a_file_that_is_gone_on_with_in_another_precision_is_warned_of(
    fewshift: Fewshift, small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "mix.jsonl"
    words = ("--protocol", "one-shot", "--workers", 0, "--methods", "ncc,gd", "--quiet")
    for tasks, asked, warned in ((1, "bfloat16", False), (2, "bfloat16", False), (3, "float32", True)):
        done = fewshift(*command(small, out, *words, "--tasks", tasks, "--precision", asked))
        assert done.code == 0, done.err
        assert ("another --precision" in done.err) == warned
    assert f"{out}: lines of gd that are there were computed by folded in bfloat16, new" in done.err
    assert {(line["index"], line["engine"]) for line in lines(out) if line["method"] == "gd"} == {
        (0, "folded in bfloat16"),
        (1, "folded in bfloat16"),
        (2, "folded"),
    }


def test_records_and_an_exact_cache_give_the_numbers_of_the_folder(
    fewshift: Fewshift, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEWSHIFT_CACHE", str(tmp_path / "cache"))
    as_records(small / "shapes", tmp_path / "records")
    outs = [tmp_path / f"{name}.jsonl" for name in ("folder", "records", "cached")]
    records = ["--records" if w == "--folder" else w for w in command(small, outs[1], "--tasks", 2)]
    records[records.index(str(small / "shapes"))] = str(tmp_path / "records")
    assert fewshift(*command(small, outs[0], "--tasks", 2)).code == 0
    assert fewshift(*records).code == 0
    (domain,) = open_records(tmp_path / "records")
    assert keep_pixels(domain, cache_of(tmp_path / "records" / "shapes"))
    assert fewshift(*records, "--out", outs[2]).code == 0
    assert lines(outs[0]) == lines(outs[1]) == lines(outs[2])


def test_a_rounded_cache_is_used_when_asked_and_named(
    fewshift: Fewshift, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEWSHIFT_CACHE", str(tmp_path / "cache"))
    as_records(small / "shapes", tmp_path / "records", scale=5)  # 100 pixels: more than a cache keeps
    (domain,) = open_records(tmp_path / "records")
    keep_pixels(domain, cache_of(tmp_path / "records" / "shapes"))
    save_kit(load_kit(small / "tiny.kit").with_(images=ImageSettings()), tmp_path / "84.kit")
    pixels = {}
    for words in ((), ("--cache",)):
        out = tmp_path / f"{len(words)}.jsonl"
        more = ("--methods", "ncc", "--tasks", 1, "--protocol", "one-shot", "--out", out, *words)
        done = fewshift("evaluate", "--records", tmp_path / "records", "--kit", tmp_path / "84.kit", *more)
        assert done.code == 0, done.err
        (line,) = lines(out)
        pixels[words] = line["pixels"]
    assert pixels == {(): "protocol-84", ("--cache",): "protocol-84-rounded"}


def test_methods_that_leave_the_network_alone_score_alike_on_features(
    fewshift: Fewshift, small: Path, tmp_path: Path
) -> None:
    free = [name for name, about in ABOUT.items() if about.features_only]
    assert {"ncc", "pa"} < set(free)
    images, features = tmp_path / "images.jsonl", tmp_path / "features.jsonl"
    assert fewshift(*command(small, images, "--methods", ",".join(free))).code == 0
    assert fewshift(*command(small, features, "--methods", ",".join(free), "--features")).code == 0
    pairs = list(zip(lines(images), lines(features), strict=True))
    assert len(pairs) == 7 * len(free)
    for one, other in pairs:
        assert {k: one[k] for k in ("method", "kit", "fingerprint", "index")} == {
            k: other[k] for k in ("method", "kit", "fingerprint", "index")
        }
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=0.05)  # features have 16 bits
    refused = fewshift(*command(small, tmp_path / "no.jsonl", "--features", "--methods", "ncc,tsa"))
    assert refused.code == 2
    assert "leave --features out" in refused.err
    no_oracle = ("--features", "--methods", "pa", "--no-oracle")
    refused = fewshift(*command(small, tmp_path / "no.jsonl", *no_oracle))
    assert refused.code == 2
    assert "rates of pa follow what the kit's classifier says of images" in refused.err


def test_a_suite_by_name(fewshift: Fewshift, small: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    words = ("--kit", small / "tiny.kit", "--methods", "ncc", "--tasks", 1, "--protocol", "one-shot")
    done = fewshift("evaluate", "--suite", "drawn", *words, "--out", out)
    assert done.code == 0, done.err
    assert len({line["domain"] for line in lines(out)}) == len(lines(out)) > 3
    refused = fewshift("evaluate", "--suite", "nosuch", *words, "--out", out)
    assert refused.code == 2
    assert "nosuch" in refused.err


def test_a_backbone_of_one_domain_has_seen_no_other(
    fewshift: Fewshift, records: Path, tmp_path: Path
) -> None:
    alone, out = tmp_path / "alone.kit", tmp_path / "r.jsonl"
    backbone = freeze(ResNet18(width=2))
    save_kit(Kit(backbone, ImageSettings(16), info={"backbone": {"domains": ["tiles"]}}), alone)
    done = fewshift(
        *("evaluate", "--records", records, "--kit", alone, "--methods", "pa,gd", "--tasks", 1),
        *("--protocol", "one-shot", "--device", "cpu", "--out", out),
    )
    assert done.code == 0, done.err
    assert {r["domain"] for r in lines(out) if r["seen"]} == {"tiles"}  # squares has that role in the records
    rates = {(r["method"], r["domain"]): r["notes"]["rates"] for r in lines(out)}
    assert rates["pa", "tiles"] == [0.0, 0.1]
    assert rates["pa", "squares"] == [0.0, 1.0]
    assert rates["gd", "tiles"] == [0.05, 0.2]  # TSP's, for one training domain
    assert rates["gd", "squares"] == [0.25, 0.05]


def test_a_method_of_ones_own(
    fewshift: Fewshift, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_method.py").write_text(
        "from dataclasses import replace\n"
        "from fewshift.methods import ncc\n"
        "def build(kit, engine=None, oracle=True):\n"
        "    return replace(ncc(kit, engine, oracle), name='mine')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "r.jsonl"
    done = fewshift(*command(small, out, "--methods", "ncc,own_method:build", "--tasks", 2))
    assert done.code == 0, done.err
    by_method = {m: [r["accuracy"] for r in lines(out) if r["method"] == m] for m in ("ncc", "mine")}
    assert by_method["ncc"] == by_method["mine"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (["--methods", "tsq"], "there is no method 'tsq'"),
        (["--methods", "nowhere:build"], "cannot be imported (No module named 'nowhere'): install its"),
        (["--methods", ":build"], "cannot be imported"),
        (["--methods", "os:getcwd"], "os:getcwd cannot be called as build(kit, engine, oracle)"),
        (["--methods", "fewshift.methods.ncc:ABOUT"], "is no function"),
        (["--methods", "builtins:slice"], "builtins:slice made a slice, which is no method"),
        (["--methods", ","], "--methods names none"),
        (["--methods", "gd_tuned"], "no rates chosen for gd"),
        (["--protocol", "two-shot"], "--protocol is 'two-shot'"),
        (["--split", "exam"], "--split is 'exam'"),
        (["--shard", "3/2"], "shard 3/2"),
        (["--kit", "nokit"], "there is no kit 'nokit'"),
        (["--engine", "warp"], "no engine 'warp'"),
        (["--precision", "float16"], "float16 cannot be had here, where the folded engine computes in"),
        (["--engine", "plain", "--precision", "bfloat16"], "choose float32 or auto"),
        (["--features", "--methods", "ncc", "--precision", "bfloat16"], "the last-map engine computes in"),
        (["--device", "abacus"], "--device abacus"),
        (["--domains", "cats"], "no domain 'cats'"),
        (["--split", "valid"], "valid split"),
        (["--records", "nowhere"], "one of --records, --folder and --suite"),
        (["--tasks", "0"], "--tasks"),
        (["--out", "/dev/null/r.jsonl"], "/dev/null/r.jsonl"),
    ],
)
def test_bad_words_to_evaluate(
    fewshift: Fewshift, small: Path, tmp_path: Path, change: list[str], complaint: str
) -> None:
    done = fewshift(*command(small, tmp_path / "r.jsonl", *change))
    assert done.code == 2
    assert complaint in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "r.jsonl").exists()


def stopped(words: list[str], out: Path, how: signal.Signals) -> tuple[int, str]:
    """Start the command, stop it when it has written a few lines more, and say how it ended."""
    enough = 3000 + (out.stat().st_size if out.exists() else 0)
    with started(*words) as process:
        wait_until(lambda: out.exists() and out.stat().st_size >= enough, process)
        process.send_signal(how)
        err = process.communicate(timeout=60)[1]
    return process.returncode, err


@pytest.mark.slow
def test_ctrl_c_and_kill_9_lose_and_repeat_nothing(fewshift: Fewshift, small: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "r.jsonl", tmp_path / "whole.jsonl"
    words = command(small, out, "--tasks", 30, "--protocol", "one-shot")
    code, err = stopped(words, out, signal.SIGINT)
    assert code == 130, err
    assert "To go on: fewshift evaluate --folder" in err
    assert "Traceback" not in err
    code, _ = stopped(words, out, signal.SIGKILL)
    assert code == -signal.SIGKILL
    half = out.read_text().count("\n")
    done = fewshift(*words, "--quiet")
    assert done.code == 0, done.err
    assert fewshift(*[str(whole) if w == str(out) else w for w in words], "--quiet").code == 0
    assert 0 < half < len(lines(out)) == 60
    assert lines(out) == lines(whole)


def test_a_records_folder_is_trained_on_and_evaluated_with_its_caches_and_its_own_roles(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEWSHIFT_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "records"
    as_records(small / "shapes", root)
    (domain,) = open_records(root)
    keep_pixels(domain, cache_of(root / "shapes"))
    suite = {"name": "mine", "domains": {"shapes": {"records": "shapes", "role": "valid_unseen"}}}
    (root / "suite.json").write_text(json.dumps(suite))
    (found,) = open_domains(root, None, None, [], "test", silent)
    assert (found.name, found.role) == ("shapes", "valid_unseen")
    assert isinstance(found.source, CachedSource)
