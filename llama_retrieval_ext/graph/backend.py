"""`GraphBackend`, the adapter around a property graph, and the values it works with.

Every row of a graph, node or edge, carries its tenant and knowledge base in its properties, as the
nodes of a vector store do. A read takes a `Scope` and sees only rows that are in it: a path never
leads through a row outside. An edge is visible when it and both of its ends are.

The order of results is part of the contract: edges of a node come by weight, heaviest first, then
by the id of the other end, the type, and the direction. So a fan-out cap keeps the same edges on
every engine.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from llama_index.core.graph_stores.types import ChunkNode, EntityNode, LabelledNode, Relation

from llama_retrieval_ext.arguments import is_number
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY, Scope

T = TypeVar("T")

ALIASES_KEY = "aliases"
WEIGHT_KEY = "weight"
CHUNK_LABEL = "text_chunk"
"""LlamaIndex's label of passages."""


class Partition(NamedTuple):
    """The tenant and knowledge base of a row; edges join nodes of one partition."""

    tenant_id: str | None = None
    kb_id: str | None = None

    @classmethod
    def of(cls, properties: Mapping[str, object]) -> "Partition":
        """Return the partition that a row's properties name; a value that is no string names none.

        Examples:
            >>> Partition.of({"tenant_id": "acme", "year": 2024})
            Partition(tenant_id='acme', kb_id=None)

        """
        tenant_id, kb_id = properties.get(TENANT_KEY), properties.get(KB_KEY)
        return cls(
            tenant_id if isinstance(tenant_id, str) else None,
            kb_id if isinstance(kb_id, str) else None,
        )

    def is_in(self, scope: Scope | None) -> bool:
        """Whether a scope can see the rows of this partition."""
        if scope is None:
            return True
        if scope.tenant_id is not None and scope.tenant_id != self.tenant_id:
            return False
        return not scope.kb_ids or self.kb_id in scope.kb_ids

    @property
    def order(self) -> tuple[str, str]:
        """Sort key: a missing name comes first."""
        return (self.tenant_id or "", self.kb_id or "")


@dataclass(frozen=True)
class GraphNode:
    """An entity or a passage.

    Attributes:
        id: Identity within a partition; of a passage the node id in the vector store.
        label: Its kind, such as ``Hazard``; LlamaIndex's ``text_chunk`` for a passage.
        name: What texts call it; of a passage its id.
        properties: Metadata, tenant and knowledge base included. ``aliases`` is a list of further
            names.
        text: Content of a passage; None for an entity.
        embedding: Of the name or the text, where it is stored.
    """

    id: str
    label: str = "entity"
    name: str = ""
    properties: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON values
    text: str | None = None
    embedding: Sequence[float] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.id)

    @property
    def is_passage(self) -> bool:
        """Whether it is a passage rather than an entity."""
        return self.text is not None

    @property
    def names(self) -> tuple[str, ...]:
        """The name and the aliases, each once; none of a passage."""
        if self.is_passage:
            return ()
        aliases = self.properties.get(ALIASES_KEY) or ()
        listed = [aliases] if isinstance(aliases, str) else aliases
        return tuple(dict.fromkeys([self.name, *(a for a in listed if isinstance(a, str) and a)]))

    @cached_property
    def partition(self) -> Partition:
        """Where it belongs."""
        return Partition.of(self.properties)

    @classmethod
    def from_llama_index(cls, node: LabelledNode) -> "GraphNode":
        """Return the same node as a value of ours."""
        text = node.text if isinstance(node, ChunkNode) else None
        name = node.name if isinstance(node, EntityNode) else node.id
        return cls(node.id, node.label, name, dict(node.properties), text, node.embedding)

    def to_llama_index(self) -> EntityNode | ChunkNode:
        """Return the same node as LlamaIndex has it."""
        properties = dict(self.properties)
        embedding = None if self.embedding is None else [float(x) for x in self.embedding]
        if self.text is not None:
            return ChunkNode(
                text=self.text,
                id_=self.id,
                label=self.label,
                properties=properties,
                embedding=embedding,
            )
        entity = EntityNode(
            name=self.name, label=self.label, properties=properties, embedding=embedding
        )
        return entity if entity.id == self.id else _IdentifiedEntity(id_=self.id, **dict(entity))


class _IdentifiedEntity(EntityNode):
    """An entity that is known by something else than its name."""

    id_: str

    @property
    def id(self) -> str:
        """What it is known by."""
        return self.id_


