"""How well the words of a query match those of a text; pure functions over tokens."""

from collections.abc import Collection, Container, Hashable, Sequence


def coverage(wanted: Collection[Hashable], present: Container[Hashable]) -> float:
    """The share of the wanted terms that are present; 0 when nothing is wanted.

    Args:
        wanted: Terms, each once.
        present: Terms.

    Examples:
        >>> coverage({"annual", "leave"}, {"sick", "leave"})
        0.5

    """
    return sum(term in present for term in wanted) / len(wanted) if wanted else 0.0


def longest_run(wanted: Sequence[str], text: Sequence[str]) -> int:
    """How many tokens in a row stand in the text as they stand in the query, at most.

    Args:
        wanted: Tokens of the query.
        text: Tokens of the text.

    Returns:
        At most ``len(wanted)``. Time is ``len(text)`` times how often a token is repeated in
        ``wanted``.

    Examples:
        >>> longest_run(["days", "of", "leave"], ["ten", "days", "of", "rest", "and", "leave"])
        2

    """
    places: dict[str, list[int]] = {}
    for place, token in enumerate(wanted):
        places.setdefault(token, []).append(place)
    best = 0
    running: dict[int, int] = {}  # by the last place in the query, how long the run to it is
    for token in text:
        running = {place: running.get(place - 1, 0) + 1 for place in places.get(token, ())}
        best = max(best, *running.values()) if running else best
    return best
