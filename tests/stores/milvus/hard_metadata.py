"""Odd metadata with what Milvus's expressions could trip over, and what its integration stores."""

import math

from tests.stores.odd_metadata import BIG, HARD_STRINGS, NUMBERS, STRINGS, OddMetadata

_KEYS = ["k", "tenant_id", "kb_id", "a.b", "a-b", "中文", "x/y:z@1+2-3"]
_STRINGS = [
    *STRINGS, *HARD_STRINGS, "\ue000", "\ue001\ue041", "_", "%", "a_b%c", "{x}", "\n",
]  # fmt: skip
_NUMBERS = [*NUMBERS, *BIG]

ODD = OddMetadata(strings=_STRINGS, numbers=_NUMBERS, keys=[*_KEYS, "id", "dense"])
# Without the keys that LlamaIndex's integration has for itself.
PLAIN = OddMetadata(strings=_STRINGS, numbers=_NUMBERS, keys=_KEYS)


def is_plain(value: object) -> bool:
    """Whether it is in JSON, and fits into 64 bits."""
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, int | float):
        return math.isfinite(value) if isinstance(value, float) else abs(value) < 2**63
    return True
