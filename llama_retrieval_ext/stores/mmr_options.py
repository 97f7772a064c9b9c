"""LlamaIndex's options of the mode MMR."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_retrieval_ext.arguments import is_number
from llama_retrieval_ext.errors import ConfigurationError

# What LlamaIndex hands over as ``vector_store_kwargs``.
Options: TypeAlias = Mapping[str, float | None]

MMR_OPTIONS: Final = frozenset({"mmr_threshold", "mmr_prefetch_factor", "mmr_prefetch_k"})
# What LlamaIndex's integrations use.
_THRESHOLD: Final = 0.5
_PREFETCH_FACTOR: Final = 4.0
# More than any engine looks at.
_MOST_CANDIDATES: Final = 2**31 - 1


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
        """What a query and its options say.

        Raises:
            ConfigurationError: A value is out of range, or two of them contradict each other.
        """
        return cls(_threshold(query, options), _candidates(options, top_k=top_k))


def _threshold(query: VectorStoreQuery, options: Options) -> float:
    inside, beside = query.mmr_threshold, options.get("mmr_threshold")
    if inside is not None and beside is not None and inside != beside:
        raise ConfigurationError(
            f"the query has mmr_threshold={inside} and the options have mmr_threshold={beside}; "
            "leave one out"
        )
    given = inside if beside is None else beside
    if given is None:
        return _THRESHOLD
    if not is_number(given) or not 0.0 <= given <= 1.0:
        raise ConfigurationError(
            "mmr_threshold must be between 0 (diversity alone) and 1 (relevance alone), "
            f"got {given!r}"
        )
    return given


def _candidates(options: Options, *, top_k: int) -> int:
    count, factor = options.get("mmr_prefetch_k"), options.get("mmr_prefetch_factor")
    if count is not None and factor is not None:
        raise ConfigurationError(
            f"mmr_prefetch_k={count} and mmr_prefetch_factor={factor} both say how many candidates "
            "to pick from, got both; leave one out"
        )
    if count is not None:
        if isinstance(count, bool) or not isinstance(count, int) or count < top_k:
            raise ConfigurationError(
                f"mmr_prefetch_k must be a whole number from {top_k}, the number of hits to pick, "
                f"got {count!r}"
            )
        return count
    factor = _PREFETCH_FACTOR if factor is None else factor
    if not is_number(factor) or factor < 1:
        raise ConfigurationError(f"mmr_prefetch_factor must be a number from 1, got {factor!r}")
    return int(min(top_k * factor, _MOST_CANDIDATES))
