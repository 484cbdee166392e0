import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from fewshift.core.precond import DomainPreconditioners
from fewshift.core.starts import DomainStarts, LowRankStarts, shortened
from fewshift.errors import FewshiftError
from fewshift.nets import tensor_file
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.extractors import extractors_of, extractors_part
from fewshift.nets.kit import KIT, ImageSettings, Kit, Part, load_kit, save_kit
from fewshift.nets.policy import PART, new_policy, policy_part
from fewshift.nets.resnet import ResNet18
from fewshift.nets.set_encoder import DatasetClassifier

DOMAINS = ("birds", "signs", "letters")


@pytest.fixture
def kit() -> Kit:
    torch.manual_seed(5)
    net = ResNet18(width=4, stem_padding=1)
    with torch.no_grad():
        net(torch.randn(8, 3, 28, 28))
    backbone = freeze(net)
    start = backbone.init()
    roots = {site: torch.randn(3, value.shape[0], value.shape[0]) for site, value in start.items()}
    values = {site: torch.randn(3, *value.shape) for site, value in start.items()}
    return Kit(
        backbone,
        ImageSettings(size=28, mean=(0.1, 0.2, 0.3), crop=0.875),
        DomainPreconditioners(DOMAINS, roots, "gram"),
        DomainStarts(DOMAINS, values),
        DatasetClassifier(3, width=8).eval(),
        info={"rates": {"tsp": [[0.05, 0.3], [0.25, 0.05]]}, "protocol": "varying", "note": "é"},
    )


def test_parts_of_other_methods_travel_with_the_kit(kit: Kit, tmp_path: Path) -> None:
    learned = Part({"query/weight": torch.randn(3, 4), "bias": torch.randn(2)}, {"heads": 2})
    save_kit(kit.with_(parts={"urt": learned, "empty": Part({})}), tmp_path / "parts.kit")
    found = load_kit(tmp_path / "parts.kit")
    assert set(found.parts) == {"urt", "empty"}
    assert found.part("urt", "-").settings == {"heads": 2}
    for name, tensor in learned.tensors.items():
        assert torch.equal(found.parts["urt"].tensors[name], tensor)
    with pytest.raises(FewshiftError, match="nothing trained for sur: run fewshift train selector"):
        found.part("sur", "fewshift train selector")


def test_parts_may_share_tensors_with_the_backbone(kit: Kit, tmp_path: Path) -> None:
    own = extractors_part(kit, {"birds": kit.backbone, "signs": kit.backbone})
    save_kit(kit.with_(parts={"extractors": own}), tmp_path / "own.kit")
    found = extractors_of(load_kit(tmp_path / "own.kit"))
    assert {backbone.fingerprint() for backbone in found.backbones} == {kit.backbone.fingerprint()}


def test_a_kit_says_what_it_was_trained_on(kit: Kit) -> None:
    assert kit.trained_on == DOMAINS
    told = {"backbone": {"domains": ["signs", "cars"]}}
    assert kit.with_(info=told).trained_on == (*DOMAINS, "cars")
    assert Kit(kit.backbone, info=told).trained_on == ("signs", "cars")
    assert Kit(kit.backbone, info={"backbone": "a network of somebody"}).trained_on == ()


def test_a_common_start_travels_too(kit: Kit, tmp_path: Path) -> None:
    assert isinstance(kit.starts, DomainStarts)
    base = {site: torch.randn_like(value) for site, value in kit.backbone.init().items()}
    save_kit(kit.with_(starts=replace(kit.starts, base=base)), tmp_path / "common.kit")
    found = load_kit(tmp_path / "common.kit").starts
    assert isinstance(found, DomainStarts)
    assert found.base is not None
    assert all(torch.equal(found.base[site], value) for site, value in base.items())
    save_kit(kit.with_(starts=shortened(kit.starts, base, 2)), tmp_path / "short.kit")
    short = load_kit(tmp_path / "short.kit").starts
    assert isinstance(short, LowRankStarts)
    assert all(torch.equal(short.base[site], value) for site, value in base.items())


