"""`PassageGraphs`: a graph with cached passage graphs, one per scope."""

from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

from llama_retrieval_ext.checks import check_count, of_type
from llama_retrieval_ext.dates import now
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.execution.running import callers
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.evidence import TextEvidence
from llama_retrieval_ext.graph.open import Graph, graph_of
from llama_retrieval_ext.graph.passage_graph import PassageGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks
from llama_retrieval_ext.scope import Scope


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
        with building:  # concurrent requests for a scope wait for one derivation
            graph = self._find(scope)
            if graph is None:
                graph = self._derive(scope)
        with self._lock:
            self._building.pop(scope, None)
        return graph

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
