"""`GraphBackend`, the adapter around a property graph.

Every row of a graph, node or edge, carries its tenant and knowledge base in its properties, as the
nodes of a vector store do. A read takes a `Scope` and sees only rows that are in it: a path never
leads through a row outside. An edge is visible when it and both of its ends are.

The order of results is part of the contract: edges of a node come by weight, heaviest first, then
by the id of the other end, the type, and the direction. So a fan-out cap keeps the same edges on
every engine.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.adjacency import Adjacency
from llama_retrieval_ext.graph.elements import Contents, Edge, GraphNode, Hop
from llama_retrieval_ext.query import Scope

T = TypeVar("T")


@runtime_checkable
class GraphBackend(Protocol):
    """One way to read every graph.

    A request is a `Call`: a plan yields it, and the driver runs it by threads or on the loop.
    """

    @property
    def engine(self) -> str:
        """The engine's name."""
        ...

    @property
    def version(self) -> int:
        """A number that changes whenever something was written through this object."""
        ...

    def nodes(self, ids: Sequence[str], *, scope: Scope | None) -> Call[dict[str, GraphNode]]:
        """Return the visible nodes with these ids, by id; no ids give no nodes.

        An id that several visible partitions have is the node of the first, by their names.
        """
        ...

    def neighbours(
        self, frontier: Sequence[str], hop: Hop, *, scope: Scope | None
    ) -> Call[dict[str, list[Edge]]]:
        """Return the visible edges of each node of a frontier, capped and ordered.

        By the order of the frontier; a node without edges has an empty list, one that cannot be
        seen has no entry.
        """
        ...

    def edges_between(self, ids: Sequence[str], *, scope: Scope | None) -> Call[list[Edge]]:
        """Return the visible edges with both ends among the ids, ordered by their identity."""
        ...

    def contents(self, *, scope: Scope | None) -> Call[Contents]:
        """Return every visible node, without embeddings, and every visible edge, in any order.

        Of nodes with one id in several visible partitions the first counts, by their names.
        """
        ...

    def names(self, *, scope: Scope | None) -> Call[list[tuple[str, str]]]:
        """Return name and id of every visible entity, one pair an alias, sorted."""
        ...

    def close(self) -> None:
        """Close files and connections; a second call does nothing."""
        ...


@runtime_checkable
class WritableGraph(GraphBackend, Protocol):
    """A graph backend that also writes, so that a repeated write changes nothing."""

    def upsert(
        self, nodes: Sequence[GraphNode], edges: Sequence[Edge], *, source: str | None = None
    ) -> Call[None]:
        """Write nodes and edges in place of stored ones, so that a repeat changes nothing.

        An end of an edge that is no node becomes an entity with its id as its name.

        Args:
            nodes: Each goes into the partition that its properties name.
            edges: Likewise.
            source: The document that the rows come from. A row stays until every source of it is
                deleted.
        """
        ...

    def replace_sources(self, said: Mapping[str, Contents]) -> Call[None]:
        """Write the rows of documents in place of their earlier rows, in one round trip.

        It is one transaction. Of rows with the same identity the last is written, and each of their
        sources supports it.

        Args:
            said: Nodes and edges by document. The first node of a document is the same in every
                version: engines look it up to see whether there is an older one.
        """
        ...

    def said_by(self, sources: Sequence[str]) -> Call[dict[str, Contents]]:
        """Return the rows that each document supports, in every partition, with embeddings."""
        ...

    def delete_sources(self, sources: Sequence[str], *, scope: Scope | None) -> Call[None]:
        """Remove the rows of documents, except those that another source supports."""
        ...

    def compact(self) -> int:
        """Free the disk space of deleted rows, where the engine does not; return how many bytes."""
        ...

    def clear(self, *, scope: Scope | None) -> Call[None]:
        """Remove every visible row."""
        ...


@runtime_checkable
class AdjacencyGraph(Protocol):
    """A graph that can be traversed in memory."""

    def views(self, scope: Scope | None) -> Sequence[Adjacency]:
        """Return the adjacency of each visible partition."""
        ...

    def node(self, view: Adjacency, node_id: str) -> GraphNode:
        """Return a node of a view."""
        ...


@runtime_checkable
class CypherGraph(Protocol):
    """A graph that answers Cypher."""

    def read(self, statement: str, parameters: Mapping[str, object]) -> Call[list[dict[str, Any]]]:
        """Run a statement that only reads."""
        ...

    def explain(self, statement: str, parameters: Mapping[str, object]) -> Call[str]:
        """Return the kind of a statement without running it; ``r`` for one that only reads."""
        ...


def immediate(function: Callable[[], T]) -> Call[T]:
    """Return a call that needs no thread: what it does takes less than starting one."""

    async def coroutine() -> T:
        return function()

    return Call(function, coroutine)
