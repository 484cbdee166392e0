"""Several processes, one run: tasks are shared out, sums are added up, every process takes the same step."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fewshift.errors import FewshiftError

T = TypeVar("T")


@dataclass(frozen=True)
class Team:
    """This process among the processes of the run."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Does this process write files and talk to the user?"""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """This process's part: every `size`-th item, so that the parts together are all items, each once."""
        return list(items[self.rank :: self.size])

    def check_enough(self, count: int, what: str) -> None:
        """Refuse to share fewer things per step than there are processes: some would have nothing to do."""
        if count < self.size:
            raise FewshiftError(
                f"{self.size} processes cannot share {count} {what} a step: start {count} at most"
            )

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes: one message for all of them."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)
        for tensor, total in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def any(self, flag: bool, device: torch.device) -> bool:
        """Is the flag up in some process?"""
        if self.size == 1:
            return flag
        raised = torch.tensor(float(flag), device=device)
        dist.all_reduce(raised)
        return bool(raised.item() > 0)

    def wait(self) -> None:
        """Until every process is here."""
        if self.size > 1:
            dist.barrier()


ALONE = Team()


def repeat_to_the_bit() -> None:
    """From now on only algorithms that give the same bits each time, also on a GPU; call before using one."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


@contextmanager
def joined(device: torch.device) -> Iterator[tuple[Team, torch.device]]:
    """The team `torchrun` started, and this process's device; alone when nothing started one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE, device
        return
    if not dist.is_available():
        raise FewshiftError("this torch has no torch.distributed: run without torchrun")
    if device.type == "cuda":
        place = int(os.environ.get("LOCAL_RANK", "0"))
        if place >= torch.cuda.device_count():
            raise FewshiftError(
                f"torchrun started process {place} but the machine has {torch.cuda.device_count()} GPUs: "
                "lower --nproc-per-node"
            )
        device = torch.device("cuda", place)
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Team(dist.get_rank(), dist.get_world_size()), device
    finally:
        dist.destroy_process_group()


class _SharedSum(torch.autograd.Function):
    """The sum over processes; its derivative is again the sum over processes."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total


def shared_sum(value: Tensor) -> Tensor:
    """The sum over all processes, through which gradients go."""
    total: Tensor = _SharedSum.apply(value)  # type: ignore[no-untyped-call]
    return total


class SharedBatchNorm(nn.Module):
    """Batch norm over the images of all processes, so that sharing a batch changes nothing; any backend.

    It borrows the parameters and buffers of the layer it stands in for.
    """

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.eps, self.momentum = norm.eps, norm.momentum
        self.weight, self.bias = norm.weight, norm.bias
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", norm.running_mean)
        self.register_buffer("running_var", norm.running_var)
        self.register_buffer("num_batches_tracked", norm.num_batches_tracked)

    def forward(self, x: Tensor) -> Tensor:  # (n, c, h, w) -> (n, c, h, w)
        """The normalised activations."""
        if not self.training:
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        values = x.float()
        count = shared_sum(values.new_full((1,), x.numel() / x.shape[1]))
        mean = shared_sum(values.sum((0, 2, 3))) / count
        centred = values - mean[:, None, None]
        variance = shared_sum(centred.square().sum((0, 2, 3))) / count
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum or 0.0)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum or 0.0)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        normed: Tensor = centred * scale[:, None, None] + self.bias[:, None, None]
        return normed.to(x.dtype)


def share_batch_norms(net: nn.Module) -> nn.Module:
    """The network with every batch norm over all processes; names of weights stay the same."""
    for name, child in list(net.named_children()):
        if isinstance(child, nn.BatchNorm2d):
            setattr(net, name, SharedBatchNorm(child))
        else:
            share_batch_norms(child)
    return net
