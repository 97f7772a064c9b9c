"""Evidence that links the passages of a scope: named titles, shared phrases and entities.

`TextEvidence` is updated incrementally. Frequencies and cut-offs are computed from the current
passages of the scope only.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Final

from llama_index.core.graph_stores.types import TRIPLET_SOURCE_KEY

from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.passage_links import DOCUMENT_KEY, PassageLinks
from llama_retrieval_ext.graph.phrases import (
    Names,
    Occurrence,
    acronyms,
    chinese_runs,
    longest,
    name_words,
    phrases,
    recurring,
    spelled,
    title_words,
    words,
)
from llama_retrieval_ext.text.tokenizer import ENGLISH_STOP_WORDS

# Chosen by the table "Constants of the walk" in tests/benchmarks/README.md. A phrase or a title in
# more than one passage of fifty is common, in a small corpus in more than five; so is a title of
# more than five documents ("Overview").
_SHARE: Final = 50
_FEW: Final = 5
# Only the first passages of a long document introduce the subject of its title.
_PASSAGES_OF_TITLE: Final = 8
# Number of words before and after a name, and of their letters, that are compared with the query.
_BEFORE, _BEHIND, _STEM = 10, 5, 5


def stem(word: str) -> str:
    """Return the beginning of a word, the same for its inflections.

    Examples:
        >>> stem("directed"), stem("director")
        ('direc', 'direc')

    """
    return sys.intern(word[:_STEM])


@dataclass(frozen=True, slots=True)
class TextPassage:
    """A passage with the evidence from its text alone.

    `title_names` and `text` have the form of `words`, and `chinese` that of `chinese_runs`.
    """

    node: GraphNode
    document: str
    titles: tuple[str, ...]
    title_names: frozenset[str]
    text: str
    acronyms: tuple[Occurrence, ...]
    phrases: frozenset[str]
    chinese: str

    @classmethod
    def of(cls, node: GraphNode, links: PassageLinks) -> "TextPassage":
        """Return the passage of a node, with the enabled kinds of evidence."""
        titles, text = tuple(links.titles_of(node.properties)), node.text or ""
        full = ". ".join([*titles, text]) if links.phrases else ""
        names = {name for title in titles for name in title_words(title)} if links.titles else ()
        return cls(
            node,
            str(node.properties.get(DOCUMENT_KEY) or node.id),
            titles,
            frozenset(names),
            words(text),
            tuple(acronyms(text)) if links.titles else (),
            frozenset(phrases(full)),
            chinese_runs(full),
        )

    def is_of(self, node: GraphNode | None) -> bool:
        """Return whether a node gives the same evidence."""
        evidence = self.node.text, self.node.properties
        return node is not None and (node.text, node.properties) == evidence


class TextEvidence:
    """Titles and phrases in passages. The time of `update` is proportional to the changes.

    Attributes:
        passages: Passages by id.
        bearers: Passages with each identifying title, by the title's name.
        mentions: Titles that each passage names, with the stems around each; None for a title
            inside a longer one.
        phrases: Passages with each phrase.
    """

    def __init__(self, links: PassageLinks) -> None:
        self.links = links
        self.passages: dict[str, TextPassage] = {}
        self.bearers: dict[str, set[str]] = {}
        self.mentions: dict[str, dict[str, frozenset[str] | None]] = {}
        self.phrases: dict[str, set[str]] = defaultdict(set)
        self.title_names = Names()
        self._titled: dict[str, set[str]] = defaultdict(set)  # includes titles that are too common
        self._phrase_counts: Counter[str] = Counter()  # passages with each phrase of several words
        self._phrase_names = Names()
        self._recurring: dict[str, list[str]] = {}
        self._most_recurring = 0

    def update(self, nodes: Iterable[GraphNode]) -> None:
        """Add new passages and drop missing or changed ones; the nodes are all current passages."""
        now = {node.id: node for node in nodes}
        gone = [
            passage for id_, passage in self.passages.items() if not passage.is_of(now.get(id_))
        ]
        for passage in gone:
            del self.passages[passage.node.id]
        new = [
            TextPassage.of(node, self.links)
            for id_, node in now.items()
            if id_ not in self.passages
        ]
        self.passages.update((passage.node.id, passage) for passage in new)
        self._update_titles(gone, new)
        self._update_phrases(gone, new)
        self._update_chinese(gone, new)

    def having(self, phrase: str) -> set[str]:
        """Return the passages with a phrase."""
        return self.phrases.get(phrase, set()).union(self._recurring.get(phrase, ()))

    @property
    def most(self) -> float:
        """Return the maximum number of passages with a phrase."""
        return max(_FEW, len(self.passages) / _SHARE)

    def phrase_counts(self) -> dict[str, int]:
        """Return the number of passages with each phrase."""
        counts = {phrase: len(ids) for phrase, ids in self.phrases.items()}
        both = self._recurring.keys() & counts.keys()
        counts.update((phrase, len(ids)) for phrase, ids in self._recurring.items())
        counts.update((phrase, len(self.having(phrase))) for phrase in both)
        return counts

    def _update_titles(self, gone: Sequence[TextPassage], new: Sequence[TextPassage]) -> None:
        for passage in gone:
            del self.mentions[passage.node.id]
        _remove(
            self._titled,
            ((name, passage.node.id) for passage in gone for name in passage.title_names),
        )
        _add(
            self._titled,
            ((name, passage.node.id) for passage in new for name in passage.title_names),
        )
        changed = {name for passage in (*gone, *new) for name in passage.title_names}
        documents = {
            name: {self.passages[id_].document for id_ in self._titled.get(name, ())}
            for name in changed
        }
        usable = {name for name, bearers in documents.items() if 0 < len(bearers) <= _FEW}
        before = self.bearers.keys() & changed
        for name in before - usable:
            del self.bearers[name]
        self.bearers.update((name, self._titled[name]) for name in usable)
        self.title_names = self.title_names.extended(self.bearers.keys())
        turned = before ^ usable
        for id_ in {passage.node.id for passage in new}.union(self._passages_with(turned)):
            self.mentions[id_] = self._mentions(self.passages[id_])

    def _mentions(self, passage: TextPassage) -> dict[str, frozenset[str] | None]:
        text = passage.text
        every = [
            *self.title_names.find_all(text, self.bearers),
            *(match for match in passage.acronyms if match.name in self.bearers),
        ]
        mentions: dict[str, frozenset[str] | None] = dict.fromkeys(match.name for match in every)
        for match in longest(every):
            around = (
                *text[: match.start].rsplit(None, _BEFORE)[-_BEFORE:],
                *text[match.end :].split(None, _BEHIND)[:_BEHIND],
            )
            stems = {stem(word) for word in around if word not in ENGLISH_STOP_WORDS}
            mentions[match.name] = (mentions[match.name] or frozenset()) | stems
        return mentions

    def _update_phrases(self, gone: Sequence[TextPassage], new: Sequence[TextPassage]) -> None:
        _remove(self.phrases, self._pairs(gone))
        before = set(self._phrase_counts)
        self._phrase_counts.subtract(
            phrase for passage in gone for phrase in _several_words(passage.phrases)
        )
        self._phrase_counts.update(
            phrase for passage in new for phrase in _several_words(passage.phrases)
        )
        touched = {
            phrase for passage in (*gone, *new) for phrase in _several_words(passage.phrases)
        }
        for phrase in [phrase for phrase in touched if self._phrase_counts[phrase] <= 0]:
            del self._phrase_counts[phrase]
            self.phrases.pop(phrase, None)  # elsewhere it is only in lower case
        self._phrase_names = self._phrase_names.extended(self._phrase_counts.keys())
        appeared = Names((touched & self._phrase_counts.keys()) - before)
        for id_ in self.passages.keys() - {passage.node.id for passage in new}:
            for match in appeared.find_all(self.passages[id_].text):
                self.phrases[match.name].add(id_)
        _add(self.phrases, self._pairs(new))

    def _pairs(self, passages: Iterable[TextPassage]) -> Iterator[tuple[str, str]]:
        """Yield each phrase of a passage, in any case, with the passage."""
        for passage in passages:
            matches = self._phrase_names.find_all(passage.text, self._phrase_counts)
            for phrase in passage.phrases.union(match.name for match in matches):
                yield phrase, passage.node.id

    def _update_chinese(self, gone: Sequence[TextPassage], new: Sequence[TextPassage]) -> None:
        most = int(self.most)
        if most == self._most_recurring and not any(passage.chinese for passage in (*gone, *new)):
            return
        self._most_recurring = most
        self._recurring = defaultdict(list)
        chinese = [passage for passage in self.passages.values() if passage.chinese]
        for passage, shared in zip(
            chinese, recurring([c.chinese for c in chinese], most), strict=True
        ):
            for phrase in shared:
                self._recurring[phrase].append(passage.node.id)

    def _passages_with(self, names: Collection[str]) -> Iterator[str]:
        if names:
            searched = Names(names)
            for id_, passage in self.passages.items():
                in_capitals = any(match.name in names for match in passage.acronyms)
                if in_capitals or any(True for _ in searched.find_all(passage.text)):
                    yield id_


def _add(index: dict[str, set[str]], pairs: Iterable[tuple[str, str]]) -> None:
    for name, id_ in pairs:
        index[name].add(id_)


def _remove(index: dict[str, set[str]], pairs: Iterable[tuple[str, str]]) -> None:
    for name, id_ in pairs:
        index[name].discard(id_)
        if not index[name]:
            del index[name]


def _several_words(names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if " " in name[1:-1])


class TitleLinks:
    """Links from passages to the passages whose titles they name.

    Attributes:
        names: Matcher of the titles in texts.
        titled: Passages with each title.
        named_by: Number of passages without each title that name it, also in longer titles.
        mentions: Pairs of passages, of which the first names the title of the second, with the
            stems of the words around it.
    """

    def __init__(self, evidence: TextEvidence, place_of: Mapping[str, int]) -> None:
        bearers = evidence.bearers
        self.names = evidence.title_names
        self.titled = {name: sorted(place_of[id_] for id_ in ids) for name, ids in bearers.items()}
        self.named_by = Counter(
            name
            for id_, names in evidence.mentions.items()
            for name in names
            if id_ not in bearers[name]
        )
        self.mentions = self._pairs(evidence.mentions, place_of)
        counts = Counter(line for context in self.mentions.values() for line in context)
        size = max(len(self.mentions), 2)
        self._weights = {stem_: log(size / n) / log(size) for stem_, n in counts.items()}

    def stem_weights(self, query: str) -> dict[str, float]:
        """Return the rarity of the query's stems among the contexts of mentions, in [0, 1]."""
        stems = {stem(word) for word in query.split() if word not in ENGLISH_STOP_WORDS}
        return {stem_: self._weights[stem_] for stem_ in stems if stem_ in self._weights}

    def _pairs(
        self,
        mentions: Mapping[str, Mapping[str, frozenset[str] | None]],
        place_of: Mapping[str, int],
    ) -> dict[tuple[int, int], frozenset[str]]:
        most = max(_FEW, len(place_of) / _SHARE)
        contexts: dict[tuple[int, int], frozenset[str]] = {}
        for id_, titles in mentions.items():
            source = place_of[id_]
            for name, context in titles.items():
                if context is None or self.named_by[name] > most:
                    continue
                for target in self.titled[name][:_PASSAGES_OF_TITLE]:
                    if target != source:
                        pair = source, target
                        contexts[pair] = contexts.get(pair, frozenset()) | context
        return contexts


