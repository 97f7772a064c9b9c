"""What links the passages that a scope sees: titles that they name, and terms that they share.

Frequencies and cut-offs are of these passages alone, and of the moment.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log
from typing import Final, NamedTuple

from llama_index.core.graph_stores.types import TRIPLET_SOURCE_KEY

from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.passage_links import (
    DOCUMENT_KEY,
    Names,
    Words,
    phrases,
    recurring,
    title_words,
    words,
)
from llama_retrieval_ext.text.segmentation import has_cjk
from llama_retrieval_ext.text.tokenizer import ENGLISH_STOP_WORDS

# Titles that more documents share say nothing ("Overview").
_MOST_DOCUMENTS: Final = 5
# Of a long document the first passages introduce what its title names.
_PASSAGES_OF_TITLE: Final = 8
# One passage in twenty may name a title, one in fifty have a phrase; in a small corpus a few may.
_TITLE_SHARE: Final = 20
_PHRASE_SHARE: Final = 50
_FEW: Final = 5
# The words around a name, before and behind, whose stems are compared with the query's.
_BEFORE, _BEHIND, _STEM = 10, 5, 5


def stem(word: str) -> str:
    """Return the beginning of a word, which its inflections share.

    Examples:
        >>> stem("directed"), stem("director")
        ('direc', 'direc')

    """
    return word[:_STEM]


class Mention(NamedTuple):
    """A passage that names the title of another.

    Attributes:
        source: The passage that names it.
        target: The passage with the title.
        context: Stems of the words around the name, as numbers.
    """

    source: int
    target: int
    context: frozenset[int] = frozenset()


class TitleLinks:
    """Which passages name the titles of which.

    Args:
        passages: By their number.
        titles: Of each passage.
        texts: Words of each passage.

    Attributes:
        names: The titles, as found in texts.
        titled: Passages with each title.
        named_by: In how many passages that do not bear it each title occurs.
        mentions: One entry a pair of passages, in the order of the sources.
    """

    def __init__(
        self, passages: Sequence[GraphNode], titles: Sequence[list[str]], texts: Sequence[Words]
    ) -> None:
        documents = [str(node.properties.get(DOCUMENT_KEY) or node.id) for node in passages]
        by_form: dict[Words, list[int]] = defaultdict(list)
        for place, own in enumerate(titles):
            for form in {form for title in own for form in title_words(title)}:
                by_form[form].append(place)
        kept = {
            form: own
            for form, own in sorted(by_form.items())
            if len({documents[place] for place in own}) <= _MOST_DOCUMENTS
        }
        self.titled = list(kept.values())
        self.names = Names({form: number for number, form in enumerate(kept)})
        self._stems: dict[str, int] = {}
        self.named_by, self.mentions = self._find(texts)
        counts = Counter(each for mention in self.mentions for each in mention.context)
        size = max(len(self.mentions), 2)
        self._weights = {each: log(size / n) / log(size) for each, n in counts.items()}

    def stem_weights(self, query: Words) -> dict[int, float]:
        """Return the rarity of the query's stems among the contexts of mentions, in [0, 1]."""
        numbers = {self._stems.get(stem(w)) for w in query if w not in ENGLISH_STOP_WORDS}
        return {n: self._weights[n] for n in numbers if n is not None and n in self._weights}

    def _find(self, texts: Sequence[Words]) -> tuple[Counter[int], list[Mention]]:
        found = [self.names.find(text) for text in texts]
        bearers = [set(own) for own in self.titled]
        named_by = Counter(
            title
            for place, own in enumerate(found)
            for title in {match.place for match in own}
            if place not in bearers[title]
        )
        most = max(_FEW, len(texts) / _TITLE_SHARE)
        contexts: dict[tuple[int, int], frozenset[int]] = {}
        for place, own in enumerate(found):
            for match in own:
                if named_by[match.place] > most:
                    continue
                context = self._context(texts[place], match.start, match.end)
                for target in self.titled[match.place][:_PASSAGES_OF_TITLE]:
                    if target != place:
                        before = contexts.get((place, target), frozenset())
                        contexts[place, target] = before | context
        return named_by, [Mention(*ends, context) for ends, context in contexts.items()]

    def _context(self, text: Words, start: int, end: int) -> frozenset[int]:
        around = text[max(0, start - _BEFORE) : start] + text[end : end + _BEHIND]
        stems = self._stems
        return frozenset(
            stems.setdefault(stem(word), len(stems))
            for word in around
            if word not in ENGLISH_STOP_WORDS
        )


