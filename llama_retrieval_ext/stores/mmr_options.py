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
        """Return what a query and its options say together.

        Raises:
            ConfigurationError: A value is out of range, or two say different things.
        """
        threshold = _threshold(query.mmr_threshold, options.get("mmr_threshold"))
        factor, count = options.get("mmr_prefetch_factor"), options.get("mmr_prefetch_k")
        if factor is not None and count is not None:
            raise ConfigurationError(
                f"mmr_prefetch_factor={factor} and mmr_prefetch_k={count} both say how many "
                "candidates to pick from; pass one of them"
            )
        return cls(threshold, _by_factor(factor, top_k) if count is None else _count(count, top_k))


def _threshold(of_query: float | None, option: float | None) -> float:
    if of_query is not None and option is not None and of_query != option:
        raise ConfigurationError(
            f"the query has mmr_threshold={of_query} and its options {option}; pass one of them"
        )
    given = [each for each in (option, of_query) if each is not None]
    threshold = given[0] if given else _THRESHOLD
    if not (is_number(threshold) and 0.0 <= threshold <= 1.0):
        raise ConfigurationError(
            f"mmr_threshold must be between 0 (diversity alone) and 1 (relevance alone), "
            f"got {threshold!r}"
        )
    return threshold


def _by_factor(factor: float | None, top_k: int) -> int:
    if factor is None:
        factor = _PREFETCH_FACTOR
    elif not is_number(factor) or factor < 1:
        raise ConfigurationError(
            "mmr_prefetch_factor must be a number of at least 1, how many candidates there are "
            f"for each hit, got {factor!r}"
        )
    return max(top_k, int(top_k * factor))


def _count(count: float, top_k: int) -> int:
    if not (is_number(count) and count == int(count) and count >= top_k):
        raise ConfigurationError(
            f"mmr_prefetch_k must be a whole number of at least similarity_top_k={top_k}, "
            f"got {count!r}"
        )
    return int(count)
