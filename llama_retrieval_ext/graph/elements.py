"""Elements of a graph: nodes, edges, partitions, and hops along edges."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias, TypeVar

from llama_index.core.graph_stores.types import ChunkNode, EntityNode, LabelledNode, Relation

from llama_retrieval_ext.checks import check_count, of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.scope import ALLOWED_KEY, KB_KEY, TENANT_KEY, Scope, principals_of

T = TypeVar("T")

ALIASES_KEY = "aliases"
WEIGHT_KEY = "weight"
CHUNK_LABEL = "text_chunk"
"""LlamaIndex's label of passages."""


class Partition(NamedTuple):
    """The tenant and knowledge base of a row; the edges that we write join nodes of one."""

    tenant_id: str | None = None
    kb_id: str | None = None

    @classmethod
    def of(cls, properties: Mapping[str, object]) -> "Partition":
        """Return the partition named in a row's properties; a value other than a string is ignored.

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
        """Return whether a scope can see the rows of this partition."""
        if scope is None:
            return True
        if scope.tenant_id is not None and scope.tenant_id != self.tenant_id:
            return False
        return not scope.kb_ids or self.kb_id in scope.kb_ids

    @property
    def properties(self) -> dict[str, str]:
        """Return the properties of a row in this partition."""
        tenant = {} if self.tenant_id is None else {TENANT_KEY: self.tenant_id}
        return tenant if self.kb_id is None else {**tenant, KB_KEY: self.kb_id}

    @property
    def order(self) -> tuple[str, str]:
        """Return the sort key; a missing name comes first."""
        return (self.tenant_id or "", self.kb_id or "")


def is_visible(
    properties: Mapping[str, object], scope: Scope | None, *, is_edge: bool = False
) -> bool:
    """Return whether a scope can see a row with these properties; of an edge, if it sees its ends.

    An edge that names neither a tenant nor a knowledge base is where its ends are.
    """
    if scope is None:
        return True
    is_at_ends = is_edge and all(properties.get(key) is None for key in (TENANT_KEY, KB_KEY))
    is_inside = is_at_ends or Partition.of(properties).is_in(scope)
    return is_inside and scope.has_principal_of(properties)


def check_deletion(scope: Scope | None, sources: Sequence[str] = ()) -> None:
    """Raise if a scope has principals, who cannot see all rows that a deletion may concern.

    Or if the documents are a string, which would be taken letter by letter.
    """
    if isinstance(sources, str):
        raise ConfigurationError(f"sources is a list of documents, got {sources!r}; write [...]")
    if scope is not None and scope.principals is not None:
        raise ConfigurationError(
            "a scope with principals only reads a graph; delete rows in a scope without them"
        )


Claims: TypeAlias = Sequence[tuple[frozenset[str], T]]
"""What documents write of a row, greatest first: the principals who may see it, and the row."""


def shown(claims: Claims[T], principals: frozenset[str]) -> T | None:
    """Return the greatest visible claim; None if there is none. No principals are everyone."""
    for allowed, row in claims:
        if not allowed or not allowed.isdisjoint(principals):
            return row
    return None


def allowed_of(properties: Mapping[str, object]) -> tuple[str, ...]:
    """Return the principals who may see a row; empty for everyone."""
    allowed = properties.get(ALLOWED_KEY)
    return () if allowed is None else principals_of(allowed, ALLOWED_KEY)


@dataclass(frozen=True)
class GraphNode:
    """An entity or a passage.

    Attributes:
        id: Identity within a partition; for a passage the node id in the vector store.
        label: Kind of node, such as ``Hazard``; LlamaIndex's ``text_chunk`` for a passage.
        name: Name in texts; for a passage its id.
        properties: Metadata, including tenant and knowledge base. ``aliases`` is a list of other
            names.
        text: Content of a passage; None for an entity.
        embedding: Embedding of the name or the text, if stored.
    """

    id: str
    label: str = "entity"
    name: str = ""
    properties: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON values
    text: str | None = None
    embedding: Sequence[float] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_words("a node", id=self.id, label=self.label)
        of_type(self.properties, Mapping, "the properties of a node")
        if not self.name:
            object.__setattr__(self, "name", self.id)

    def name_in(self, language: str) -> str:
        """Return its name in a language, or its default name."""
        name = self.properties.get(f"name_{language}") if language else None
        return name if isinstance(name, str) and name else self.name

    @property
    def is_passage(self) -> bool:
        """Whether it is a passage, not an entity."""
        return self.text is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Name and aliases, each once; empty for a passage."""
        if self.is_passage:
            return ()
        aliases = self.properties.get(ALIASES_KEY)
        listed = aliases if isinstance(aliases, list | tuple) else [aliases]
        return tuple(dict.fromkeys([self.name, *(a for a in listed if isinstance(a, str) and a)]))

    @cached_property
    def partition(self) -> Partition:
        """Partition of the node."""
        return Partition.of(self.properties)

    def stored(self) -> "GraphNode":
        """Return the node as it is stored: without properties that are None, and principals.

        Principals belong to each claim of the node.
        """
        return replace(self, properties=_stored(self.properties))

    @classmethod
    def from_llama_index(cls, node: LabelledNode) -> "GraphNode":
        """Return a LlamaIndex node as a `GraphNode`."""
        text = node.text if isinstance(node, ChunkNode) else None
        name = node.name if isinstance(node, EntityNode) else node.id
        return cls(node.id, node.label, name, dict(node.properties), text, node.embedding)

    def to_llama_index(self) -> EntityNode | ChunkNode:
        """Return the node as a LlamaIndex node."""
        embedding = None if self.embedding is None else [float(x) for x in self.embedding]
        stored: dict[str, Any] = {"properties": dict(self.properties), "embedding": embedding}
        if self.text is not None:
            return ChunkNode(text=self.text, id_=self.id, label=self.label, **stored)
        entity = EntityNode(name=self.name, label=self.label, **stored)
        return entity if entity.id == self.id else _IdentifiedEntity(id_=self.id, **dict(entity))