class TermLinks:
    """Which passages have which terms: rare phrases that they share, and entities.

    Args:
        passages: By their number.
        phrases_of: Phrases of each passage; empty where phrases do not link.
        entities: Nodes of the graph that are no passages; empty where they do not link.
        edges: Of the graph; those that join passages or entities count.

    Attributes:
        terms: What each term is called; phrases first, then entities by id.
        said: Weight by passage and term.
        related: Weight by pair of terms, the smaller number first.
        linked: Pairs of passages that an edge of the graph joins.
        rarity: Of each term, positive: log of passages to passages that have it.
        phrase_names: Phrases, as found in texts.
        entity_names: Names and aliases of entities, likewise; each stands for some terms.
    """

    def __init__(
        self,
        passages: Sequence[GraphNode],
        phrases_of: Sequence[set[Words]],
        entities: Iterable[GraphNode],
        edges: Iterable[Edge],
    ) -> None:
        listed = sorted(entities, key=lambda node: node.id)
        by_name: dict[Words, set[str]] = defaultdict(set)
        for entity in listed:
            for name in entity.names:
                by_name[words(name)].add(entity.id)
        rare = _rare(phrases_of, by_name)
        self.phrase_names = Names({phrase: place for place, phrase in enumerate(rare)})
        self.terms = [*map(_spelled, rare), *(entity.name for entity in listed)]
        self.place_of = {entity.id: len(rare) + n for n, entity in enumerate(listed)}
        self.entity_names = Names({name: number for number, name in enumerate(by_name)})
        self._same_name = [sorted(self.place_of[id_] for id_ in ids) for ids in by_name.values()]
        self.said: dict[tuple[int, int], float] = {}
        self.related: dict[tuple[int, int], float] = {}
        self.linked: set[tuple[int, int]] = set()
        for passage, own in enumerate(phrases_of):
            for place in map(self.phrase_names.get, own):
                if place is not None:
                    self.said[passage, place] = 1.0
        self._add_edges({node.id: place for place, node in enumerate(passages)}, listed, edges)
        counts = Counter(term for _, term in self.said)
        size = len(passages) + 1
        self.rarity = [log(size / max(1, counts[term])) for term in range(len(self.terms))]

    def named(self, text: Words) -> Iterator[int]:
        """Yield the entities that a text names."""
        for match in self.entity_names.find(text):
            yield from self._same_name[match.place]

    def _add_edges(
        self, passages: Mapping[str, int], entities: Sequence[GraphNode], edges: Iterable[Edge]
    ) -> None:
        terms = self.place_of
        for source, target, weight in _pairs(entities, edges):
            if source in passages and target in passages:
                self.linked.add((passages[source], passages[target]))
            elif source in passages and target in terms:
                _raise_to(self.said, (passages[source], terms[target]), weight)
            elif source in terms and target in passages:
                _raise_to(self.said, (passages[target], terms[source]), weight)
            elif source in terms and target in terms and source != target:
                low, high = sorted((terms[source], terms[target]))
                _raise_to(self.related, (low, high), weight)


def phrases_of(
    passages: Sequence[GraphNode], titles: Sequence[list[str]], texts: Sequence[Words]
) -> list[set[Words]]:
    """Return the phrases of each passage: in capitals there or elsewhere, quoted, or recurring.

    Args:
        passages: By their number.
        titles: Of each passage; they count as text.
        texts: Words of each passage.
    """
    full = [". ".join([*own, node.text or ""]) for node, own in zip(passages, titles, strict=True)]
    found = [phrases(text) for text in full]
    known = sorted({phrase for own in found for phrase in own if len(phrase) > 1})
    names = Names({phrase: place for place, phrase in enumerate(known)})
    chinese = recurring(full, int(_most(len(full))))
    for own, text, shared in zip(found, texts, chinese, strict=True):
        own.update(known[match.place] for match in names.find_all(text))
        own.update(shared)
    return found


def _most(passages: int) -> float:
    return max(_FEW, passages / _PHRASE_SHARE)


def _rare(found: Sequence[set[Words]], entities: Mapping[Words, object]) -> list[Words]:
    """Phrases that some passages share and not too many; what is an entity is no phrase."""
    counts = Counter(phrase for own in found for phrase in own)
    most = _most(len(found))
    return sorted(p for p, n in counts.items() if 1 < n <= most and p not in entities)


def source_of_edge(edge: Edge) -> str | None:
    """Return the passage that a relation was extracted from, by LlamaIndex; None for another."""
    if TRIPLET_SOURCE_KEY not in edge.payload:  # most edges need not be parsed
        return None
    source = edge.properties.get(TRIPLET_SOURCE_KEY)
    return source if isinstance(source, str) else None


def _pairs(
    entities: Sequence[GraphNode], edges: Iterable[Edge]
) -> Iterator[tuple[str, str, float]]:
    for edge in edges:
        yield edge.source, edge.target, edge.weight
        said_in = source_of_edge(edge)
        if said_in is not None:
            yield said_in, edge.source, 1.0
            yield said_in, edge.target, 1.0
    for entity in entities:
        source = entity.properties.get(TRIPLET_SOURCE_KEY)
        if isinstance(source, str):
            yield source, entity.id, 1.0


def _raise_to(weights: dict[tuple[int, int], float], pair: tuple[int, int], weight: float) -> None:
    weights[pair] = max(weights.get(pair, 0.0), weight)


def _spelled(phrase: Words) -> str:
    """The phrase with spaces between words, none between CJK characters."""
    return ("" if has_cjk(phrase[0]) else " ").join(phrase)
