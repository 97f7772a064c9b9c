"""Links between the passages of a scope: named titles and shared terms.

Frequencies and cut-offs are computed from the current passages of the scope only.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log
from typing import Final, NamedTuple

from llama_index.core.graph_stores.types import TRIPLET_SOURCE_KEY

from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.phrases import Names, spelled, words
from llama_retrieval_ext.graph.text_evidence import TextEvidence, stem
from llama_retrieval_ext.text.tokenizer import ENGLISH_STOP_WORDS

# Only the first passages of a long document introduce the subject of its title.
_PASSAGES_OF_TITLE: Final = 8
# Limit for passages that name a title: one in twenty, with a minimum for small corpora.
_TITLE_SHARE: Final = 20
_FEW: Final = 5


class Mention(NamedTuple):
    """A passage that names the title of another.

    Attributes:
        source: The passage that names the title.
        target: The passage with the title.
        context: Stems of the words around the name.
    """

    source: int
    target: int
    context: frozenset[str] = frozenset()


class TitleLinks:
    """Links from passages to the passages whose titles they name.

    Args:
        evidence: Titles and phrases of the texts.
        place_of: Number of each passage.

    Attributes:
        names: Matcher of the titles in texts.
        titled: Passages with each title.
        named_by: Number of passages without each title that name it, also in longer titles.
        mentions: One entry per pair of passages.
    """

    def __init__(self, evidence: TextEvidence, place_of: Mapping[str, int]) -> None:
        bearers = evidence.bearers
        self.names = evidence.title_names
        self.titled = {name: sorted(place_of[id_] for id_ in own) for name, own in bearers.items()}
        self.named_by = Counter(
            name
            for id_, own in evidence.mentions.items()
            for name in own
            if id_ not in bearers[name]
        )
        self.mentions = self._pairs(evidence.mentions, place_of)
        counts = Counter(each for mention in self.mentions for each in mention.context)
        size = max(len(self.mentions), 2)
        self._weights = {each: log(size / n) / log(size) for each, n in counts.items()}

    def stem_weights(self, query: str) -> dict[str, float]:
        """Return the rarity of the query's stems among the contexts of mentions, in [0, 1]."""
        stems = {stem(word) for word in query.split() if word not in ENGLISH_STOP_WORDS}
        return {each: self._weights[each] for each in stems if each in self._weights}

    def _pairs(
        self, found: Mapping[str, Mapping[str, frozenset[str] | None]], place_of: Mapping[str, int]
    ) -> list[Mention]:
        most = max(_FEW, len(place_of) / _TITLE_SHARE)
        contexts: dict[tuple[int, int], frozenset[str]] = {}
        for id_, own in found.items():
            source = place_of[id_]
            for name, context in own.items():
                if context is None or self.named_by[name] > most:
                    continue
                for target in self.titled[name][:_PASSAGES_OF_TITLE]:
                    if target != source:
                        pair = source, target
                        contexts[pair] = contexts.get(pair, frozenset()) | context
        return [Mention(*ends, context) for ends, context in contexts.items()]


class TermLinks:
    """Links between passages and terms: shared rare phrases, and entities.

    Args:
        evidence: Titles and phrases of the texts.
        place_of: Number of each passage.
        entities: Nodes of the graph other than passages; empty if they do not link.
        edges: Edges of the graph; only those between passages or entities are used.

    Attributes:
        terms: Name of each term; phrases first, then entities by id.
        said: Weight by pair of passage and term.
        related: Weight by pair of terms, smaller number first.
        linked: Pairs of passages that an edge of the graph joins.
        rarity: Rarity of each term, positive: log of all passages over passages with the term.
        phrases: Term number of each phrase.
        entities: Term numbers of each name or alias.
        phrase_names: Matcher of phrases in texts.
        entity_names: Matcher of names and aliases of entities.
    """

    def __init__(
        self,
        evidence: TextEvidence,
        place_of: Mapping[str, int],
        entities: Iterable[GraphNode],
        edges: Iterable[Edge],
    ) -> None:
        listed = sorted(entities, key=lambda node: node.id)
        by_name: dict[str, set[str]] = defaultdict(set)
        for entity in listed:
            for name in entity.names:
                by_name[words(name)].add(entity.id)
        rare = _rare(evidence, by_name)
        self.phrases = {phrase: number for number, phrase in enumerate(rare)}
        self.phrase_names = Names(rare)
        self.terms = [*map(spelled, rare), *(entity.name for entity in listed)]
        self.place_of = {entity.id: len(rare) + n for n, entity in enumerate(listed)}
        self.entities = {
            name: sorted(self.place_of[id_] for id_ in ids) for name, ids in by_name.items()
        }
        self.entity_names = Names(by_name)
        self.said: dict[tuple[int, int], float] = {
            (place_of[id_], number): 1.0
            for phrase, number in self.phrases.items()
            for id_ in evidence.having(phrase)
        }
        self.related: dict[tuple[int, int], float] = {}
        self.linked: set[tuple[int, int]] = set()
        self._add_edges(place_of, listed, edges)
        counts = Counter(term for _, term in self.said)
        size = len(place_of) + 1
        self.rarity = [log(size / max(1, counts[term])) for term in range(len(self.terms))]

    def named(self, text: str) -> Iterator[int]:
        """Yield the entities that a text names."""
        for match in self.entity_names.find(text):
            yield from self.entities[match.name]

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


def _rare(evidence: TextEvidence, entities: Mapping[str, object]) -> list[str]:
    """Return phrases shared by several, but not too many, passages; entities are excluded."""
    counts = evidence.phrase_counts()
    return sorted(p for p, n in counts.items() if 1 < n <= evidence.most and p not in entities)


def source_of_edge(edge: Edge) -> str | None:
    """Return the passage from which LlamaIndex extracted a relation, or None."""
    if TRIPLET_SOURCE_KEY not in edge.payload:  # avoids parsing most edges
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
