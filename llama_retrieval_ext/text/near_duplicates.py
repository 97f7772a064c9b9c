"""Similarity of texts by their shared words."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

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
        One place per set, from 0. Sets are compared only if they share one of their rarest
        elements, of which similar sets share at least one.

    Source:
        Broder, "On the Resemblance and Containment of Documents", SEQUENCES 1997, the resemblance,
        https://doi.org/10.1109/SEQUEN.1997.666900. Bayardo, Ma, Srikant, "Scaling Up All Pairs
        Similarity Search", WWW 2007, the rarest elements, https://doi.org/10.1145/1242572.1242591.

    Examples:
        >>> list(first_of_alike([frozenset("abc"), frozenset("abd"), frozenset("xyz")],
        ...                     at_least=0.5))
        [0, 0, 2]

    """
    listed = list(sets)
    frequencies = Counter(chain.from_iterable(listed))
    holders: dict[str, list[int]] = {}  # the kept sets that have an element among their rarest
    for number, current in enumerate(listed):
        rising = sorted(current, key=lambda element: (frequencies[element], element))
        least_common = math.ceil(at_least * len(current) * (1 - 1e-9))
        rarest = rising[: len(rising) + 1 - least_common]
        alike = [
            place
            for place in {place for element in rarest for place in holders.get(element, ())}
            if len(current & listed[place]) >= at_least * len(current | listed[place])
        ]
        if not alike:
            for element in rarest:
                holders.setdefault(element, []).append(number)
        yield min(alike, default=number)