class TermLinks:
    """Links between passages and terms: shared rare phrases, and entities.

    Attributes:
        terms: Name of each term; phrases first, then entities by id.
        weights: Weight by pair of passage and term.
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
                by_name[name_words(name)].add(entity.id)
        spread, most = evidence.phrase_counts(), evidence.most
        # Phrases that several passages share, but not too many.
        rare = sorted(p for p, n in spread.items() if 1 < n <= most and p not in by_name)
        self.phrases = {phrase: number for number, phrase in enumerate(rare)}
        self.phrase_names = Names(rare)
        self.terms = [*map(spelled, rare), *(entity.name for entity in listed)]
        self.place_of = {entity.id: len(rare) + n for n, entity in enumerate(listed)}
        self.entities = {
            name: sorted(self.place_of[id_] for id_ in ids) for name, ids in by_name.items()
        }
        self.entity_names = Names(by_name)
        self.weights: dict[tuple[int, int], float] = {
            (place_of[id_], number): 1.0
            for phrase, number in self.phrases.items()
            for id_ in evidence.having(phrase)
        }
        self.related: dict[tuple[int, int], float] = {}
        self.linked: set[tuple[int, int]] = set()
        self._add_edges(place_of, listed, edges)
        counts = Counter(term for _, term in self.weights)
        size = len(place_of) + 1
        self.rarity = [log(size / max(1, counts[term])) for term in range(len(self.terms))]

    def named(self, text: str) -> Iterator[int]:
        """Yield the entities that a text names."""
        matches = self.entity_names.find_all(words(text))
        for match in longest([*matches, *acronyms(text)]):
            yield from self.entities.get(match.name, ())

    def _add_edges(
        self, passages: Mapping[str, int], entities: Sequence[GraphNode], edges: Iterable[Edge]
    ) -> None:
        terms = self.place_of
        for source, target, weight in _pairs(entities, edges):
            if source in passages and target in passages:
                self.linked.add((passages[source], passages[target]))
            elif source in passages and target in terms:
                _raise_to(self.weights, (passages[source], terms[target]), weight)
            elif source in terms and target in passages:
                _raise_to(self.weights, (passages[target], terms[source]), weight)
            elif source in terms and target in terms and source != target:
                low, high = sorted((terms[source], terms[target]))
                _raise_to(self.related, (low, high), weight)


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
        passage = source_of_edge(edge)
        if passage is not None:
            yield passage, edge.source, 1.0
            yield passage, edge.target, 1.0
    for entity in entities:
        source = entity.properties.get(TRIPLET_SOURCE_KEY)
        if isinstance(source, str):
            yield source, entity.id, 1.0


def _raise_to(weights: dict[tuple[int, int], float], pair: tuple[int, int], weight: float) -> None:
    weights[pair] = max(weights.get(pair, 0.0), weight)
