"""Every graph backend keeps the contract."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.graph_stores.simple_labelled import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import ChunkNode, EntityNode, LabelledNode, Relation

from llama_retrieval_ext.graph.backend import WritableGraph
from llama_retrieval_ext.graph.elements import GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.open import PropertyGraph, open_graph
from tests.graph.contract import GraphContract, WritableGraphContract, sample_graph
from tests.graph.permissions import GraphPermissions
from tests.servers.neo4j import neo4j_url

__all__ = ["neo4j_url"]


class TestEmbedded(WritableGraphContract, GraphPermissions):
    @pytest.fixture
    def graph(self, tmp_path: Path) -> Iterator[WritableGraph]:
        with EmbeddedGraph(tmp_path) as first:
            first.upsert(*sample_graph())
        with EmbeddedGraph(tmp_path) as graph:
            yield graph


class NamedEntity(EntityNode):
    """An entity with an id different from its name."""

    id_: str

    @property
    def id(self) -> str:
        return self.id_


def in_llama_index(node: GraphNode) -> LabelledNode:
    own: dict[str, Any] = {"label": node.label, "properties": dict(node.properties), "id_": node.id}
    return ChunkNode(text=node.text, **own) if node.text else NamedEntity(name=node.name, **own)


class TestGeneric(GraphContract):
    @pytest.fixture
    def graph(self) -> PropertyGraph:
        nodes, edges = sample_graph()
        rows = [(*edge.id, edge.properties) for edge in edges]
        store = SimplePropertyGraphStore()
        store.upsert_nodes(list(map(in_llama_index, nodes)))
        store.upsert_relations(
            [Relation(source_id=s, label=t, target_id=o, properties=p) for s, t, o, p in rows]
        )
        return PropertyGraph(store)


@pytest.mark.slow
class TestNeo4j(WritableGraphContract, GraphPermissions):
    @pytest.fixture
    def graph(self, neo4j_url: str) -> Iterator[WritableGraph]:
        with closing(open_graph(neo4j_url)) as graph:
            graph.clear(scope=None)
            graph.upsert(*sample_graph())
            yield graph