def assert_same(found: Kit, kit: Kit, precision: float = 0.0) -> None:
    images = torch.randn(3, 3, 28, 28)
    assert found.backbone.fingerprint() == kit.backbone.fingerprint()
    assert torch.equal(found.backbone.embed(images), kit.backbone.embed(images))
    assert found.images == kit.images
    assert found.domains == kit.domains == DOMAINS
    assert found.info == kit.info
    assert found.preconditioners is not None
    assert kit.preconditioners is not None
    assert found.preconditioners.design == kit.preconditioners.design
    for site, root in kit.preconditioners.roots.items():
        read = found.preconditioners.roots[site]
        assert read.dtype == torch.float32
        torch.testing.assert_close(read, root, rtol=precision, atol=precision)
    assert found.classifier is not None
    assert kit.classifier is not None
    with torch.no_grad():
        assert torch.equal(found.classifier(images), kit.classifier(images))
    coefficients = torch.tensor([0.2, 0.5, 0.3])
    for site, value in kit.start(coefficients).items():
        assert torch.equal(found.start(coefficients)[site], value)


def test_a_task_starts_at_every_site_even_where_few_were_learned(kit: Kit) -> None:
    assert kit.starts is not None
    some = replace(kit.starts, values={"last": kit.starts.values["last"]})
    start, usual = kit.with_(starts=some).start(torch.tensor([0.2, 0.5, 0.3])), kit.backbone.init()
    assert list(start) == list(usual)
    assert not torch.equal(start["last"], usual["last"])
    assert all(torch.equal(start[site], usual[site]) for site in usual if site != "last")


def test_round_trip_to_the_bit(tmp_path: Path, kit: Kit) -> None:
    state = torch.random.get_rng_state()
    save_kit(kit, tmp_path / "a.kit")
    found = load_kit(tmp_path / "a.kit")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert_same(found, kit)
    assert [file.name for file in tmp_path.iterdir()] == ["a.kit"]
    save_kit(found, tmp_path / "b.kit")
    assert (tmp_path / "a.kit").read_bytes() == (tmp_path / "b.kit").read_bytes()


def test_a_backbone_stored_in_half_precision_is_used_in_full(tmp_path: Path, kit: Kit) -> None:
    save_kit(kit, tmp_path / "full.kit")
    save_kit(kit, tmp_path / "half.kit", weights_dtype=torch.float16)
    assert (tmp_path / "half.kit").stat().st_size < (tmp_path / "full.kit").stat().st_size
    found = load_kit(tmp_path / "half.kit")
    assert found.backbone.dtype == torch.float32
    load_kit(tmp_path / "half.kit", backbone=found.backbone)  # its own fingerprint, so it is accepted
    with pytest.raises(FewshiftError, match="another backbone"):
        load_kit(tmp_path / "half.kit", backbone=kit.backbone)


@pytest.mark.parametrize(("dtype", "precision"), [(torch.float16, 1e-3), (torch.bfloat16, 1e-2)])
def test_half_precision_storage(tmp_path: Path, kit: Kit, dtype: torch.dtype, precision: float) -> None:
    save_kit(kit, tmp_path / "full.kit")
    save_kit(kit, tmp_path / "half.kit", roots_dtype=dtype)
    assert_same(load_kit(tmp_path / "half.kit"), kit, precision)
    assert (tmp_path / "half.kit").stat().st_size < (tmp_path / "full.kit").stat().st_size


def test_parts_may_be_missing(tmp_path: Path, kit: Kit) -> None:
    bare = Kit(kit.backbone)
    save_kit(bare, tmp_path / "bare.kit")
    found = load_kit(tmp_path / "bare.kit")
    assert found.preconditioners is None
    assert found.starts is None
    assert found.classifier is None
    assert found.domains == ()
    for site, value in kit.backbone.init().items():
        assert torch.equal(found.start(torch.ones(3))[site], value)


def test_low_rank_roots(tmp_path: Path, kit: Kit) -> None:
    sizes = {site: value.shape[0] for site, value in kit.backbone.init().items()}
    roots = {site: torch.randn(3, 2, size) for site, size in sizes.items()}
    low = kit.with_(preconditioners=DomainPreconditioners(DOMAINS, roots, "low_rank"))
    save_kit(low, tmp_path / "low.kit")
    assert_same(load_kit(tmp_path / "low.kit"), low)


