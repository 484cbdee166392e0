"""TA²-Net's policy: how many adapters should each convolution get for this task?

Guo et al., ICCV 2023. Confirmed from code (PRIS-CV/TA2-Net): a second pass through the frozen backbone over
the support set. Before each adapted 3x3 convolution a small head looks at the classes' mean activations and
chooses r of {0, 1, 2, 3}; the pass goes on with three adapters of the policy's own (Xavier, with bias,
learned across tasks), of which the first r are averaged. They serve the policy alone, no task is classified
by them. Logits are divided by 10 before the softmax.

Ours, where the release drifts: the backbone's batch norm always uses its running statistics, the heads' batch
norm always those of the task's classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewshift.core.centroids import prototypes
from fewshift.core.parallel import Counts, with_adapters, without_effect
from fewshift.core.precond import DomainPreconditioners
from fewshift.errors import FewshiftError
from fewshift.nets.adapters import ResidualAdapters, resnet18_adapters
from fewshift.nets.backbone import Backbone, listening
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit, Part
from fewshift.nets.learned import loaded
from fewshift.nets.resnet import ResNet18
from fewshift.types import Task, TaskParams

MOST = 3  # adapters per site
HIDDEN = 16
PART = "policy"  # its name in a kit
UNDER_POLICY = "preconditioners under the policy"  # TSP††'s, which a kit keeps beside TSP†'s


@dataclass(frozen=True)
class Decision:
    """What the policy says of a task, site by site."""

    sites: tuple[str, ...]
    log_probabilities: Tensor  # (sites, MOST + 1)
    greedy: Tensor  # (sites,) the likeliest r, with which the pass went on
    features: Tensor  # (n, d) of the support images at the end of the policy's own pass

    def counts(self) -> dict[str, int]:
        """r of each site."""
        return dict(zip(self.sites, self.greedy.tolist(), strict=True))

    def sampled(self, uniforms: Tensor) -> Tensor:  # (sites,) in [0, 1) -> (sites,)
        """One draw of r for each site, given the greedy choices below it."""
        edges = self.log_probabilities.detach().exp().cumsum(dim=1)[:, :-1]
        return (uniforms.to(edges)[:, None] >= edges).sum(dim=1)

    def log_probability(self, choices: Tensor) -> Tensor:  # (sites,) -> ()
        """Of these choices together."""
        return self.log_probabilities.gather(1, choices[:, None]).sum()


class SitePolicy(nn.Module):
    """What the policy owns at one convolution: the head that chooses, and its own three adapters."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.squeeze = nn.Linear(inputs, HIDDEN)
        self.norm = nn.BatchNorm1d(HIDDEN, track_running_stats=False)
        self.choose = nn.Linear(HIDDEN, MOST + 1)
        self.adapters = nn.Parameter(torch.empty(MOST, outputs, inputs))
        self.biases = nn.Parameter(torch.empty(MOST, outputs))
        for weight in (self.squeeze.weight, self.choose.weight, *self.adapters.unbind()):
            nn.init.xavier_normal_(weight.detach())
        nn.init.uniform_(self.biases, -(inputs**-0.5), inputs**-0.5)

    def logits(self, centres: Tensor) -> Tensor:  # (way, inputs) -> (MOST + 1,)
        """The mean over classes of what each class asks for."""
        scores: Tensor = self.choose(torch.relu(self.norm(self.squeeze(centres))))
        return scores.mean(dim=0)

    def forward(self, x: Tensor, count: Tensor) -> Tensor:  # (n, inputs, h, w), () -> (n, outputs, h', w')
        """The mean response of the first `count` adapters, which stays on the device; nothing for none."""
        used = (torch.arange(MOST, device=x.device) < count).to(x.dtype)
        shares = used / used.sum().clamp_min(1)
        matrix = torch.einsum("j,joi->oi", shares, self.adapters)
        read = x[:, :, :: self.stride, :: self.stride]
        # A product, not a convolution: torch 2.13 corrupts memory in the weight gradient of a small 1x1
        # convolution on channels-last images on a CPU.
        response = torch.einsum("oi,nihw->nohw", matrix, read)
        return response + (shares @ self.biases)[:, None, None]


