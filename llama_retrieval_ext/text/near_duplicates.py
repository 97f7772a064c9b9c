"""Similarity of texts by their shared words."""

from collections import Counter
from collections.abc import Iterable, Iterator

from llama_retrieval_ext.text.tokenizer import Tokenizer

# Words are not stemmed, and stop words count.
_WORDS = Tokenizer(language="none", stop_words="none", split_identifiers=False)


def shingles(text: str) -> frozenset[str]:
    """Return the words of a text; for Chinese, Japanese and Korean the pairs of characters.

    Examples:
        >>> sorted(shingles("Fire! Fire in the mine: 火灾了"))
        ['fire', 'in', 'mine', 'the', '火灾', '灾了']

    """
    return frozenset(_WORDS.query_tokens(text))


def first_of_alike(sets: Iterable[frozenset[str]], *, at_least: float) -> Iterator[int]:
    r"""Yield for each set the place of the first earlier kept set similar to it, or its own place.

    .. math:: J(A, B) = \frac{|A \cap B|}{|A \cup B|}

    Args:
        sets: Sets by priority: the first of similar sets is kept. An empty set matches none.
        at_least: Minimum Jaccard similarity of similar sets; in ``(0, 1]``.

    Returns:
        One place per set, from 0. Time grows with the number of kept sets that share an element.

    Source:
        Broder, "On the Resemblance and Containment of Documents", SEQUENCES 1997, the resemblance,
        https://doi.org/10.1109/SEQUEN.1997.666900.

    Examples:
        >>> list(first_of_alike([frozenset("abc"), frozenset("abd"), frozenset("xyz")],
        ...                     at_least=0.5))
        [0, 0, 2]

    """
    kept: list[frozenset[str]] = []
    places: list[int] = []  # position of each kept set among all sets
    holders: dict[str, list[int]] = {}  # the kept sets that contain an element
    for number, current in enumerate(sets):
        shared = Counter(place for element in current for place in holders.get(element, ()))
        alike = [
            places[place]
            for place, common in shared.items()
            if common >= at_least * (len(current) + len(kept[place]) - common)
        ]
        if not alike:
            for element in current:
                holders.setdefault(element, []).append(len(kept))
            kept.append(current)
            places.append(number)
        yield min(alike, default=number)
