"""`PassageGraphs`: a graph with passage graphs by scope; `SeededWalk`: a walk over one of these."""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Final, NamedTuple

import numpy as np
from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.checks import check_count, of_type
from llama_retrieval_ext.dates import now
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.execution.running import callers
from llama_retrieval_ext.formulas.pagerank import Floats
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.entity_linking import LinkedEntity
from llama_retrieval_ext.graph.evidence import TextEvidence
from llama_retrieval_ext.graph.open import Graph, graph_of
from llama_retrieval_ext.graph.passage_graph import PassageGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.scope import Scope

# Chosen by the table "Constants of the walk" in tests/benchmarks/README.md. Restart mass: a hit of
# the seed has its score to this power, and the best hit has score 1; a title named in the query has
# this mass, times its rarity and its score in the seed, because a common word can be a title; terms
# named in the query have this share of the total.
_SEED_POWER: Final = 3
_TITLE_MASS: Final = 5.0
_TERM_SHARE: Final = 0.3
DAMPING: Final = 0.55
# Default similarity, or default score in the seed.
_LEAST: Final = 0.05


class _Derived(NamedTuple):
    """Passage graph of a scope, its evidence, and the version of the source graph with the day."""

    version: tuple[object, ...]
    graph: PassageGraph
    evidence: TextEvidence


class PassageGraphs:
    """A graph with the derived links between the passages of each scope.

    The first query of a scope derives the links; the first query after a write through this object
    updates them incrementally; all other queries use the cache. Writes of other processes to a
    shared graph, or to a generic LlamaIndex store, are visible after `refresh`; facts that begin or
    end, from the next day on.

    Args:
        graph: A URL, a LlamaIndex property graph store or index, or a backend.
        links: Kinds of evidence that link passages.
        max_bytes: Maximum memory for all scopes; the least recently used are dropped.

    Raises:
        ConfigurationError: An argument is of another type.
    """

    def __init__(
        self, graph: Graph, *, links: PassageLinks | None = None, max_bytes: int = 2**30
    ) -> None:
        self.backend: GraphBackend = graph_of(graph)
        self.links = PassageLinks() if links is None else of_type(links, PassageLinks, "links")
        self.max_bytes = check_count(max_bytes, "max_bytes")
        self._kept: OrderedDict[Scope | None, _Derived] = OrderedDict()
        self._refreshes = 0
        self._lock = Lock()
        self._building: dict[Scope | None, Lock] = {}

    def plan_of(self, scope: Scope | None) -> Call[PassageGraph]:
        """Return the current passage graph of a scope; raise if it alone exceeds ``max_bytes``."""
        return Call(lambda: self._current(scope))

    of, aof = callers(plan_of)

    def refresh(self) -> None:
        """Drop all passage graphs, so writes of other processes become visible."""
        with self._lock:
            self._kept.clear()
            self._refreshes += 1

    def close(self) -> None:
        """Close the graph and drop all passage graphs."""
        self.refresh()
        self.backend.close()

    def __repr__(self) -> str:
        return f"PassageGraphs({self.backend!r})"

    def _current(self, scope: Scope | None) -> PassageGraph:
        graph = self._find(scope)
        if graph is not None:
            return graph
        with self._lock:
            building = self._building.setdefault(scope, Lock())
        try:
            with building:  # concurrent requests for a scope wait for one derivation
                graph = self._find(scope)
                return self._derive(scope) if graph is None else graph
        finally:
            with self._lock:
                self._building.pop(scope, None)

    @property
    def _version(self) -> tuple[object, ...]:
        return self.backend.version, self._refreshes, now()[: len("2021-09-01")]

    def _derive(self, scope: Scope | None) -> PassageGraph:
        with self._lock:
            # The evidence is modified in place, so after an error it must be derived anew.
            before = self._kept.pop(scope, None)
        evidence = TextEvidence(self.links) if before is None else before.evidence
        version = self._version
        nodes, edges = self.backend.contents(scope=scope)
        if len({node.id for node in nodes}) < len(nodes):  # the first partition by name wins
            nodes.sort(key=lambda node: node.partition.order, reverse=True)
            nodes = list({node.id: node for node in nodes}.values())
        graph = PassageGraph(nodes, edges, self.links, evidence=evidence)
        self._keep(scope, _Derived(version, graph, evidence))
        return graph

    def _find(self, scope: Scope | None) -> PassageGraph | None:
        with self._lock:
            derived = self._kept.get(scope)
            if derived is None or derived.version != self._version:
                return None
            self._kept.move_to_end(scope)
            return derived.graph

    def _keep(self, scope: Scope | None, derived: _Derived) -> None:
        graph = derived.graph
        if graph.size_bytes > self.max_bytes:
            raise ConfigurationError(
                f"the links of {len(graph)} passages take about {graph.size_bytes} bytes, more "
                f"than max_bytes={self.max_bytes}; allow more, or narrow the scope"
            )
        with self._lock:
            self._kept[scope] = derived
            self._kept.move_to_end(scope)
            while sum(kept.graph.size_bytes for kept in self._kept.values()) > self.max_bytes:
                self._kept.popitem(last=False)


