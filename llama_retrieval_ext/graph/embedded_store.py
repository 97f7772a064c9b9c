"""`EmbeddedPropertyGraphStore`: the embedded graph as a LlamaIndex property graph store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Self

from llama_index.core.graph_stores.types import (
    TRIPLET_SOURCE_KEY,
    LabelledNode,
    PropertyGraphStore,
    Relation,
    Triplet,
)
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_retrieval_ext.checks import check_count
from llama_retrieval_ext.errors import ConfigurationError, UnsupportedModeError
from llama_retrieval_ext.filters import matches, parse_filters
from llama_retrieval_ext.formulas.cosine import cosines, matrix
from llama_retrieval_ext.graph.adjacency import Adjacency
from llama_retrieval_ext.graph.elements import Contents, Edge, GraphNode, Hop
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.expansion import expand
from llama_retrieval_ext.scope import Scope, check_scope

_REF_DOC_KEYS = ("ref_doc_id", "doc_id", "document_id")


class EmbeddedPropertyGraphStore(PropertyGraphStore):
    """A LlamaIndex property graph store on disk, without a server.

    ``PropertyGraphIndex`` writes to it. It corrects errors of ``SimplePropertyGraphStore``: an
    empty list of ids gives nothing, all properties must match, `get_rel_map` is a breadth-first
    search in both directions, and deleting a node removes only the node and its relations.

    Args:
        graph: An open graph, or a directory; ``:memory:`` for a graph that is lost when
            closed.
        scope: The rows that it reads and writes; None for all. A ``PropertyGraphIndex`` of a tenant
            needs a scope, because the index looks up entities by id alone.

    Examples:
        >>> from llama_index.core.graph_stores.types import EntityNode
        >>> with EmbeddedPropertyGraphStore(":memory:") as store:
        ...     store.upsert_nodes([EntityNode(name="pit"), EntityNode(name="crane")])
        ...     [node.id for node in store.get(ids=["pit"])]
        ['pit']

    """

    supports_structured_queries = False
    supports_vector_queries = True

    def __init__(self, graph: EmbeddedGraph | str | Path, *, scope: Scope | None = None) -> None:
        self.graph = graph if isinstance(graph, EmbeddedGraph) else EmbeddedGraph(graph)
        self.scope = None if scope is None else check_scope(scope)

    def for_scope(self, scope: Scope) -> "EmbeddedPropertyGraphStore":
        """Return the same graph for one tenant or knowledge base."""
        return EmbeddedPropertyGraphStore(self.graph, scope=check_scope(scope).narrowed(self.scope))

    @property
    def client(self) -> EmbeddedGraph:
        """The wrapped graph."""
        return self.graph

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the graph."""
        self.graph.close()

    def get(
        self, properties: dict[str, Any] | None = None, ids: list[str] | None = None
    ) -> list[LabelledNode]:
        """Return the nodes with these ids and all of these properties; no ids give no nodes."""
        if ids is None:
            nodes: Iterable[GraphNode] = self._every()
        else:
            nodes = self.graph.nodes(ids, scope=self.scope).values()
        return [node.to_llama_index() for node in nodes if _has(node.properties, properties)]

    def get_triplets(
        self,
        entity_names: list[str] | None = None,
        relation_names: list[str] | None = None,
        properties: dict[str, Any] | None = None,
        ids: list[str] | None = None,
    ) -> list[Triplet]:
        """Return the triplets that match all arguments; none without arguments.

        An end has one of the names, and one an id; an end or the relation has the properties.
        """
        if not (entity_names or relation_names or properties or ids):
            return []
        ends = [*(entity_names or ()), *(ids or ())]
        if ends:
            neighbours = self.graph.neighbours(ends, Hop(), scope=self.scope)
            edges = _once(edge for incident in neighbours.values() for edge in incident)
        else:
            edges = self._every_edge()
        if relation_names:
            edges = [edge for edge in edges if edge.type in relation_names]
        triplets = self._triplets(edges)
        for named in (entity_names, ids) if entity_names and ids else ():
            triplets = [t for t in triplets if {t[0].id, t[2].id} & set(named or ())]
        return [t for t in triplets if any(_has(part.properties, properties) for part in t)]

    def get_rel_map(
        self,
        graph_nodes: list[LabelledNode],
        depth: int = 2,
        limit: int = 30,
        ignore_rels: list[str] | None = None,
    ) -> list[Triplet]:
        """Return the triplets around nodes, nearest first, each once, in both directions.

        Relations in ``ignore_rels`` are walked along and then left out.
        """
        check_count(limit, "limit", least=0)
        if check_count(depth, "depth", least=0) == 0:
            return []
        seeds = [node.id for node in graph_nodes]
        reached = expand(self.graph, seeds, max_hops=depth, hop=Hop(), scope=self.scope)
        inner = [id_ for id_, distance in reached.distances.items() if distance < depth]
        ignored = set(ignore_rels or ())
        edges = {
            edge.id: edge
            for incident in self.graph.neighbours(inner, scope=self.scope).values()
            for edge in incident
            if edge.type not in ignored
        }
        return self._triplets(list(edges.values())[:limit])

    def upsert_nodes(self, nodes: Sequence[LabelledNode]) -> None:
        """Insert nodes, or replace those with the same id in their partition."""
        self._write([GraphNode.from_llama_index(node) for node in nodes], [])

    def upsert_relations(self, relations: list[Relation]) -> None:
        """Insert or replace relations; a missing end becomes an entity."""
        self._write([], [Edge.from_llama_index(relation) for relation in relations])

    def delete(
        self,
        entity_names: list[str] | None = None,
        relation_names: list[str] | None = None,
        properties: dict[str, Any] | None = None,
        ids: list[str] | None = None,
    ) -> None:
        """Delete nodes by name, id or properties with their relations, or relations by type.

        If only ``relation_names`` are passed, or these with names of entities at their ends, only
        relations are deleted; the entities stay.
        """
        if relation_names:
            triplets = self.get_triplets(entity_names, relation_names, properties, ids)
            edges = [Edge(t[0].id, t[1].label, t[2].id) for t in triplets]
            self.graph.delete_edges(edges, scope=self.scope)
            return
        node_ids = [*(entity_names or ()), *(ids or ())]
        if properties:
            node_ids += [node.id for node in self._every() if _has(node.properties, properties)]
        self.graph.delete_nodes(node_ids, scope=self.scope)

    def delete_llama_nodes(
        self, node_ids: list[str] | None = None, ref_doc_ids: list[str] | None = None
    ) -> None:
        """Delete chunks by id or document, with the rows that have no other source chunk."""
        chunks = set(node_ids or ())
        if ref_doc_ids:
            documents = set(ref_doc_ids)
            chunks |= {
                node.id
                for node in self._every()
                if node.is_passage
                and any(node.properties.get(key) in documents for key in _REF_DOC_KEYS)
            }
        sources = sorted(chunks | set(ref_doc_ids or ()))
        self.graph.delete_sources(sources, scope=self.scope)
        self.graph.delete_nodes(sorted(chunks), scope=self.scope)

    def vector_query(
        self,
        query: VectorStoreQuery,
        **kwargs: Any,  # noqa: ANN401, ARG002 - LlamaIndex's signature
    ) -> tuple[list[LabelledNode], list[float]]:
        """Return the entities nearest to an embedding by cosine, best first, ties by id.

        Raises:
            ConfigurationError: The query has no embedding.
        """
        if query.query_embedding is None:
            raise ConfigurationError("a vector query needs a query_embedding, got None")
        condition = None if query.filters is None else parse_filters(query.filters)
        nodes = [
            node
            for node in self._every()
            if node.embedding is not None
            and not node.is_passage
            and matches(condition, node.properties)
        ]
        if not nodes:
            return [], []
        rows = matrix([node.embedding or () for node in nodes], dim=len(query.query_embedding))
        scores = map(float, cosines(rows, query.query_embedding))
        best = sorted(zip(scores, nodes, strict=True), key=lambda pair: (-pair[0], pair[1].id))
        best = best[: query.similarity_top_k]
        return [node.to_llama_index() for _, node in best], [score for score, _ in best]

    def structured_query(
        self,
        query: str,  # noqa: ARG002 - LlamaIndex's signature
        param_map: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> NoReturn:
        """Raise: the embedded graph has no query language.

        Raises:
            UnsupportedModeError: Always.
        """
        raise UnsupportedModeError(
            "the embedded graph has no Cypher; use rules, or a graph on Neo4j (neo4j://)"
        )

    def get_schema(
        self,
        refresh: bool = False,  # noqa: ARG002, FBT001, FBT002 - LlamaIndex's signature
    ) -> dict[str, list[str]]:
        """Return the labels of nodes and the types of relations."""
        labels = {entry.label for view in self._views() for entry in view.nodes.values()}
        types = {edge.type for edge in self._every_edge()}
        return {"labels": sorted(labels), "types": sorted(types)}

    def _views(self) -> list[Adjacency]:
        return self.graph.views(self.scope)

    def _every(self) -> Iterable[GraphNode]:
        ids = sorted({id_ for view in self._views() for id_ in view.nodes})
        return self.graph.nodes(ids, scope=self.scope).values()

    def _every_edge(self) -> list[Edge]:
        return _once(edge for view in self._views() for edge in view.outgoing())

    def _triplets(self, edges: Sequence[Edge]) -> list[Triplet]:
        ids = [id_ for edge in edges for id_ in (edge.source, edge.target)]
        nodes = self.graph.nodes(ids, scope=self.scope)
        return [
            (
                nodes[edge.source].to_llama_index(),
                edge.to_llama_index(),
                nodes[edge.target].to_llama_index(),
            )
            for edge in edges
            if edge.source in nodes and edge.target in nodes
        ]

    def _write(self, nodes: Sequence[GraphNode], edges: Sequence[Edge]) -> None:
        if self.scope is not None:
            stamp = self.scope.metadata()
            nodes = [replace(node, properties={**node.properties, **stamp}) for node in nodes]
            edges = [Edge.of(*edge.id, {**edge.properties, **stamp}) for edge in edges]
        self.graph.write(
            [
                *((_source_of(node), Contents([node], [])) for node in nodes),
                *((_source_of(edge), Contents([], [edge])) for edge in edges),
            ]
        )


def _once(edges: Iterable[Edge]) -> list[Edge]:
    """Return edges ordered by their identity, each once."""
    by_id = {edge.id: edge for edge in edges}
    return [by_id[id_] for id_ in sorted(by_id)]


def _source_of(row: GraphNode | Edge) -> str | None:
    """Return the chunk that a row was extracted from; a chunk is its own source."""
    if isinstance(row, GraphNode) and row.is_passage:
        return row.id
    source = row.properties.get(TRIPLET_SOURCE_KEY)
    return source if isinstance(source, str) else None


def _has(properties: Mapping[str, Any], expected: Mapping[str, Any] | None) -> bool:
    return all(properties.get(key) == value for key, value in (expected or {}).items())
