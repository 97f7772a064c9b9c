"""What some graphs can do beyond `GraphBackend`: answer Cypher, or be gone through in memory."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.adjacency import Adjacency
from llama_retrieval_ext.graph.elements import GraphNode
from llama_retrieval_ext.query import Scope


@runtime_checkable
class CypherGraph(Protocol):
    """A graph that answers Cypher."""

    def read(self, statement: str, parameters: Mapping[str, object]) -> Call[list[dict[str, Any]]]:
        """Run a statement that only reads."""
        ...


@runtime_checkable
class AdjacencyGraph(Protocol):
    """A graph that can be gone through in memory."""

    def views(self, scope: Scope | None) -> Sequence[Adjacency]:
        """Return the adjacency of each visible partition."""
        ...

    def node(self, view: Adjacency, node_id: str) -> GraphNode:
        """Return a node of a view."""
        ...


@runtime_checkable
class ExplainingGraph(CypherGraph, Protocol):
    """A graph that answers Cypher, and says before what a statement would do."""

    def explain(self, statement: str, parameters: Mapping[str, object]) -> Call[str]:
        """Return the kind of a statement; ``r`` for one that only reads."""
        ...
