"""Functions that open graphs by URL and adapt LlamaIndex stores and indexes."""

import difflib
from importlib import import_module
from typing import Any, Final, TypeAlias

from llama_index.core.graph_stores.types import PropertyGraphStore
from llama_index.core.indices.property_graph import PropertyGraphIndex

from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
from llama_retrieval_ext.graph.backend import GraphBackend, WritableGraph
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.embedded_store import EmbeddedPropertyGraphStore
from llama_retrieval_ext.graph.property_graph import PropertyGraph

Graph: TypeAlias = str | PropertyGraphStore | PropertyGraphIndex | GraphBackend

_EMBEDDED: Final = "graph"
_NEO4J: Final = ("neo4j", "neo4js", "bolt", "bolts")


def open_graph(url: str) -> WritableGraph:
    """Open or create the graph that a URL names; the caller closes it.

    Args:
        url: ``graph:DIRECTORY``, or ``graph::memory:`` for one that is lost when closed;
            ``neo4j://host:7687/database``, ``neo4js://`` for TLS, or ``bolt://`` for one server
            instead of a cluster. Credentials come from environment variables, named in the
            URL: ``?user_env=NAME&password_env=NAME``.

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
    scheme, _, place = url.partition(":")
    if scheme == _EMBEDDED and place and not place.startswith("//"):
        return EmbeddedGraph(place)
    if scheme in _NEO4J and place.startswith("//"):
        opened: WritableGraph = _neo4j_graph().open(url)
        return opened
    schemes = (_EMBEDDED, *_NEO4J)
    near = [] if scheme in schemes else difflib.get_close_matches(scheme, schemes, n=1)
    advice = f" Did you mean {near[0]}:...?" if near else ""
    shown = repr(url) if "@" not in url else f"the URL with {scheme}:"
    raise ConfigurationError(
        f"{shown} names no graph.{advice} Write graph:./directory, graph::memory: or "
        "neo4j://host:7687/database"
    )


def graph_of(graph: Graph) -> GraphBackend:
    """Return the backend of a URL, a LlamaIndex object or a backend.

    Args:
        graph: A URL, a LlamaIndex property graph store or index, or a backend.

    Raises:
        ConfigurationError: The argument has another type.
    """
    if isinstance(graph, str):
        return open_graph(graph)
    if isinstance(graph, PropertyGraphIndex):
        graph = graph.property_graph_store
    if isinstance(graph, PropertyGraphStore):
        return _backend_of(graph)
    if isinstance(graph, GraphBackend):
        return graph
    raise ConfigurationError(
        f"expected a URL, a LlamaIndex property graph store or a PropertyGraphIndex, got {graph!r}"
    )


def _backend_of(store: PropertyGraphStore) -> GraphBackend:
    if isinstance(store, EmbeddedPropertyGraphStore):
        return store.graph
    homes = [kind.__module__ for kind in type(store).__mro__]
    if any(home.startswith("llama_index.graph_stores.neo4j") for home in homes):
        backend: GraphBackend = _neo4j_graph().from_store(store)
        return backend
    return PropertyGraph(store)


def _neo4j_graph() -> Any:  # noqa: ANN401 - its type needs the driver
    """Import and return the class on first use."""
    try:
        return import_module("llama_retrieval_ext.graph.neo4j").Neo4jGraph
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("llama_retrieval_ext"):
            raise
        raise MissingDependencyError("Neo4j", "neo4j") from error