def test_only_a_fingerprint(tmp_path: Path, kit: Kit) -> None:
    path = tmp_path / "small.kit"
    save_kit(kit, path, weights=False)
    assert_same(load_kit(path, backbone=freeze(kit.backbone.net)), kit)
    with pytest.raises(FewshiftError, match="holds no backbone, only the fingerprint"):
        load_kit(path)


def test_another_backbone_is_refused(tmp_path: Path, kit: Kit) -> None:
    for name, weights in (("whole.kit", True), ("mark.kit", False)):
        save_kit(kit, tmp_path / name, weights=weights)
        with pytest.raises(FewshiftError, match="made for another backbone"):
            load_kit(tmp_path / name, backbone=freeze(ResNet18(width=4, stem_padding=1)))
        padded = ResNet18(width=4, stem_padding=2)
        padded.load_state_dict(kit.backbone.net.state_dict())
        with pytest.raises(FewshiftError, match="stem padding of 1, but the backbone given has 2"):
            load_kit(tmp_path / name, backbone=freeze(padded))


def test_another_network_can_only_leave_its_fingerprint(tmp_path: Path, kit: Kit) -> None:
    class Other(ResNet18):
        pass

    other = Other(width=4)
    odd = Kit(Backbone(other, kit.backbone.frozen, kit.backbone.adapters))
    with pytest.raises(FewshiftError, match="not those of Other"):
        save_kit(odd, tmp_path / "odd.kit")
    save_kit(odd, tmp_path / "odd.kit", weights=False)
    assert load_kit(tmp_path / "odd.kit", backbone=odd.backbone).backbone.dim == 32