class _IdentifiedEntity(EntityNode):
    """An entity with an id different from its name."""

    id_: str

    @property
    def id(self) -> str:
        """Identity of the element."""
        return self.id_


EdgeId: TypeAlias = tuple[str, str, str]
"""Source, type and target."""


class Edge(NamedTuple):
    """A directed, typed edge; source, type and target are its identity.

    Attributes:
        source: Id of the start node.
        type: Relation type, such as ``HAS_HAZARD``.
        target: Id of the end node.
        weight: Positive; the property ``weight`` if it is a number, else 1.
        payload: Properties as JSON, parsed on demand because a graph has millions of edges.
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

        Examples:
            >>> Edge.of("pit", "USES", "crane", {"weight": 2})
            Edge(source='pit', type='USES', target='crane', weight=2.0, payload='{"weight": 2}')

        """
        properties = of_type(properties or {}, Mapping, "the properties of an edge")
        return cls(source, type_, target, weight_of(properties), to_json(properties))

    @classmethod
    def from_llama_index(cls, relation: Relation) -> "Edge":
        """Return a relation as an edge."""
        return cls.of(
            relation.source_id, relation.label, relation.target_id, dict(relation.properties)
        )

    def to_llama_index(self) -> Relation:
        """Return the edge as a LlamaIndex relation."""
        properties = self.properties
        return Relation(
            label=self.type, source_id=self.source, target_id=self.target, properties=properties
        )

    @property
    def id(self) -> EdgeId:
        """Identity of the element."""
        return self[:3]

    @property
    def properties(self) -> dict[str, Any]:
        """Properties, parsed from the payload."""
        parsed: dict[str, Any] = {} if self.payload == "{}" else json.loads(self.payload)
        return parsed

    def stored(self) -> "Edge":
        """Return the edge as it is stored: without properties that are None, and principals.

        Raises:
            ConfigurationError: A part of its identity is empty, or the weight is not that of the
                properties.
        """
        check_words("an edge", source=self.source, type=self.type, target=self.target)
        properties = self.properties
        if self.weight != weight_of(properties):
            raise ConfigurationError(
                f"{self!r} has the weight {self.weight} and the properties {properties}; write "
                f"Edge.of(..., {{'weight': {self.weight}}}), with a weight above 0"
            )
        kept = _stored(properties)
        return self if len(kept) == len(properties) else Edge.of(*self.id, kept)

    def other(self, node_id: str) -> str:
        """Return the end that is not this node; for a loop the node itself."""
        return self.target if self.source == node_id else self.source

    def __str__(self) -> str:
        return f"{self.source} -{self.type}-> {self.target}"


