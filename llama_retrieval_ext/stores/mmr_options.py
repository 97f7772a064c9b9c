"""LlamaIndex's options of the mode MMR."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_retrieval_ext.errors import ConfigurationError

# What LlamaIndex hands over as ``vector_store_kwargs``.
Options: TypeAlias = Mapping[str, float | None]

MMR_OPTIONS: Final = frozenset({"mmr_threshold", "mmr_prefetch_factor", "mmr_prefetch_k"})
# What LlamaIndex's integrations use.
_THRESHOLD: Final = 0.5
_PREFETCH_FACTOR: Final = 4.0


@dataclass(frozen=True, slots=True)
class MmrOptions:
    """How to pick.

    Attributes:
        lambda_mult: 1 is nearness alone, 0 is diversity alone.
        candidates: How many of the nearest to pick from.
    """

    lambda_mult: float
    candidates: int

    @classmethod
    def of(cls, query: VectorStoreQuery, options: Options, *, top_k: int) -> Self:
        """What a query and its options say; options count first.

        Raises:
            ConfigurationError: The threshold is out of range.
        """
        given = options.get("mmr_threshold")
        given = query.mmr_threshold if given is None else given
        threshold = _THRESHOLD if given is None else given
        if not 0.0 <= threshold <= 1.0:
            raise ConfigurationError(
                f"mmr_threshold must be between 0 (diversity alone) and 1 (relevance alone), "
                f"got {threshold}"
            )
        factor = options.get("mmr_prefetch_factor") or _PREFETCH_FACTOR
        candidates = int(options.get("mmr_prefetch_k") or top_k * factor)
        return cls(threshold, max(top_k, candidates))