class Edge(NamedTuple):
    """A directed, typed edge; source, type and target are its identity.

    Attributes:
        source: Id of the node it starts at.
        type: Its relation type, such as ``HAS_HAZARD``.
        target: Id of the node it ends at.
        weight: Positive; the property ``weight`` where that is a number, else 1.
        payload: The properties as JSON, parsed when asked for: a graph has millions.
    """

    source: str
    type: str
    target: str
    weight: float = 1.0
    payload: str = "{}"

    @classmethod
    def of(
        cls, source: str, type_: str, target: str, properties: Mapping[str, object] | None = None
    ) -> "Edge":
        """Return an edge with properties.

        Raises:
            ConfigurationError: The properties are not JSON.

        Examples:
            >>> Edge.of("pit", "USES", "crane", {"weight": 2})
            Edge(source='pit', type='USES', target='crane', weight=2.0, payload='{"weight": 2}')

        """
        properties = properties or {}
        return cls(source, type_, target, weight_of(properties), to_json(properties))

    @classmethod
    def from_llama_index(cls, relation: Relation) -> "Edge":
        """Return a relation as an edge."""
        return cls.of(
            relation.source_id, relation.label, relation.target_id, dict(relation.properties)
        )

    def to_llama_index(self) -> Relation:
        """Return the edge as LlamaIndex has it."""
        return Relation(
            label=self.type,
            source_id=self.source,
            target_id=self.target,
            properties=dict(self.properties),
        )

    @property
    def id(self) -> tuple[str, str, str]:
        """What it is known by."""
        return self[:3]

    @property
    def properties(self) -> dict[str, Any]:
        """The properties."""
        parsed: dict[str, Any] = json.loads(self.payload)
        return parsed

    def other(self, node_id: str) -> str:
        """The end that is not this node; of a loop the node itself."""
        return self.target if self.source == node_id else self.source

    def __str__(self) -> str:
        return f"{self.source} -{self.type}-> {self.target}"


def weight_of(properties: Mapping[str, object]) -> float:
    """Return the weight that properties name, 1 where they name none that is positive."""
    weight = properties.get(WEIGHT_KEY)
    if isinstance(weight, int | float) and is_number(weight) and weight > 0:
        return float(weight)
    return 1.0


def to_json(properties: Mapping[str, object]) -> str:
    """Return properties as JSON.

    Raises:
        ConfigurationError: They are not JSON: an object, a number that is not finite.
    """
    if not properties:
        return "{}"
    try:
        return json.dumps(dict(properties), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"properties of nodes and edges must be JSON values, got {properties!r}: {error}"
        ) from error


class Direction(Enum):
    """Which edges of a node are meant."""

    OUT = "out"
    IN = "in"
    ANY = "any"

    @property
    def reversed(self) -> "Direction":
        """The same edges seen from their other end."""
        return {Direction.OUT: Direction.IN, Direction.IN: Direction.OUT}.get(self, self)


@dataclass(frozen=True, slots=True)
class Hop:
    """What one hop may follow.

    Attributes:
        direction: Of the edges, seen from the node that is left.
        types: Relation types to follow; None for all.
        fan_out: Most edges that are followed from one node; None for all.
    """

    direction: Direction = Direction.ANY
    types: frozenset[str] | None = None
    fan_out: int | None = None

    def first(self, node_id: str, edges: Iterable[Edge]) -> list[Edge]:
        """Return those of a node's edges that may be followed, in the order of the contract."""
        kept = [edge for edge in edges if self.allows(node_id, edge)]
        kept.sort(key=edge_order(node_id))
        return kept if self.fan_out is None else kept[: self.fan_out]

    def allows(self, node_id: str, edge: Edge) -> bool:
        """Whether an edge of this node has the type and the direction."""
        if self.types is not None and edge.type not in self.types:
            return False
        if self.direction is Direction.ANY:
            return True
        return (edge.source if self.direction is Direction.OUT else edge.target) == node_id


def edge_order(node_id: str) -> Callable[[Edge], tuple[float, str, str, bool]]:
    """Return the sort key of a node's edges: weight, other end, type, outgoing before incoming."""

    def key(edge: Edge) -> tuple[float, str, str, bool]:
        outgoing = edge.source == node_id
        return -edge.weight, edge.target if outgoing else edge.source, edge.type, not outgoing

    return key


class Contents(NamedTuple):
    """Everything that a scope sees of a graph."""

    nodes: list[GraphNode]
    edges: list[Edge]


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
        """Let go of files and connections; a second call does nothing."""
        ...


@runtime_checkable
class WritableGraph(GraphBackend, Protocol):
    """A graph backend that also writes, so that a repeated write changes nothing."""

    def upsert(
        self, nodes: Sequence[GraphNode], edges: Sequence[Edge], *, source: str | None = None
    ) -> Call[None]:
        """Write nodes and edges; what is there already is replaced, so a repeat changes nothing.

        An end of an edge that is no node becomes an entity with its id as its name.

        Args:
            nodes: What to write, each into the partition of its properties.
            edges: Likewise.
            source: The document that says so. A row stays until every source of it is deleted.
        """
        ...

    def delete_sources(self, sources: Sequence[str], *, scope: Scope | None) -> Call[None]:
        """Withdraw what documents said: rows that no other source supports are removed."""
        ...

    def clear(self, *, scope: Scope | None) -> Call[None]:
        """Remove every visible row."""
        ...


def immediate(function: Callable[[], T]) -> Call[T]:
    """Return a call that needs no thread: what it does takes less than starting one."""

    async def coroutine() -> T:
        return function()

    return Call(function, coroutine)


def check_fan_out(fan_out: int | None) -> int | None:
    """Return the cap if it can be one.

    Raises:
        ConfigurationError: It is below 1.
    """
    if fan_out is not None and (
        isinstance(fan_out, bool) or not 1 <= fan_out < math.inf or int(fan_out) != fan_out
    ):
        raise ConfigurationError(
            f"fan_out must be at least 1, got {fan_out!r}; to follow every edge, pass None"
        )
    return fan_out
