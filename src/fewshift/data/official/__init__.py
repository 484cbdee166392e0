"""The official specs of Meta-Dataset's ten converted datasets, and which datasets the protocol trains on.

See README.md in this folder for their source and licence. They hold counts and names, no images: the sampler
can be run on them as they are, and a user's records can be compared with them.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files

from fewshift.data.spec import Spec
from fewshift.data.spec_json import parse_spec

SEEN = ("ilsvrc_2012", "omniglot", "aircraft", "cu_birds", "dtd", "quickdraw", "fungi", "vgg_flower")
UNSEEN = ("traffic_sign", "mscoco", "mnist", "cifar10", "cifar100")
ORDER = SEEN + UNSEEN  # of every table; a seen domain's place is also its domain index
WITH_SPEC = (*SEEN, "traffic_sign", "mscoco")


@cache
def official_spec(name: str) -> Spec | None:
    """The published spec of this dataset; None for a name that has none (MNIST and CIFAR came later)."""
    if name not in WITH_SPEC:
        return None
    packed = files(__name__).joinpath(f"{name}.json.gz").read_bytes()
    return parse_spec(gzip.decompress(packed).decode(), f"official {name}")