def adapted_convs(backbone: Backbone) -> tuple[str, ...]:
    """The convolutions that a policy decides about; refused where there can be no policy."""
    net = backbone.net
    if type(net) is not ResNet18 or type(backbone.adapters) is not ResidualAdapters:
        raise FewshiftError(f"a policy needs a ResNet18 with residual adapters, not {type(net).__name__}")
    if backbone.adapters.convs != resnet18_adapters().convs:
        raise FewshiftError("a policy needs adapters beside every 3x3 convolution, not beside some of them")
    return backbone.adapters.convs


class AdapterPolicy(nn.Module):
    """A head and three adapters for every adapted convolution of a `ResNet18`."""

    def __init__(self, backbone: Backbone, temperature: float = 10.0) -> None:
        super().__init__()
        self.temperature = temperature
        self.sites = adapted_convs(backbone)
        modules = [backbone.net.get_submodule(site) for site in self.sites]
        self.at = nn.ModuleList(
            SitePolicy(conv.in_channels, conv.out_channels, conv.stride[0])
            for conv in modules
            if isinstance(conv, nn.Conv2d)
        )

    def forward(self, backbone: Backbone, task: Task) -> Decision:
        """A pass over the support set, site after site under the greedy choice."""
        chosen: list[Tensor] = []

        def choose(site: str, _conv: nn.Module, x: Tensor) -> None:
            centres = prototypes(x.mean(dim=(2, 3)), task.support.labels, task.way)
            chosen.append(F.log_softmax(self.of(site).logits(centres) / self.temperature, dim=0))

        def adapted(site: str, x: Tensor, response: Tensor) -> Tensor:
            more: Tensor = self.of(site)(x, chosen[-1].argmax())
            return response + more

        with listening(backbone.net, self.sites, choose, adapted):
            features = backbone({}, task.support.images)
        table = torch.stack(chosen)
        return Decision(self.sites, table, table.argmax(dim=1), features)

    def of(self, site: str) -> SitePolicy:
        """What the policy owns at this site."""
        found = self.at[self.sites.index(site)]
        assert isinstance(found, SitePolicy)
        return found

    @torch.no_grad()
    def counts(self, backbone: Backbone, task: Task) -> dict[str, int]:
        """The greedy choice for a task: r of every adapted convolution."""
        decision: Decision = self(backbone, task)
        return decision.counts()


def new_policy(backbone: Backbone, temperature: float, seed: int) -> AdapterPolicy:
    """A fresh policy whose weights the seed alone decides; the global generator stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AdapterPolicy(backbone, temperature)


def policy_part(policy: AdapterPolicy) -> Part:
    """A policy as a kit keeps it."""
    tensors = {name: tensor.detach().clone() for name, tensor in policy.state_dict().items()}
    return Part(tensors, {"temperature": policy.temperature})


def policy_of(kit: Kit) -> AdapterPolicy:
    """The policy that was trained for a kit, frozen."""
    found = kit.part(PART, "fewshift train policy")
    temperature = float(found.settings["temperature"])
    return loaded(lambda: AdapterPolicy(kit.backbone, temperature), found.tensors, kit.backbone, PART)


def configured(engine: Engine, start: TaskParams, counts: Counts) -> TaskParams:
    """Starting values under a configuration, as the engine likes them best.

    A site without adapter is left out and costs nothing; but graphs exist for all sites together only, so
    there it holds zeros, and every rule of `fewshift.core.parallel` gives it the rate 0.
    """
    whole = engine.name == "graph" and set(start) == set(engine.backbone.sites)
    return without_effect(start, counts) if whole else with_adapters(start, counts)


def preconditioner_part(learned: DomainPreconditioners) -> Part:
    """Preconditioners as a kit's part."""
    settings = {"domains": list(learned.domains), "design": learned.design}
    return Part({site: root.detach().cpu() for site, root in learned.roots.items()}, settings)


def preconditioners_of(kit: Kit, name: str) -> DomainPreconditioners:
    """The preconditioners in the part of this name, in the kit's precision."""
    part = kit.parts[name]
    domains = tuple(part.settings["domains"])
    if domains != kit.domains:
        raise FewshiftError(
            f"the kit's {name} are for {', '.join(domains)}, but its domains are {', '.join(kit.domains)}: "
            "train them again"
        )
    learned = DomainPreconditioners(domains, part.tensors, part.settings["design"])
    return learned.to(kit.backbone.device, kit.backbone.dtype)
