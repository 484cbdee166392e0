"""The shipped kit of EfficientNet-Lite0: what its file says, that it fits, and when it is the default."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

import fewshift as fs
from fewshift.data.drawn.suite import drawn_domain
from fewshift.errors import FewshiftError
from fewshift.nets import architectures, bundled
from fewshift.nets import lite0 as module
from fewshift.nets.adapters import adapters_at
from fewshift.nets.backbone import freeze
from fewshift.nets.bundled import bundled_kits, default_kit_name, find_kit, validation_score
from fewshift.nets.feature_kit import moves_only_the_last_map, with_sites
from fewshift.nets.kit import KIT, Kit, load_kit, save_kit
from fewshift.nets.lite0 import PACKAGE, lite0
from fewshift.nets.tensor_file import read_header

installed = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason="the lite0 extra is not installed"
)


def test_the_file_is_small_and_says_what_was_chosen_and_how_good_it_is() -> None:
    path = bundled_kits()["lite0"]
    header = read_header(path, KIT)
    assert path.stat().st_size < 6_000_000
    assert path.with_suffix(".md").is_file()
    assert not header["weights"]
    assert header["sites"] == ["last"]
    assert len(header["domains"]) == 8
    for method in ("gd", "start", "tsp", "tsp_start", "white", "start_white"):
        assert {*header["info"]["rates"][method]} == {"seen", "unseen"}
    assert 0.5 < validation_score(header["info"]) < 1


@installed
def test_it_loads_and_starts_tasks_from_learned_values() -> None:
    name, kit = find_kit("lite0")
    assert name == "lite0"
    assert moves_only_the_last_map(kit)
    assert kit.classifier is not None
    assert kit.preconditioners is not None
    assert kit.starts is not None
    (start,) = kit.start(torch.eye(8)[0]).values()
    assert kit.starts.base is not None
    (common,) = kit.starts.base.values()
    assert 0 < (common - torch.eye(1280)).norm() < (start - torch.eye(1280)).norm() < 30
    bare = with_sites(kit, "last")  # from which another kit is trained
    assert bare.starts is None
    assert bare.images == kit.images


@installed
def test_weights_that_were_trained_on_stay_in_the_file(tmp_path: Path) -> None:
    net = lite0()
    packaged = Kit(freeze(net, adapters_at(net, ())))
    with torch.no_grad():
        net.head.weight.mul_(1.01)
    own = Kit(freeze(net, adapters_at(net, ())))
    for name, kit in (("packaged", packaged), ("own", own)):
        save_kit(kit, tmp_path / f"{name}.kit")
        found = load_kit(tmp_path / f"{name}.kit")
        assert found.backbone.fingerprint() == kit.backbone.fingerprint()
    assert not read_header(tmp_path / "packaged.kit", KIT)["weights"]


@installed
@pytest.mark.slow
def test_a_fit_and_its_file(tmp_path: Path) -> None:
    read = drawn_domain("shapes").source.read
    items = [(c, i) for c in range(3) for i in range(4)]
    query = read([(c, i) for c in range(3) for i in range(4, 7)])
    classifier = fs.FewShotClassifier(kit="lite0", quiet=True).fit(read(items), [c for c, _ in items])
    found = classifier.predict(query)
    assert np.mean(found == np.repeat([0, 1, 2], 3)) > 0.6
    classifier.save(tmp_path / "x.fewshift")
    assert (fs.load(tmp_path / "x.fewshift").predict(query) == found).all()


def test_the_best_on_validation_of_what_is_installed_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {name: validation_score(read_header(p, KIT)["info"]) for name, p in bundled_kits().items()}
    monkeypatch.setattr(bundled, "available", lambda architecture: True)
    assert default_kit_name() == max(scores, key=lambda name: scores[name])
    monkeypatch.setattr(bundled, "available", lambda architecture: False)
    assert default_kit_name() == "narrow"


def test_without_its_package_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACKAGE", "no_such_package")
    monkeypatch.setattr(architectures, "PACKAGE", "no_such_package")
    with pytest.raises(FewshiftError, match=r"pip install 'fewshift\[lite0\]'"):
        find_kit("lite0")
    assert default_kit_name() == "narrow"
