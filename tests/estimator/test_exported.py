"""Exported files give the classifier's output in other programs, for any batch, and name their classes."""

import io
import json
import sys
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image

from fewshift.cli import main
from fewshift.data.drawn.suite import drawn_domain
from fewshift.data.pixels import practical, prepare
from fewshift.data.records_folder import open_domain
from fewshift.errors import FewshiftError, MissingExtra
from fewshift.estimator import exported
from fewshift.estimator.classifier import FewShotClassifier
from fewshift.estimator.exported import export, preparation
from fewshift.evaluation.pixel_rule import pixel_rule
from fewshift.nets.backbone import freeze
from fewshift.nets.kit import ImageSettings, Kit, save_kit
from fewshift.nets.resnet import ResNet18

SIZE = 24


@pytest.fixture(scope="module")
def kit() -> Kit:
    torch.manual_seed(0)
    net = ResNet18(width=4)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.running_mean)
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
    return Kit(freeze(net), ImageSettings(size=SIZE))


@pytest.fixture(scope="module")
def classifier(kit: Kit) -> FewShotClassifier:
    """Adapted, with names that ASCII does not have."""
    source = drawn_domain("shapes").source
    images = source.read([(c, i) for c in range(3) for i in range(3)])
    labels = [name for name in ("blau", "žlutá", "red") for _ in range(3)]
    return FewShotClassifier(kit=kit, method="tsa", settings="published", quiet=True).fit(images, labels)


@pytest.mark.slow
def test_onnxruntime_gives_the_classifiers_logits(classifier: FewShotClassifier, tmp_path: Path) -> None:
    done = export(classifier, tmp_path / "model.onnx")
    assert done.difference < 1e-4
    assert done.images >= 4
    assert done.size == (tmp_path / "model.onnx").stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]  # the weights are inside
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    images = drawn_domain("plants").source.read([(c, 0) for c in range(5)])
    prepared = prepare(images, pixel_rule(classifier.kit_)).numpy()
    wanted = classifier.fitted_.logits(classifier.embed(images)).numpy()
    for count in (1, 2, 5):
        (found,) = session.run(None, {"images": prepared[:count]})
        np.testing.assert_allclose(found, wanted[:count], rtol=0, atol=1e-4)
    told = session.get_modelmeta().custom_metadata_map
    assert json.loads(told["classes"]) == classifier.classes_.tolist()
    assert json.loads(told["preprocessing"])["size"] == SIZE
    assert told["output"] == "logits"
    model = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert not [node for node in model.graph.node if "Norm" in node.op_type]
    assert str(Path(exported.__file__).parents[3]).encode() not in (tmp_path / "model.onnx").read_bytes()


@pytest.mark.slow
def test_a_torch_program_with_probabilities(classifier: FewShotClassifier, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    done = export(classifier, path, format="torch", probabilities=True)
    assert done.difference < 1e-4
    program = torch.export.load(path)  # a user's business; here it is our own file
    images = drawn_domain("cells").source.read([(c, 0) for c in range(4)])
    found = program.module()(prepare(images, pixel_rule(classifier.kit_)))
    np.testing.assert_allclose(found.numpy(), classifier.predict_proba(images), rtol=0, atol=1e-4)
    archive = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    (name,) = [name for name in archive.namelist() if name.endswith("fewshift.json")]
    assert json.loads(archive.read(name))["classes"] == classifier.classes_.tolist()
    assert str(Path(exported.__file__).parents[3]).encode() not in path.read_bytes()


@pytest.mark.parametrize("mode", [torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_the_modes_of_a_caller_change_no_file(
    classifier: FewShotClassifier,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: Callable[[], AbstractContextManager[None]],
) -> None:
    monkeypatch.setattr(exported, "torch_bytes", lambda program, told: b"written")  # which takes a second
    with mode():
        assert export(classifier, tmp_path / "model.pt2", format="torch").difference < 1e-4


def test_a_file_that_differs_is_not_written(
    classifier: FewShotClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exported, "onnx_bytes", lambda *_: b"wrong")
    monkeypatch.setattr(exported, "run_onnx", lambda content, x: torch.full((len(x), 3), 0.5))
    with pytest.raises(FewshiftError, match=r"model\.onnx was not written: its logits differ"):
        export(classifier, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_what_a_user_can_get_wrong(
    classifier: FewShotClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FewshiftError, match="no format 'tflite': choose one of onnx, torch"):
        export(classifier, tmp_path / "x", format="tflite")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(
        MissingExtra, match=r"onnxruntime is not installed: run pip install 'fewshift\[export\]'"
    ):
        export(classifier, tmp_path / "x.onnx")
    assert list(tmp_path.iterdir()) == []


def test_preparation_in_words() -> None:
    assert "aligned corners" in preparation(pixel_rule(Kit(freeze(ResNet18(width=2)))))
    assert "the centre 0.875 of the shorter side" in preparation(practical(224, crop=0.875))


@pytest.mark.slow
def test_the_command_on_real_images(
    classifier: FewShotClassifier,
    md_mini: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_kit(classifier.kit_, tmp_path / "own.kit")
    classifier.save(tmp_path / "x.fewshift")
    (tmp_path / "real").mkdir()
    for place, pixels in enumerate(open_domain(md_mini / "birds").source.read([(c, 0) for c in range(5)])):
        Image.fromarray(pixels).save(tmp_path / "real" / f"{place}.png")
    words = ["fewshift", "export", "x.fewshift", "-o", "out.onnx", "--kit", "own.kit", "--check", "real"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert not left.value.code, said.err
    assert "largest difference to the classifier on 5 images" in said.out
    assert (tmp_path / "out.onnx").is_file()
