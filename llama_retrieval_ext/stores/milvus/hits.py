"""The best hits of a search, with everything that ties with the last of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from llama_retrieval_ext.errors import ConfigurationError

Hit: TypeAlias = Mapping[str, Any]  # as pymilvus has it: id, distance, entity

# What one request returns at most, on every Milvus.
MOST: Final = 16_384


def check_within(top_k: int) -> None:
    """Refuse to look for more hits than Milvus returns.

    Raises:
        ConfigurationError: There are too many.
    """
    if top_k > MOST:
        raise ConfigurationError(f"Milvus returns at most {MOST} hits, got top_k={top_k}")


def first_limit(top_k: int, *, spare: int = 1) -> int:
    """How many to ask for at first: some more than wanted show a tie where the ranking is cut."""
    return min(top_k + spare, MOST)


def best_hits(
    ask: Callable[[int], Sequence[Hit]],
    *,
    top_k: int,
    score: Callable[[Hit], float],
    keep: Callable[[Hit], bool] = lambda _: True,
    spare: int = 1,
) -> tuple[list[Hit], bool]:
    """The best hits that are to be kept, at least ``top_k`` where there are as many.

    Args:
        ask: Gives the best hits of all, as many as it is told.
        top_k: How many are wanted.
        score: Of a hit.
        keep: Whether a hit counts.
        spare: How many more than wanted to ask for at first, so that a tie where the ranking is
            cut shows.

    Returns:
        The hits, with all that tie with the last that is wanted, so that ids can decide between
        them; and whether there may be more that Milvus does not return.
    """
    limit = first_limit(top_k, spare=spare)
    while True:
        hits = ask(limit)
        kept = [hit for hit in hits if keep(hit)]
        if len(hits) < limit:
            return kept, False
        if len(kept) >= top_k and score(kept[top_k - 1]) != score(hits[-1]):
            return kept, False
        if limit == MOST:
            return kept, len(kept) < top_k
        limit = min(4 * limit, MOST)
