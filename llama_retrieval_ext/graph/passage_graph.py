"""`PassageGraph`: the passages of a scope and their links, as a matrix for walks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.formulas.pagerank import Floats, personalised_pagerank, transition_matrix
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.evidence import TermLinks, TextEvidence, TitleLinks
from llama_retrieval_ext.graph.expansion import Path
from llama_retrieval_ext.graph.passage_links import DOCUMENT_LABEL, PassageLinks
from llama_retrieval_ext.graph.phrases import acronyms, longest, phrases, words

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Mask: TypeAlias = npt.NDArray[np.bool_]

# Types of derived links, for paths.
NAMES: Final = "NAMES"
SAYS: Final = "SAYS"
# Chosen by the table "Constants of the walk" in tests/benchmarks/README.md: the share of links by
# title in the walk from a passage that also has phrases or entities, the factor by which a query
# word beside a title raises the link to it, and the power of a title's rarity.
_BY_TITLES: Final = 0.5
_CONTEXT: Final = 6.0
_RARITY_POWER: Final = 3
# Maximum number of links of a path.
_LONGEST_PATH: Final = 4
# Memory of an empty graph.
_EMPTY_BYTES: Final = 10_000
# Maximum number of conditions with cached masks.
_CONDITIONS: Final = 16


@dataclass(frozen=True, slots=True)
class Walk:
    """A personalised PageRank: ``(n,)`` restarts and visits, both of sum 1, and its matrix."""

    restart: Floats
    scores: Floats
    transitions: "csr_array"
    damping: float


class PassageGraph:
    """Passages, phrases and entities of one scope, and the links between them.

    Nodes are numbered: passages first, by id, then phrases and entities. The graph is derived
    from the rows in linear time and does not depend on their order.

    Args:
        nodes: Every node that the scope sees.
        edges: Every edge that the scope sees.
        links: Kinds of evidence to use.
        evidence: Evidence of an earlier state, updated in place; None to start empty.

    Attributes:
        ids: Ids of the passages.
        terms: Names of phrases and entities.
        transitions: ``(n, n)`` matrix of the walk, without a query.
        size_bytes: Approximate memory.
    """

    def __init__(
        self,
        nodes: Iterable[GraphNode],
        edges: Iterable[Edge],
        links: PassageLinks,
        *,
        evidence: TextEvidence | None = None,
    ) -> None:
        evidence = TextEvidence(links) if evidence is None else evidence
        nodes = list(nodes)
        evidence.update(node for node in nodes if node.is_passage)
        passages = [evidence.passages[id_] for id_ in sorted(evidence.passages)]
        self.ids = [passage.node.id for passage in passages]
        self.place_of = {id_: place for place, id_ in enumerate(self.ids)}
        self._properties = [passage.node.properties for passage in passages]
        self._allowed: dict[str, Mask] = {}
        self._titles = [passage.titles for passage in passages]
        self._by_title = TitleLinks(evidence, self.place_of)
        entities = (n for n in nodes if not n.is_passage and n.label != DOCUMENT_LABEL)
        counted = entities if links.entities else ()
        self._by_term = TermLinks(evidence, self.place_of, counted, edges)
        self.terms = self._by_term.terms
        self._make_matrix()
        self.size_bytes = self._size(sum(len(passage.text) for passage in passages))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def node_count(self) -> int:
        """Number of passages, phrases and entities."""
        return len(self.ids) + len(self.terms)

    def allowed(self, condition: Condition | None) -> Mask | None:
        """Return the mask of passages that satisfy a condition, ``(n_passages,)``; None for all."""
        if condition is None:
            return None
        key = repr(condition)
        mask = self._allowed.get(key)
        if mask is None:
            mask = np.fromiter((matches(condition, p) for p in self._properties), bool, len(self))
            if len(self._allowed) >= _CONDITIONS:
                self._allowed.clear()
            self._allowed[key] = mask
        return mask

    def rarity(self, node: int) -> float:
        """Return the rarity of a phrase or entity, positive."""
        return self._by_term.rarity[node - len(self)]

    def named_titles(self, query: str) -> dict[int, float]:
        """Return the passages whose title a query names, with their share of the title's rarity.

        Shares are in (0, 1]; passages with the same title share its rarity. A title in lower case
        in a query with capitals is taken for common words.
        """
        text, capitals = words(query), _capitals(query)
        titles = self._by_title
        named: dict[int, float] = {}
        size = max(len(self), 2)
        every = [*titles.names.find_all(text, titles.titled), *acronyms(query)]
        for match in longest(match for match in every if match.name in titles.titled):
            is_acronym = match.name.isupper()
            if capitals and not is_acronym and capitals.isdisjoint(match.name.split()):
                continue
            rarity = log(size / max(1, titles.named_by[match.name])) / log(size)
            weight = max(rarity, 0.0) ** _RARITY_POWER
            bearers = titles.titled[match.name]
            for passage in bearers:
                named[passage] = max(named.get(passage, 0.0), weight / len(bearers))
        return {passage: weight for passage, weight in named.items() if weight > 0}

    def named_terms(self, query: str) -> dict[int, float]:
        """Return the nodes of phrases and entities that a query names, with their rarity."""
        text, capitals = words(query), _capitals(query)
        numbers, terms = self._by_term.phrases, set(self._by_term.named(query))
        terms.update(numbers[phrase] for phrase in phrases(query) if phrase in numbers)
        for match in self._by_term.phrase_names.find(text):
            parts = match.name.split()
            if len(parts) > 1 and not (capitals and capitals.isdisjoint(parts)):
                terms.add(numbers[match.name])
        return {len(self) + term: self._by_term.rarity[term] for term in sorted(terms)}

    def entity(self, entity_id: str) -> int | None:
        """Return the node of an entity, or None."""
        place = self._by_term.place_of.get(entity_id)
        return None if place is None else len(self) + place

    def walk(
        self, restart: Floats, query: str, *, allowed: Mask | None = None, damping: float = 0.5
    ) -> Walk:
        """Return a random walk from the ``(n,)`` restart mass, through allowed passages only.

        Links to a title have more weight if it stands beside words of the query.
        """
        transitions = self._for_query(restart, query)
        if allowed is not None:
            is_open = np.concatenate([allowed, np.ones(len(self.terms), dtype=bool)])
            restart = np.where(is_open, restart, 0.0)
            rows = np.repeat(is_open, np.diff(transitions.indptr))
            transitions = _with_data(
                transitions, transitions.data * (rows & is_open[transitions.indices])
            )
        scores = personalised_pagerank(transitions, restart, damping=damping)
        total = float(restart.sum())
        return Walk(restart / total if total else restart, scores, transitions, damping)

    def path(self, walk: Walk, node: int) -> list[int]:
        """Return the path through which a walk mainly reaches a node.

        It starts at a node with more restarts than arrivals by links.
        """
        matrix, nodes = walk.transitions, [node]
        while len(nodes) <= _LONGEST_PATH:
            low, high = matrix.indptr[nodes[-1] : nodes[-1] + 2]
            sources = matrix.indices[low:high]
            flows = walk.damping * matrix.data[low:high] * walk.scores[sources]
            flows[np.isin(sources, nodes)] = 0.0
            begun = (1 - walk.damping) * walk.restart[nodes[-1]]
            if not flows.any() or begun >= flows.sum():
                break
            nodes.append(int(sources[flows.argmax()]))
        return nodes[::-1]

    def in_words(self, nodes: Sequence[int]) -> Path:
        """Return a path with the names of its nodes."""
        edges = []
        for here, there in pairwise(nodes):
            names = self.name(here), self.name(there)
            if max(here, there) < len(self):
                is_out, type_ = (here, there) in self._by_title.mentions, NAMES
            else:
                is_out, type_ = here < len(self), SAYS
            source, target = names if is_out else names[::-1]
            edges.append(Edge(source, type_, target))
        return Path(tuple(map(self.name, nodes)), tuple(edges))

    def name(self, node: int) -> str:
        """Return the name of a node: the title or id of a passage, a phrase, an entity."""
        if node >= len(self):
            return self.terms[node - len(self)]
        return next(iter(self._titles[node]), self.ids[node])

    def hops(self, nodes: Sequence[int]) -> int:
        """Return the length of a path; two passages joined by a term are one hop apart."""
        to_terms = sum(here < len(self) <= there for here, there in pairwise(nodes))
        return len(nodes) - 1 - to_terms - (len(nodes) > 1 and nodes[0] >= len(self))

    def terms_of(self, passage: int) -> set[int]:
        """Return the nodes of the phrases and entities that a passage has."""
        low, high = self.transitions.indptr[passage : passage + 2]
        return {int(node) for node in self.transitions.indices[low:high] if node >= len(self)}

    def _make_matrix(self) -> None:
        """Compute the matrix: passages to titles and terms, terms to passages and related terms."""
        size, by_term = len(self), self._by_term
        both = {*self._by_title.mentions, *by_term.linked}
        links = np.array(sorted(both | {pair[::-1] for pair in both}), dtype=np.intp).reshape(-1, 2)
        pairs_by_term = np.array(list(by_term.weights), dtype=np.intp).reshape(-1, 2)
        order = np.lexsort(
            (pairs_by_term[:, 1], pairs_by_term[:, 0])
        )  # sums must not depend on set order
        pairs_by_term, strength = (
            pairs_by_term[order],
            np.fromiter(by_term.weights.values(), float, len(pairs_by_term))[order],
        )
        related = np.array(list(by_term.related), dtype=np.intp).reshape(-1, 2) + size
        relation = np.fromiter(by_term.related.values(), float, len(related))
        weights = strength * np.array([*by_term.rarity, 0.0])[pairs_by_term[:, 1]]
        degree = np.bincount(links[:, 0], minlength=size)
        of_terms = np.bincount(pairs_by_term[:, 0], weights=weights, minlength=size)
        by_titles = np.where(of_terms > 0, _BY_TITLES, 1.0)
        by_terms = np.where(degree > 0, 1 - _BY_TITLES, 1.0)
        self._share = by_titles
        sources = [
            links[:, 0],
            pairs_by_term[:, 0],
            pairs_by_term[:, 1] + size,
            related[:, 0],
            related[:, 1],
        ]
        targets = [
            links[:, 1],
            pairs_by_term[:, 1] + size,
            pairs_by_term[:, 0],
            related[:, 1],
            related[:, 0],
        ]
        values = [
            (by_titles / np.maximum(degree, 1))[links[:, 0]],
            (by_terms / np.where(of_terms > 0, of_terms, 1.0))[pairs_by_term[:, 0]] * weights,
            *(strength, relation, relation),
        ]
        self.transitions = transition_matrix(
            np.concatenate(sources),
            np.concatenate(targets),
            np.concatenate(values),
            size=self.node_count,
        )
        self.transitions.sort_indices()
        self._locate(links, degree)

    def _locate(self, links: npt.NDArray[np.intp], degree: npt.NDArray[np.intp]) -> None:
        """Store the positions of each passage's links in the matrix."""
        matrix, count = self.transitions, self.node_count
        rows = np.repeat(np.arange(count), np.diff(matrix.indptr))
        keys = rows * count + matrix.indices
        self._links = links
        self._positions = np.searchsorted(keys, links[:, 1] * count + links[:, 0])
        self._starts = np.concatenate([[0], np.cumsum(degree)])

    def _for_query(self, restart: Floats, query: str) -> "csr_array":
        """Return the matrix with raised links where query words stand beside the title."""
        weights = self._by_title.stem_weights(words(query))
        if not weights:
            return self.transitions
        data, mentions = None, self._by_title.mentions
        for passage in np.flatnonzero(restart[: len(self)]):
            low, high = self._starts[passage : passage + 2]
            contexts = [
                mentions.get((a, b), frozenset()) for a, b in self._links[low:high].tolist()
            ]
            raised = [
                sum(w for stem, w in weights.items() if stem in context) for context in contexts
            ]
            factors = 1.0 + _CONTEXT * np.array(raised)
            if len(factors) and factors.max() > 1:
                data = self.transitions.data.copy() if data is None else data
                data[self._positions[low:high]] = factors * (self._share[passage] / factors.sum())
        if data is None:
            return self.transitions
        return _with_data(self.transitions, data)  # pyright: ignore[reportArgumentType]

    def _size(self, text_bytes: int) -> int:
        matrix, mentions = self.transitions, self._by_title.mentions
        arrays = (matrix.data, matrix.indices, matrix.indptr, self._positions, self._links)
        stems = sum(map(len, mentions.values()))
        properties = sum(len(metadata) for metadata in self._properties)
        pairs = len(self._by_term.weights) + len(self._by_term.related)
        objects = 300 * (len(mentions) + self.node_count) + 40 * stems + 100 * (properties + pairs)
        return _EMPTY_BYTES + sum(array.nbytes for array in arrays) + objects + 2 * text_bytes


def _with_data(matrix: "csr_array", data: Floats) -> "csr_array":
    return type(matrix)((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _capitals(query: str) -> set[str]:
    """Return the capitalised words that do not begin a sentence."""
    return {word for phrase in phrases(query) for word in phrase.split()}