def test_every_flipped_byte_is_noticed(tmp_path: Path, kit: Kit) -> None:
    path = tmp_path / "a.kit"
    save_kit(kit.with_(classifier=None, starts=None), path)
    whole = path.read_bytes()
    for place in (*range(0, 64, 7), 200, 900, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(FewshiftError, match=r"damaged|no Fewshift kit") as caught:
            load_kit(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_truncated_and_foreign_files(tmp_path: Path, kit: Kit) -> None:
    path = tmp_path / "a.kit"
    save_kit(kit, path)
    whole = path.read_bytes()
    for content in (b"", whole[:5], whole[:1000], whole[:-1], whole + b"x", b"no kit at all, just text"):
        path.write_bytes(content)
        with pytest.raises(FewshiftError, match="damaged"):
            load_kit(path)
    safetensors.torch.save_file({"a": torch.ones(2)}, path)
    with pytest.raises(FewshiftError, match="no Fewshift kit"):
        load_kit(path)
    for missing in (tmp_path / "missing.kit", tmp_path):
        with pytest.raises(FewshiftError, match="there is no kit"):
            load_kit(missing)


def test_a_flipped_bit_in_a_header_that_is_read_alone(tmp_path: Path, kit: Kit) -> None:
    path = tmp_path / "a.kit"
    save_kit(kit, path)
    whole = path.read_bytes()
    for place in (whole.index(b"version"), whole.index(b"info") + 4):  # a name, a quotation mark
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(FewshiftError, match="damaged"):
            tensor_file.read_header(path, KIT)


@pytest.mark.parametrize(("version", "words"), [(0, "an older Fewshift"), (99, "a newer Fewshift")])
def test_other_versions(tmp_path: Path, kit: Kit, version: int, words: str) -> None:
    kind = tensor_file.Kind("kit", "fewshift-kit", version)
    tensor_file.write_tensors(tmp_path / "a.kit", kind, {}, {})
    with pytest.raises(FewshiftError, match=words):
        load_kit(tmp_path / "a.kit")


def test_nothing_half_written(tmp_path: Path, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.kit"
    save_kit(kit, path)
    whole = path.read_bytes()

    def full_disk(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensor_file.os, "fsync", full_disk)
    with pytest.raises(FewshiftError, match="No space left on device"):
        save_kit(kit.with_(info={}), path)
    assert path.read_bytes() == whole
    assert [file.name for file in tmp_path.iterdir()] == ["a.kit"]
    with pytest.raises(FewshiftError, match="cannot be written"):
        save_kit(kit, path / "below a file.kit")


@pytest.mark.parametrize("info", [{"path": Path("x")}, {"loss": float("nan")}])
def test_info_is_plain_json(tmp_path: Path, kit: Kit, info: dict[str, object]) -> None:
    with pytest.raises(FewshiftError, match="plain JSON"):
        save_kit(kit.with_(info=info), tmp_path / "a.kit")


def test_the_header_can_be_read_by_anyone(tmp_path: Path, kit: Kit) -> None:
    save_kit(kit, tmp_path / "a.kit")
    with safetensors.safe_open(tmp_path / "a.kit", framework="pt") as file:
        header = json.loads(json.loads(file.metadata()["fewshift-kit"])["header"])
    assert header["domains"] == list(DOMAINS)
    assert header["architecture"] == {"name": "ResNet18", "width": 4, "stem_padding": 1}


def test_parts_that_do_not_fit_each_other(kit: Kit) -> None:
    with pytest.raises(FewshiftError, match="but its preconditioners are for birds"):
        kit.with_(domains=("birds", "letters", "signs"))
    with pytest.raises(FewshiftError, match="tells 2 domains apart"):
        kit.with_(classifier=DatasetClassifier(2, width=8))
    with pytest.raises(FewshiftError, match=r"layer1\.0\.conv1 is for 4 channels"):
        kit.with_(backbone=freeze(ResNet18(width=8)))
    assert kit.preconditioners is not None
    unknown = DomainPreconditioners(DOMAINS, {"stem": torch.ones(3, 4, 4)})
    with pytest.raises(FewshiftError, match="'stem', a site its backbone does not have"):
        kit.with_(preconditioners=unknown)
    only_last = DomainPreconditioners(DOMAINS, {"last": torch.ones(3, 32, 32)})
    with pytest.raises(FewshiftError, match=r"no preconditioner for layer1\.0\.conv1, which its backbone"):
        kit.with_(preconditioners=only_last)
    wrong = DomainStarts(DOMAINS, {"last": torch.ones(3, 32, 31)})
    with pytest.raises(FewshiftError, match="starting values of last"):
        kit.with_(starts=wrong)


def test_moving_makes_a_new_kit(kit: Kit) -> None:
    moved = kit.to("cpu")
    assert_same(moved, kit)
    assert moved.backbone.net is not kit.backbone.net


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="older releases import sympy for other work, too")
def test_a_kit_opens_without_sympy_and_torchs_compiler(tmp_path: Path, kit: Kit) -> None:
    """Work on tensors without values, as `to_empty` and initialisers do, imports both, for seconds."""
    save_kit(kit.with_(parts={PART: policy_part(new_policy(kit.backbone, 10.0, seed=0))}), tmp_path / "a.kit")
    opening = (
        "import sys, torch; "
        "from fewshift.nets.kit import load_kit; from fewshift.nets.policy import policy_of; "
        "policy_of(load_kit(sys.argv[1])); print({'sympy', 'torch._dynamo'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", opening, tmp_path / "a.kit"], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stdout + done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_a_pipe_is_not_replaced_by_a_kit(tmp_path: Path, kit: Kit) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FewshiftError, match="a pipe or a device, not a file"):
        save_kit(kit, tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_the_folder_of_a_kit_is_made(tmp_path: Path, kit: Kit) -> None:
    save_kit(kit, tmp_path / "new" / "folder" / "a.kit")
    again = load_kit(tmp_path / "new" / "folder" / "a.kit")
    assert again.backbone.fingerprint() == kit.backbone.fingerprint()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_all_of_a_kit_computes_in_the_type_of_its_backbone(
    kit: Kit, tmp_path: Path, dtype: torch.dtype
) -> None:
    save_kit(kit.with_(backbone=kit.backbone.to(dtype=dtype)), tmp_path / "other.kit")
    found = load_kit(tmp_path / "other.kit")
    assert found.classifier is not None
    assert found.classifier(torch.randn(4, 3, 28, 28, dtype=dtype)).dtype == dtype


def test_what_does_not_fit_into_16_bits_is_refused(kit: Kit, tmp_path: Path) -> None:
    kit.backbone.frozen["bn1.running_var"][0] = 1e5
    with pytest.raises(FewshiftError, match=r"bn1.running_var holds numbers that float16 has no room for"):
        save_kit(kit, tmp_path / "half.kit", weights_dtype=torch.float16)
    assert not list(tmp_path.iterdir())
    save_kit(kit, tmp_path / "half.kit", weights_dtype=torch.bfloat16)
