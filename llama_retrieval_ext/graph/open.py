"""Functions that open graphs by URL and adapt LlamaIndex stores and indexes."""

import difflib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from llama_index.core.graph_stores.types import LabelledNode, PropertyGraphStore
from llama_index.core.indices.property_graph import PropertyGraphIndex

from llama_retrieval_ext.errors import ConfigurationError, StoreError, optional_module
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.backend import ANY_HOP, GraphBackend, WritableGraph
from llama_retrieval_ext.graph.elements import Contents, Edge, EdgeId, GraphNode, Hop, is_visible
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.embedded_store import EmbeddedPropertyGraphStore
from llama_retrieval_ext.graph.validity import When, entity_at, facts_at, is_dated_entity
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.urls import shown_url

T = TypeVar("T")
Graph: TypeAlias = str | PropertyGraphStore | PropertyGraphIndex | GraphBackend

_EMBEDDED: Final = "graph"
_NEO4J: Final = ("neo4j", "neo4js", "bolt", "bolts")


def open_graph(url: str, *, functional: Iterable[str] | None = None) -> WritableGraph:
    """Open or create the graph that a URL names; the caller closes it.

    Args:
        url: ``graph:DIRECTORY``, or ``graph::memory:`` for one that is lost when closed;
            ``neo4j://host:7687/database``, ``neo4js://`` for TLS, or ``bolt://`` for one server
            instead of a cluster. Credentials come from environment variables, named in the
            URL: ``?user_env=NAME&password_env=NAME``.
        functional: Relations that have one value at a time, such as ``["WORKS_AT"]``: with dates, a
            later fact ends the earlier one where it starts. They are recorded with the graph; None
            for those that are.

    Raises:
        ConfigurationError: The URL names no graph.
        StoreFormatError: The directory contains something else.
        StoreUnavailableError: The directory is in use.
        MissingDependencyError: The extra ``neo4j`` is not installed.

    Examples:
        >>> graph = open_graph("graph::memory:")
        >>> graph.engine
        'embedded'
        >>> graph.close()

    """
    if not isinstance(url, str) or "\0" in url:
        raise ConfigurationError(f"a graph is named by a URL, got {url!r}; write 'graph:./graph'")
    if isinstance(functional, str):
        raise ConfigurationError(f"functional is a list of relations, got {functional!r}")
    scheme, _, place = url.partition(":")
    opened: WritableGraph | None = None
    if scheme == _EMBEDDED and place and not place.startswith("//"):
        opened = EmbeddedGraph(place)
    elif scheme in _NEO4J and place.startswith("//"):
        opened = _neo4j_graph().open(url)
    if opened is not None:
        if functional is not None:
            opened.set_functional(frozenset(functional))
        return opened
    schemes = (_EMBEDDED, *_NEO4J)
    near = [] if scheme in schemes else difflib.get_close_matches(scheme, schemes, n=1)
    advice = f" Did you mean {near[0]}:...?" if near else ""
    raise ConfigurationError(
        f"{shown_url(url)} is not the URL of a graph.{advice} Write graph:./directory, "
        "graph::memory: or neo4j://host:7687/database"
    )


def graph_of(graph: Graph) -> GraphBackend:
    """Return the backend of a URL, a LlamaIndex object or a backend; raise for another type."""
    if isinstance(graph, str):
        return open_graph(graph)
    if isinstance(graph, PropertyGraphIndex):
        graph = graph.property_graph_store
    if isinstance(graph, EmbeddedPropertyGraphStore):
        return graph.graph
    if isinstance(graph, PropertyGraphStore):
        homes = [kind.__module__ for kind in type(graph).__mro__]
        if any(home.startswith("llama_index.graph_stores.neo4j") for home in homes):
            backend: GraphBackend = _neo4j_graph().from_store(graph)
            return backend
        return PropertyGraph(graph)
    if isinstance(graph, GraphBackend):
        return graph
    raise ConfigurationError(
        f"expected a URL, a LlamaIndex property graph store or a PropertyGraphIndex, got {graph!r}"
    )


def _neo4j_graph() -> Any:  # noqa: ANN401 - its type needs the driver
    """Import and return the class on first use."""
    return optional_module("llama_retrieval_ext.graph.neo4j", "Neo4j", "neo4j").Neo4jGraph


