"""Saved classifiers come back bit for bit, refuse other backbones, and are never half-written."""

import copy
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fewshift as fs
from fewshift.estimator.exported import metadata
from fewshift.estimator.labels import from_json, to_json
from fewshift.nets import bundled, precision
from fewshift.nets.adapters import adapters_at
from fewshift.nets.any_module import backbone_from
from fewshift.nets.backbone import freeze
from fewshift.nets.choice import chosen_precision
from fewshift.nets.kit import ImageSettings, Kit, save_kit
from fewshift.nets.lite0 import Lite0

Pictures = Callable[..., tuple[list[Any], list[str]]]


@pytest.fixture(scope="module")
def fitted(kit_file: Path, pictures: Pictures) -> fs.FewShotClassifier:
    return fs.FewShotClassifier(kit=kit_file).fit(*pictures())


def test_predictions_are_equal_after_loading(
    fitted: fs.FewShotClassifier, kit_file: Path, pictures: Pictures, tmp_path: Path
) -> None:
    path = tmp_path / "shapes.fewshift"
    fitted.save(path)
    assert path.stat().st_size < kit_file.stat().st_size
    loaded = fs.load(path, kit=kit_file)
    query, _ = pictures(3, 5, first=9)
    assert (loaded.predict_proba(query) == fitted.predict_proba(query)).all()
    assert (loaded.unknown_score(query) == fitted.unknown_score(query)).all()
    assert (loaded.predict(query) == fitted.predict(query)).all()
    for name in ("settings_", "coefficients_", "losses_", "kit_name_"):
        assert getattr(loaded, name) == getattr(fitted, name)
    assert loaded.classes_.dtype == fitted.classes_.dtype
    loaded.save(tmp_path / "again.fewshift")
    assert (tmp_path / "again.fewshift").read_bytes() == path.read_bytes()
    assert b"support/images" not in path.read_bytes()


def test_a_loaded_classifier_computes_as_it_was_fitted(
    small_kit: Kit, pictures: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: True)
    classifier = fs.FewShotClassifier(kit=small_kit, precision="float32").fit(*pictures())
    classifier.precision = "auto"  # for the next fit
    classifier.save(tmp_path / "x.fewshift")
    loaded = fs.load(tmp_path / "x.fewshift", kit=small_kit)
    for found in (classifier, loaded, pickle.loads(pickle.dumps(classifier))):
        assert chosen_precision(found._opened.engine) == ""
    assert chosen_precision(loaded.fit(*pictures())._opened.engine) == ""
    assert chosen_precision(classifier.fit(*pictures())._opened.engine) == "bfloat16"


def test_a_precision_that_another_engine_had_is_no_hindrance(
    small_kit: Kit, pictures: Pictures, tmp_path: Path
) -> None:
    images = pictures()
    classifier = fs.FewShotClassifier(kit=small_kit, device="cpu", precision="bfloat16").fit(*images)
    classifier.save(tmp_path / "x.fewshift", with_support=True)
    loaded = fs.load(tmp_path / "x.fewshift", kit=small_kit, device="cpu", engine="plain")
    loaded.save(tmp_path / "again.fewshift")
    assert (tmp_path / "again.fewshift").read_bytes() == (tmp_path / "x.fewshift").read_bytes()
    for found in (loaded, pickle.loads(pickle.dumps(loaded))):
        found.add_class("more", images[0][:2])
        assert found.engine_.name == "plain"
    assert loaded.fit(*images).engine_.name == "plain"


def test_the_bundled_kit_is_found_by_its_name(
    small_kit: Kit, pictures: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundled, "KITS", tmp_path / "kits")
    (tmp_path / "kits").mkdir()
    save_kit(small_kit, tmp_path / "kits" / "tiny.kit")
    classifier = fs.FewShotClassifier(method="ncc", quiet=True).fit(*pictures(2, 2))
    assert classifier.kit_name_ == "tiny"
    classifier.save(tmp_path / "x.fewshift")
    query = pictures(2, 2, first=7)[0]
    assert (fs.load(tmp_path / "x.fewshift").predict(query) == classifier.predict(query)).all()
    (tmp_path / "kits" / "tiny.kit").unlink()
    with pytest.raises(fs.FewshiftError, match="fitted with the kit 'tiny', which does not come with"):
        fs.load(tmp_path / "x.fewshift")


