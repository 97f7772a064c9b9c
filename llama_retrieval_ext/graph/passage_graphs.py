"""`PassageGraphs`: a graph, and the passage graph of each scope, kept in memory."""

from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

from llama_retrieval_ext.checks import check_count, of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.open import Graph, graph_of
from llama_retrieval_ext.graph.passage_graph import PassageGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks
from llama_retrieval_ext.graph.text_evidence import TextEvidence
from llama_retrieval_ext.query import Scope


class _Derived(NamedTuple):
    """The passage graph of a scope, its evidence, and the version of the graph they come from."""

    version: int
    graph: PassageGraph
    evidence: TextEvidence


class PassageGraphs:
    """A graph, and what links the passages that each scope sees in it.

    The first query of a scope derives the links; the first after the graph was written to through
    this object brings them up to date, by what changed; the others find them in memory. Writes of
    other processes to a shared graph, or to a generic LlamaIndex store, are seen after `refresh`.

    Args:
        graph: A URL, a LlamaIndex property graph store or index, or a backend.
        links: Which evidence links passages.
        max_bytes: Memory for all scopes together; those not used for longest are dropped.

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
        self._lock = Lock()
        self._building: dict[Scope | None, Lock] = {}

    def of(self, scope: Scope | None) -> Call[PassageGraph]:
        """Return the passage graph of a scope, as the graph is now.

        Raises:
            ConfigurationError: It alone takes more than ``max_bytes``.
        """
        return Call(lambda: self._current(scope))

    def refresh(self) -> None:
        """Drop all passage graphs, so that writes of other processes are seen."""
        with self._lock:
            self._kept.clear()

    def close(self) -> None:
        """Close the graph and drop what was derived."""
        self.refresh()
        self.backend.close()

    def __repr__(self) -> str:
        return f"PassageGraphs({self.backend!r})"

    def _current(self, scope: Scope | None) -> PassageGraph:
        found = self._find(scope)
        if found is not None:
            return found
        with self._lock:
            building = self._building.setdefault(scope, Lock())
        with building:  # others that ask for this scope wait for the one that derives it
            found = self._find(scope)
            if found is None:
                found = self._derive(scope)
        with self._lock:
            self._building.pop(scope, None)
        return found

    def _derive(self, scope: Scope | None) -> PassageGraph:
        with self._lock:
            # The evidence is changed in place; after an error it is derived again.
            before = self._kept.pop(scope, None)
        evidence = TextEvidence(self.links) if before is None else before.evidence
        version = self.backend.version
        nodes, edges = self.backend.contents(scope=scope).function()
        graph = PassageGraph(nodes, edges, self.links, evidence=evidence)
        self._keep(scope, _Derived(version, graph, evidence))
        return graph

    def _find(self, scope: Scope | None) -> PassageGraph | None:
        with self._lock:
            found = self._kept.get(scope)
            if found is None or found.version != self.backend.version:
                return None
            self._kept.move_to_end(scope)
            return found.graph

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
            while sum(each.graph.size_bytes for each in self._kept.values()) > self.max_bytes:
                self._kept.popitem(last=False)


def as_passage_graphs(graph: Graph | PassageGraphs) -> PassageGraphs:
    """Return the graph with its links between passages."""
    return graph if isinstance(graph, PassageGraphs) else PassageGraphs(graph)
