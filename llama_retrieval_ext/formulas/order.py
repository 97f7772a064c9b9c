"""The one order of results: by score, best first; equal scores by id."""

from collections.abc import Mapping


def ranked(scores: Mapping[str, float]) -> list[tuple[str, float]]:
    """Ids with their scores, best first.

    Ties are broken by id, ascending, so that the same scores always give the same order.

    Args:
        scores: Finite score of every id, as the formulas return them; higher is better.

    Returns:
        Pairs of id and score. Empty for no scores.

    Examples:
        >>> ranked({"b": 0.5, "c": 0.9, "a": 0.5})
        [('c', 0.9), ('a', 0.5), ('b', 0.5)]

    """
    # Two stable sorts on plain keys are faster than one on (-score, id) tuples.
    order = sorted(scores)
    order.sort(key=scores.__getitem__, reverse=True)
    return [(node_id, scores[node_id]) for node_id in order]