def test_the_default_kit_is_said_once(
    small_kit: Kit,
    pictures: Pictures,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(bundled, "KITS", tmp_path)
    save_kit(small_kit, tmp_path / "said-once.kit")
    for _ in range(2):
        fs.FewShotClassifier(method="ncc").fit(*pictures(2, 1))
    assert [record.getMessage() for record in caplog.records if "said-once" in record.getMessage()] == [
        "fewshift: using the kit said-once, the best on validation of those installed; "
        "kit= or --kit takes another"
    ]


def test_with_its_backbone_it_needs_no_kit(
    fitted: fs.FewShotClassifier, pictures: Pictures, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "x.fewshift", with_backbone=True)
    query = pictures(3, 2, first=9)[0]
    assert (fs.load(tmp_path / "x.fewshift").predict_proba(query) == fitted.predict_proba(query)).all()
    fitted.save(tmp_path / "y.fewshift", with_backbone=True, with_support=True)
    changed = fs.load(tmp_path / "y.fewshift").add_class("new", pictures(4, 2)[0][6:])
    assert changed.classes_.tolist()[-1] == "new"


def test_a_kit_inside_a_file_keeps_its_name(
    fitted: fs.FewShotClassifier, kit_file: Path, pictures: Pictures, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "whole.fewshift", with_backbone=True)
    loaded = fs.load(tmp_path / "whole.fewshift")
    for found in (loaded, copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert found.kit_name_ == fitted.kit_name_ == "small"
        assert metadata(found)["kit"] == "small"
        found.save(tmp_path / "alone.fewshift", with_backbone=False)
        with pytest.raises(fs.FewshiftError, match="was fitted with the kit 'small', which does not come"):
            fs.load(tmp_path / "alone.fewshift")
        again = fs.load(tmp_path / "alone.fewshift", kit=kit_file)
        assert (again.predict(pictures()[0]) == fitted.predict(pictures()[0])).all()


def test_what_a_file_carried_is_kept_when_it_is_saved_again(
    fitted: fs.FewShotClassifier, pictures: Pictures, tmp_path: Path
) -> None:
    query = pictures(3, 2, first=9)[0]
    fitted.save(tmp_path / "x.fewshift", with_backbone=True, with_support=True)
    loaded = fs.load(tmp_path / "x.fewshift").add_class("new", pictures(4, 2)[0][6:])
    loaded.save(tmp_path / "y.fewshift")
    again = fs.load(tmp_path / "y.fewshift")  # no kit is asked for
    assert (again.predict_proba(query) == loaded.predict_proba(query)).all()
    again.remove_class("new")  # the support images are there
    loaded.save(tmp_path / "small.fewshift", with_backbone=False, with_support=False)
    assert (tmp_path / "small.fewshift").stat().st_size < (tmp_path / "y.fewshift").stat().st_size / 2
    loaded.fit(*pictures(2, 2)).save(tmp_path / "fresh.fewshift")
    fresh = fs.load(tmp_path / "fresh.fewshift")  # on the backbone of the file, which no other place has
    assert not fresh._has_support
    assert (fresh.predict_proba(query) == loaded.predict_proba(query)).all()


def test_weights_that_a_package_has_are_put_in_too(pictures: Pictures, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Lite0()
    kit = Kit(freeze(net, adapters_at(net, ())), ImageSettings(32))
    fitted = fs.FewShotClassifier(method="ncc", kit=kit).fit(*pictures(2, 2))
    fitted.save(tmp_path / "x.fewshift", with_backbone=True)
    query = pictures(2, 2, first=9)[0]
    assert (fs.load(tmp_path / "x.fewshift").predict_proba(query) == fitted.predict_proba(query)).all()


def test_a_network_that_only_its_owner_can_build_is_refused(pictures: Pictures, tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    fitted = fs.FewShotClassifier(method="ncc", kit=Kit(backbone_from(net))).fit(*pictures(2, 2))
    with pytest.raises(
        fs.FewshiftError, match=r"cannot build a WithLastMap again.* save without the backbone"
    ):
        fitted.save(tmp_path / "x.fewshift", with_backbone=True)


def test_parameters_that_are_set_later_are_for_the_next_fit(
    small_kit: Kit, pictures: Pictures, tmp_path: Path
) -> None:
    images, labels = pictures(3, 3)
    fitted, other = (fs.FewShotClassifier(method="pa", kit=small_kit).fit(images, labels) for _ in range(2))
    fitted.set_params(method="ncc", seed=7)
    for classifier in (fitted, other):
        classifier.add_images("shape 1", images[3:5])
    assert (fitted.predict_proba(images) == other.predict_proba(images)).all()
    fitted.save(tmp_path / "x.fewshift")
    loaded = fs.load(tmp_path / "x.fewshift", kit=small_kit)
    assert (loaded.method, loaded.seed) == ("pa", 0)


def test_copies_and_exports_read_images_as_the_fit_did(
    fitted: fs.FewShotClassifier, small_kit: Kit, pictures: Pictures, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "x.fewshift")
    images = [np.tile(image, (2, 3, 1)) for image in pictures()[0]]  # of another shape than the network's
    other = replace(small_kit, images=replace(small_kit.images, kind="practical"))
    loaded = fs.load(tmp_path / "x.fewshift", kit=other)
    wanted = fitted.predict_proba(images)
    for classifier in (loaded, copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert (classifier.predict_proba(images) == wanted).all()
    loaded.set_params(method="ncc")
    assert metadata(loaded) == {**metadata(fitted), "kit": "own"}


def test_a_copy_does_not_follow_a_kit_that_was_replaced(
    small_kit: Kit, pictures: Pictures, tmp_path: Path
) -> None:
    images, labels = pictures()
    save_kit(small_kit, tmp_path / "my.kit")
    fitted = fs.FewShotClassifier(kit=tmp_path / "my.kit", method="ncc").fit(images, labels)
    again = pickle.loads(pickle.dumps(fitted))
    assert (pickle.loads(pickle.dumps(again)).predict(images) == fitted.predict(images)).all()
    frozen = {name: value + 0.01 for name, value in small_kit.backbone.frozen.items()}
    trained = replace(small_kit, backbone=replace(small_kit.backbone, frozen=frozen))
    save_kit(trained, tmp_path / "my.kit")
    for copied in (again, pickle.loads(pickle.dumps(again)), copy.deepcopy(fitted)):
        with pytest.raises(fs.FewshiftError, match="the kit my has another backbone than when this"):
            copied.predict(images)
    assert copied.fit(images, labels).predict(images).shape == (len(images),)


def test_another_backbone_is_refused(
    fitted: fs.FewShotClassifier, small_kit: Kit, pictures: Pictures, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "x.fewshift")
    frozen = {name: value + 0.01 for name, value in small_kit.backbone.frozen.items()}
    small = small_kit.backbone
    other = Kit(type(small)(small.net, frozen, small.adapters), small_kit.images)
    with pytest.raises(fs.FewshiftError, match=r"was fitted on another backbone .* give the kit small"):
        fs.load(tmp_path / "x.fewshift", kit=other)


def test_with_its_support_images_it_can_be_changed(
    fitted: fs.FewShotClassifier, kit_file: Path, pictures: Pictures, tmp_path: Path
) -> None:
    new = pictures(4, 2)[0][6:]
    fitted.save(tmp_path / "without.fewshift")
    loaded = fs.load(tmp_path / "without.fewshift", kit=kit_file)
    with pytest.raises(fs.FewshiftError, match=r"without its support images .* adapt=False"):
        loaded.add_class("new", new)
    with pytest.raises(fs.FewshiftError, match="without its support images"):
        loaded.save(tmp_path / "y.fewshift", with_support=True)
    assert not (tmp_path / "y.fewshift").exists()
    loaded.add_class("new", new, adapt=False)
    assert loaded.classes_.tolist()[-1] == "new"
    loaded.remove_class("new", adapt=False)
    assert np.allclose(loaded.predict_proba(new), fitted.predict_proba(new))

    fitted.save(tmp_path / "with.fewshift", with_support=True)
    loaded = fs.load(tmp_path / "with.fewshift", kit=kit_file)
    kept, given = loaded._support_set, fitted._support_set
    assert kept is not None
    assert given is not None
    assert (kept.images - given.images).abs().max() <= 1 / 255 + 1e-6
    assert torch.equal(kept.labels, given.labels)
    loaded.add_class("new", new)
    assert loaded.predict_proba(new).shape == (2, 4)


def test_what_it_was_fitted_with_comes_back(kit_file: Path, pictures: Pictures, tmp_path: Path) -> None:
    given = {"method": "gd", "settings": "published", "seed": 5}
    classifier = fs.FewShotClassifier(kit=kit_file, **given).fit(*pictures(2, 2))
    classifier.save(tmp_path / "x.fewshift", with_backbone=True)
    loaded = fs.load(tmp_path / "x.fewshift")
    assert {name: loaded.get_params()[name] for name in given} == given
    assert repr(loaded) == "FewShotClassifier(method='gd', kit=<Kit>, settings='published', seed=5)"


@pytest.mark.parametrize(
    "label", ["a", 3, True, None, 2.5, float("inf"), (1, ("b", None)), b"\x00\xff"], ids=repr
)
def test_labels_in_files_come_back(label: Any) -> None:
    found = from_json(to_json(label))
    assert found == label
    assert type(found) is type(label)


def test_labels_that_no_file_can_keep_are_refused(small_kit: Kit, pictures: Pictures, tmp_path: Path) -> None:
    images, _ = pictures(2, 1)
    classifier = fs.FewShotClassifier(kit=small_kit, method="ncc").fit(images, [frozenset({1}), "b"])
    with pytest.raises(fs.FewshiftError, match="of type frozenset, which a file cannot keep"):
        classifier.save(tmp_path / "x.fewshift")
    assert list(tmp_path.iterdir()) == []


def test_damaged_and_other_files_are_refused(
    fitted: fs.FewShotClassifier, kit_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "x.fewshift"
    fitted.save(path)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(fs.FewshiftError, match="checksum"):
        fs.load(path, kit=kit_file)
    path.write_bytes(content[:100])
    with pytest.raises(fs.FewshiftError, match="no safetensors file, or it is damaged"):
        fs.load(path, kit=kit_file)
    with pytest.raises(fs.FewshiftError, match="no Fewshift classifier"):
        fs.load(kit_file, kit=kit_file)
    with pytest.raises(fs.FewshiftError, match="there is no classifier"):
        fs.load(tmp_path / "nowhere", kit=kit_file)


def test_what_cannot_be_written_leaves_the_old_file(
    fitted: fs.FewShotClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.fewshift").write_bytes(b"old")
    with pytest.raises(fs.FewshiftError, match="cannot be written"):
        fitted.save(tmp_path / "x.fewshift" / "below a file")
    for folder in (tmp_path, "."):
        with pytest.raises(fs.FewshiftError, match="is a folder: give the name of a file"):
            fitted.save(folder)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(fs.FewshiftError, match="No space left on device"):
        fitted.save(tmp_path / "x.fewshift")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("x.fewshift", b"old")]


def test_two_that_write_one_file_at_a_time(
    fitted: fs.FewShotClassifier, kit_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, within = tmp_path / "x.fewshift", os.fsync, []

    def meanwhile(descriptor: int) -> None:
        if not within:
            within.append(descriptor)
            fitted.save(path, with_support=True)  # as another thread would
        real(descriptor)

    monkeypatch.setattr(os, "fsync", meanwhile)
    fitted.save(path)
    assert fs.load(path, kit=kit_file).classes_.tolist() == fitted.classes_.tolist()
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.fewshift"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_predictions_are_equal_on_a_gpu(
    fitted: fs.FewShotClassifier, kit_file: Path, pictures: Pictures, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "x.fewshift")
    query = pictures(3, 5, first=9)[0]
    there = fs.load(tmp_path / "x.fewshift", kit=kit_file, device="cuda")
    assert (there.predict(query) == fitted.predict(query)).all()
    np.testing.assert_allclose(there.predict_proba(query), fitted.predict_proba(query), atol=1e-3)