class PropertyGraph(GraphBackend):
    """Read-only graph backend that uses only ``get`` and ``get_triplets`` of a store.

    It is exact, and as fast as the store: ``SimplePropertyGraphStore`` scans all triplets for every
    hop, and `EmbeddedPropertyGraphStore` is faster. It does not write, because these stores
    identify a node by its id alone, without the tenant, and deletion in some of them also removes
    neighbours. Write through the store itself.

    Args:
        store: The store. Its owner closes it.
    """

    engine = "generic"

    def __init__(self, store: PropertyGraphStore) -> None:
        self.store = store
        self.version = 0

    def __repr__(self) -> str:
        return f"PropertyGraph({type(self.store).__name__})"

    def plan_nodes(
        self, ids: Sequence[str], *, scope: Scope | None = None
    ) -> Call[dict[str, GraphNode]]:
        """Return the visible nodes with these ids, by id."""
        return Call(lambda: self._nodes(ids, scope))

    def plan_neighbours(
        self, frontier: Sequence[str], hop: Hop = ANY_HOP, *, scope: Scope | None = None
    ) -> Call[dict[str, list[Edge]]]:
        """Return the visible edges of each node of a frontier, capped and ordered."""

        def function() -> dict[str, list[Edge]]:
            visible = self._nodes(frontier, scope)
            edges: dict[str, list[Edge]] = {id_: [] for id_ in visible}
            for edge in self._edges_of(list(visible), scope):
                for id_ in {edge.source, edge.target} & edges.keys():
                    edges[id_].append(edge)
            return {id_: hop.first(id_, incident) for id_, incident in edges.items()}

        return Call(function)

    def plan_contents(
        self, ids: Collection[str] | None = None, *, scope: Scope | None = None
    ) -> Call[Contents]:
        """Return the visible nodes, without embeddings, and the visible edges between them."""

        def function() -> Contents:
            visible = self._every(scope) if ids is None else self._nodes(ids, scope).values()
            nodes = {node.id: replace(node, embedding=None) for node in visible}
            edges = self._edges_of(list(nodes), scope)
            between = [edge for edge in edges if {edge.source, edge.target} <= nodes.keys()]
            return Contents(list(nodes.values()), between)

        return Call(function)

    def plan_names(self, *, scope: Scope | None = None) -> Call[list[tuple[str, str]]]:
        """Return name and id of every visible entity, one pair per name or alias, sorted."""
        return Call(lambda: sorted({(s, n.id) for n in self._every(scope) for s in n.names}))

    def close(self) -> None:
        """No-op: the caller closes the store."""

    def _every(self, scope: Scope | None) -> list[GraphNode]:
        return _visible(self._read(self.store.get), scope)

    def _nodes(self, ids: Collection[str], scope: Scope | None) -> dict[str, GraphNode]:
        unique = list(dict.fromkeys(ids))
        if not unique:  # for these stores an empty list means all
            return {}
        kept = {n.id: n for n in _visible(self._read(lambda: self.store.get(ids=unique)), scope)}
        return {id_: kept[id_] for id_ in unique if id_ in kept}

    def _edges_of(self, ids: Sequence[str], scope: Scope | None) -> list[Edge]:
        """Return the visible edges with an end among the visible nodes with these ids."""
        if not ids:
            return []
        edges: dict[EdgeId, Edge] = {}
        for source, relation, target in self._read(lambda: self.store.get_triplets(ids=list(ids))):
            ends = (is_visible(end.properties, scope) for end in (source, target))
            if all(ends) and is_visible(relation.properties, scope, is_edge=True):
                # Use the nodes' ids, because some stores put names into the relation.
                edge = Edge.of(source.id, relation.label, target.id, relation.properties).stored()
                edges[edge.id] = edge
        return facts_at(edges.values(), When.of(scope))

    def _read(self, function: Callable[[], list[T]]) -> list[T]:
        try:
            return function()
        except Exception as error:
            raise StoreError(
                f"{type(self.store).__name__} failed: {type(error).__name__}: {error}"
            ) from error


def _visible(nodes: Iterable[LabelledNode], scope: Scope | None) -> list[GraphNode]:
    seen = (node for node in nodes if node.id and is_visible(node.properties, scope))
    stored = (GraphNode.from_llama_index(node).stored() for node in seen)
    when = When.of(scope)
    return [entity_at(node, when) if is_dated_entity(node) else node for node in stored]