def _stored(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {k: value for k, value in properties.items() if value is not None and k != ALLOWED_KEY}


def weight_of(properties: Mapping[str, object]) -> float:
    """Return the weight in the properties, or 1 if it is missing or not positive."""
    weight = properties.get(WEIGHT_KEY)
    if isinstance(weight, int | float) and is_number(weight) and weight > 0:
        return float(weight)
    return 1.0


def to_json(properties: Mapping[str, object] | list[object]) -> str:
    """Return properties as JSON; raise if a value is an object, or a number is not finite."""
    if not properties:
        return "{}"
    value = properties if isinstance(properties, list) else dict(properties)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"properties of nodes and edges must be JSON values, got {properties!r}: {error}"
        ) from error


class Direction(Enum):
    """Direction of a node's edges."""

    OUT = "out"
    IN = "in"
    ANY = "any"

    @property
    def reversed(self) -> "Direction":
        """Return the direction of the same edges, seen from their other end."""
        return {Direction.OUT: Direction.IN, Direction.IN: Direction.OUT}.get(self, self)


@dataclass(frozen=True, slots=True)
class Hop:
    """Edges that a hop follows: direction from its start, types, and number; None for all."""

    direction: Direction = Direction.ANY
    types: frozenset[str] | None = None
    fan_out: int | None = None

    def __post_init__(self) -> None:
        if self.fan_out is not None:
            check_count(self.fan_out, "fan_out")

    def first(self, node_id: str, edges: Iterable[Edge]) -> list[Edge]:
        """Return the edges to follow from a node, in the order that `GraphBackend` defines."""
        kept = [edge for edge in edges if self.allows(node_id, edge)]
        kept.sort(key=edge_order(node_id))
        return kept if self.fan_out is None else kept[: self.fan_out]

    def allows(self, node_id: str, edge: Edge) -> bool:
        """Return whether an edge of this node has the type and the direction."""
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
    """Nodes and edges of a graph that a scope sees."""

    nodes: list[GraphNode]
    edges: list[Edge]

    @classmethod
    def of(cls, nodes: Iterable[GraphNode], edges: Iterable[Edge]) -> "Contents":
        """Return the nodes and edges as lists, or raise `ConfigurationError`."""
        node, edge = "[GraphNode('pit', 'Process')]", "[Edge.of('pit', 'USES', 'crane')]"
        return cls(_listed(nodes, GraphNode, "nodes", node), _listed(edges, Edge, "edges", edge))


def _listed(rows: Iterable[T], kind: type[T], what: str, example: str) -> list[T]:
    of_type(rows, Iterable, what, instead=f"write {example}")
    return [of_type(row, kind, f"one of the {what}", instead=f"write {example}") for row in rows]


def check_words(what: str, **parts: object) -> None:
    """Raise `ConfigurationError` if a part is not a string, or empty."""
    for name, part in parts.items():
        if not isinstance(part, str) or not part:
            raise ConfigurationError(f"{what} needs a non-empty {name}, got {part!r}")
