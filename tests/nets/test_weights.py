import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.nets.resnet import ResNet18
from fewshift.nets.weights import read_url_checkpoint

State = dict[str, Tensor]


@pytest.fixture
def net() -> ResNet18:
    torch.manual_seed(3)
    net = ResNet18(width=4, stem_padding=1)
    with torch.no_grad():
        net(torch.randn(8, 3, 28, 28))
    return net.eval()


def published(net: ResNet18) -> State:
    """The state as the published training code has it: no `last`, one linear head a domain."""
    state = {name: tensor for name, tensor in net.state_dict().items() if name != "last.weight"}
    return state | {"cls_fn.0.weight": torch.randn(7, 32), "cls_fn.1.bias": torch.randn(5)}


def saved(path: Path, state: State, **more: Any) -> Path:
    extra = {"epoch": 3, "args": {"model.name": "url"}, "best_val_acc": np.mean([70.1, 80.2])}
    torch.save({"state_dict": state, "best_val_loss": np.float32(1.5), **extra, **more}, path)
    return path


@pytest.mark.parametrize("prefix", ["", "module.", "backbone.", "module.backbone."])
def test_a_published_checkpoint_gives_the_same_features(tmp_path: Path, net: ResNet18, prefix: str) -> None:
    state = {prefix + name: tensor for name, tensor in published(net).items()}
    read = read_url_checkpoint(saved(tmp_path / "model_best.pth.tar", state)).eval()
    images = torch.randn(2, 3, 28, 28)
    with torch.no_grad():
        assert torch.equal(read(images), net(images))
    assert torch.equal(read.last.weight, torch.eye(32))


def test_bare_and_old_format_states(tmp_path: Path, net: ResNet18) -> None:
    torch.save(published(net), tmp_path / "bare.pth")
    torch.save({"state_dict": published(net)}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for name in ("bare.pth", "old.pth"):
        assert torch.equal(read_url_checkpoint(tmp_path / name).conv1.weight, net.conv1.weight)


def test_padding_is_the_callers_choice(tmp_path: Path, net: ResNet18) -> None:
    path = saved(tmp_path / "c.pth", published(net))
    assert read_url_checkpoint(path).stem_padding == 1
    assert read_url_checkpoint(path, stem_padding=2).stem_padding == 2


def drop(state: State) -> None:
    del state["layer3.1.bn2.running_var"]


def rename(state: State) -> None:
    state["layer2.0.shortcut.weight"] = state.pop("layer2.0.downsample.0.weight")


def add(state: State) -> None:
    state["film.gamma"] = torch.ones(3)


def reshape(state: State) -> None:
    state["layer4.1.bn2.bias"] = torch.zeros(5)


def twice(state: State) -> None:
    state["module.conv1.weight"] = state["conv1.weight"]


def empty(state: State) -> None:
    state.clear()


def number(state: State) -> None:
    state["layer1.0.bn1.bias"] = 3  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop, "lacks layer3.1.bn2.running_var"),
        (rename, "lacks layer2.0.downsample.0.weight"),
        (add, "unknown film.gamma"),
        (reshape, "layer4.1.bn2.bias has shape (5,), not (32,)"),
        (twice, "conv1.weight twice"),
        (empty, "no dictionary of weights"),
        (number, "layer1.0.bn1.bias among its weights are no tensors"),
    ],
)
def test_every_key_counts(tmp_path: Path, net: ResNet18, change: Callable[[State], None], words: str) -> None:
    state = published(net)
    change(state)
    path = saved(tmp_path / "c.pth", state)
    with pytest.raises(FewshiftError) as caught:
        read_url_checkpoint(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("evil-was-here"),))


def test_objects_are_never_unpickled(tmp_path: Path, net: ResNet18, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path / "c.pth", published(net), extra=Evil())
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps({"state_dict": Evil()}))
    for file in (path, tmp_path / "plain.pkl"):
        with pytest.raises(FewshiftError, match=r"pickle of more than tensors|no checkpoint"):
            read_url_checkpoint(file)
    assert not (tmp_path / "evil-was-here").exists()


def test_damaged_and_foreign_files(tmp_path: Path, net: ResNet18) -> None:
    whole = saved(tmp_path / "whole.pth", published(net)).read_bytes()
    files = {
        "truncated": whole[: len(whole) // 2],
        "almost": whole[:-10],
        "empty": b"",
        "text": b"hello, this is no checkpoint",
        "image": b"\x89PNG\r\n\x1a\n" + bytes(50),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FewshiftError, match="no checkpoint") as caught:
            read_url_checkpoint(tmp_path / name)
        assert "\n" not in str(caught.value)
    torch.save([1, 2], tmp_path / "list")
    torch.save({"conv2.weight": torch.ones(1)}, tmp_path / "other")
    for name in ("list", "other"):
        with pytest.raises(FewshiftError, match="no checkpoint"):
            read_url_checkpoint(tmp_path / name)
    with pytest.raises(FewshiftError, match="there is no checkpoint"):
        read_url_checkpoint(tmp_path / "missing")
    with pytest.raises(FewshiftError, match="there is no checkpoint"):
        read_url_checkpoint(tmp_path)
