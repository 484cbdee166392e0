"""An optional cache of a domain's pixels: 8-bit, decoded, memory-mapped.

An image whose sides are at most 84 is kept as it is, so that a task from the cache equals the uncached one to
the last bit. A larger one is kept as the protocol rule resizes it, in whole grey levels; such a cache is
`rounded`: its tasks equal the uncached ones of `PROTOCOL_84_ROUNDED` to the last bit, and those of
`PROTOCOL_84` within half a grey level. `protocol_rule` gives the one to read a domain with, and the
rule's name goes into the results.

On disk: `pixels.bin` (channel, row, column of one image after the other, grey as one channel), `shapes.npy`,
`offsets.npy`, and `cache.json`, which is written last and makes the others a cache.
"""

from fewshift.data.cache.build import build_cache, verify_cache
from fewshift.data.cache.files import CacheInfo, read_info
from fewshift.data.cache.source import CachedSource, open_cached, protocol_rule

__all__ = [
    "CacheInfo",
    "CachedSource",
    "build_cache",
    "open_cached",
    "protocol_rule",
    "read_info",
    "verify_cache",
]