def as_passage_graphs(graph: Graph | PassageGraphs) -> PassageGraphs:
    """Return the graph as `PassageGraphs`."""
    return graph if isinstance(graph, PassageGraphs) else PassageGraphs(graph)


class SeededWalk:
    """A personalised PageRank that starts from a seed's hits and from names in the query.

    The filters of the query apply to every passage of the walk. `strength` is that of each hit, in
    (0, 1].
    """

    def __init__(
        self,
        graph: PassageGraph,
        hits: Sequence[NodeWithScore],
        entities: Sequence[LinkedEntity],
        query: Query,
        *,
        damping: float = DAMPING,
    ) -> None:
        self.graph, self.damping = graph, damping
        self.strength = _strengths(hits)
        self.titles = graph.named_titles(query.query_str)
        self.terms = graph.named_terms(query.query_str)
        for entity in entities:
            node = graph.entity(entity.node_id)
            if node is not None:
                self.terms[node] = max(self.terms.get(node, 0.0), graph.rarity(node) * entity.score)
        restart, self.outside = self._restart()
        allowed = graph.allowed(query.condition if query.restricts_passages else None)
        self.walk = graph.walk(restart, query.query_str, allowed=allowed, damping=damping)

    def best(self, count: int) -> dict[str, float]:
        """Return the passages that the walk visits most often, with their shares of the visits."""
        scores = self.walk.scores[: len(self.graph)]
        inside = 1.0 - sum(self.outside.values())
        places = np.flatnonzero(scores > 0)
        if len(places) > count:
            least = np.partition(scores[places], -count)[-count]
            places = places[scores[places] >= least]
        masses = {self.graph.ids[place]: float(scores[place]) * inside for place in places}
        # A passage outside of the graph counts as a node without links.
        masses |= {id_: (1 - self.damping) * mass for id_, mass in self.outside.items()}
        ranked = sorted(masses, key=lambda id_: (-masses[id_], id_))[:count]
        return {id_: masses[id_] for id_ in ranked}

    def explained(self, id_: str) -> dict[str, object]:
        """Return the fields of a hit that explain how the walk reached it."""
        place = self.graph.place_of.get(id_)
        if place is None:
            return {}
        graph = self.graph
        nodes = graph.path(self.walk, place)
        start = [nodes[0]] if nodes[0] in self.terms or nodes[0] in self.titles else []
        shared = [node for node in self.terms if node in graph.terms_of(place)]
        named = [place] if place in self.titles else []
        names = dict.fromkeys(map(graph.name, [*start, *named, *shared]))
        return {
            "matched_entities": tuple(names),
            "hop_distance": graph.hops(nodes),
            "path": str(graph.in_words(nodes)),
        }

    def _restart(self) -> tuple[Floats, dict[str, float]]:
        """Return the restart mass of each node and of each hit outside of the graph."""
        graph = self.graph
        mass = np.zeros(graph.node_count)
        outside = {}
        for id_, strength in self.strength.items():
            place = graph.place_of.get(id_)
            if place is None:
                outside[id_] = strength**_SEED_POWER
            else:
                mass[place] = strength**_SEED_POWER
        for place, rarity in self.titles.items():
            mass[place] += _TITLE_MASS * rarity * self.strength.get(graph.ids[place], _LEAST)
        total = float(mass.sum()) + sum(outside.values())
        terms = sum(self.terms.values())
        share = (_TERM_SHARE if total else 1.0) if terms else 0.0
        if total:
            mass *= (1 - share) / total
            outside = {id_: mass * (1 - share) / total for id_, mass in outside.items()}
        for node, rarity in self.terms.items():
            mass[node] += share * rarity / terms
        return mass, outside


def _strengths(hits: Sequence[NodeWithScore]) -> dict[str, float]:
    """Return the strength of each hit in (0, 1], best 1; by rank if a score is missing."""
    if any(hit.score is None for hit in hits):
        return {hit.node.node_id: 1 / rank for rank, hit in enumerate(hits, start=1)}
    scores = {hit.node.node_id: hit.score or 0.0 for hit in hits}
    low = min(0.0, min(scores.values(), default=0.0))
    high = max(scores.values(), default=0.0) - low
    return {
        id_: similarity_share((score - low) / high if high else 1.0)
        for id_, score in scores.items()
    }


def similarity_share(similarity: float) -> float:
    """Convert a similarity in [-1, 1] to a factor in (0, 1].

    Examples:
        >>> similarity_share(1.0)
        1.0

    """
    return (max(similarity, 0.0) + _LEAST) / (1 + _LEAST)
