"""`GraphSide`: the graph beside the store of a knowledge base."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.backend import WritableGraph
from llama_retrieval_ext.graph.embedded import MEMORY, EmbeddedGraph
from llama_retrieval_ext.graph.open import Graph, graph_of, open_graph
from llama_retrieval_ext.graph.passage_links import PassageLinks
from llama_retrieval_ext.urls import Location

if TYPE_CHECKING:
    from llama_retrieval_ext.graph.passage_graphs import PassageGraphs

_IN_MEMORY = f"graph:{MEMORY}"
_OBJECT = ", given as an object"


@dataclass(frozen=True, slots=True)
class GraphSide:
    """The open graph of a knowledge base.

    Attributes:
        url: The recorded URL; a description for an object without a URL.
        graph: Stores passages, documents and entities.
        graphs: The links between passages, shared by all retrievers.
        links: The evidence that links passages.
        close: Closes the graph if it was opened here.
    """

    url: str
    graph: WritableGraph
    graphs: "PassageGraphs"
    links: PassageLinks
    close: Callable[[], None]


def open_graph_side(graph: Graph, links: PassageLinks | None, kb_url: str) -> GraphSide:
    """Open the graph of a knowledge base.

    Args:
        graph: A URL, or another argument of `graph_of`.
        links: The evidence that links passages; None for all.
        kb_url: URL of the knowledge base.

    Raises:
        ConfigurationError: It is no graph, it is not writable, or only one of graph and knowledge
            base is in memory.
        StoreUnavailableError: Its directory is in use.
    """
    from llama_retrieval_ext.graph.passage_graphs import PassageGraphs  # noqa: PLC0415 - scipy

    links = PassageLinks() if links is None else links
    if isinstance(graph, str):
        opened, close = _shared(graph)
    else:
        opened, close = _writable(graph), _leave_open
    url = getattr(opened, "url", "") or f"a graph on {opened.engine}{_OBJECT}"
    if (url == _IN_MEMORY) == Location.of(kb_url).is_in_memory:
        return GraphSide(url, opened, PassageGraphs(opened, links=links), links, close)
    close()
    raise ConfigurationError(
        f"the knowledge base {kb_url} and its graph {url} must both be in memory or neither, since "
        "closing deletes what is in memory"
    )


def open_recorded(recorded: str, kb_url: str) -> GraphSide:
    """Open the graph recorded by a knowledge base.

    Raises:
        ConfigurationError: It was given as an object without a URL.
    """
    if not recorded.endswith(_OBJECT):
        return open_graph_side(recorded, None, kb_url)
    raise ConfigurationError(
        f"{kb_url} has {recorded}, which cannot be opened from here; what needs it is to be done "
        "with KnowledgeBase.open(url, graph=...): clear() before it is removed, for instance"
    )


def is_same_graph(recorded: str, given: str) -> bool:
    """Return whether two URLs name one graph; options such as credentials do not count.

    Examples:
        >>> is_same_graph("neo4j://db/kb?user_env=USER", "neo4j://db:7687/kb")
        True

    """
    return _identity(recorded) == _identity(given)


def _identity(url: str) -> object:
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or 7687, parts.path.strip("/")


def _writable(graph: Graph) -> WritableGraph:
    backend = graph_of(graph)
    if isinstance(backend, WritableGraph):
        return backend
    raise ConfigurationError(
        f"a knowledge base cannot write to {backend!r}; pass graph='graph:./dir', 'neo4j://...', "
        "an EmbeddedPropertyGraphStore or a Neo4jPropertyGraphStore"
    )


def _leave_open() -> None:
    """No-op: the caller closes its own graph."""


# Module state: a process can open a directory only once, but a knowledge base many times.
_opening = Lock()
_users: dict[Path, tuple[WritableGraph, int]] = {}


def _shared(url: str) -> tuple[WritableGraph, Callable[[], None]]:
    """Open the graph at a URL; on disk, knowledge bases of this process share it."""
    scheme, _, name = url.partition(":")
    if scheme != "graph" or name == MEMORY or name.startswith("//") or not name:
        opened = open_graph(url)
        return opened, opened.close
    path = Path(name).expanduser().resolve()
    with _opening:
        graph, users = _users.get(path) or (EmbeddedGraph(path), 0)
        _users[path] = graph, users + 1

    def close() -> None:
        with _opening:
            kept, left = _users.pop(path)
            if left > 1:
                _users[path] = kept, left - 1
            else:
                kept.close()

    return graph, close
