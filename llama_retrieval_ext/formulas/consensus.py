"""Consensus: the ids that enough legs contain."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from llama_retrieval_ext.errors import ConfigurationError


def in_at_least(rankings: Sequence[Sequence[str]], *, at_least: int) -> set[str]:
    r"""Return the ids that enough rankings contain.

    .. math:: \{d : |\{i : d \in L_i\}| \ge m\}

    Args:
        rankings: One sequence of ids per leg; their order does not matter, and a repeated id counts
            once per leg.
        at_least: Number of legs that must contain an id. 1 gives the union, the number of legs
            gives the intersection, more gives the empty set.

    Returns:
        The ids. Empty for no rankings.

    Raises:
        ConfigurationError: ``at_least`` is below 1.

    Source:
        The threshold function over set membership, as in Barbay and Kenyon, "Adaptive Intersection
        and t-Threshold Problems", SODA 2002, https://dblp.org/rec/conf/soda/BarbayK02.html.

    Examples:
        >>> sorted(in_at_least([["a", "b"], ["b", "c"], ["c", "b"]], at_least=2))
        ['b', 'c']

    """
    if at_least < 1:
        raise ConfigurationError(
            f"at_least must be at least 1, got {at_least}; 1 keeps whatever any ranking contains"
        )
    found_by = Counter(chain.from_iterable(dict.fromkeys(ranking) for ranking in rankings))
    return {node_id for node_id, count in found_by.items() if count >= at_least}
