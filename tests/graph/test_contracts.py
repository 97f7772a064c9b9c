"""Every graph backend keeps the contract."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from llama_index.core.graph_stores.simple_labelled import SimplePropertyGraphStore

from llama_retrieval_ext.graph.backend import WritableGraph
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.open import PropertyGraph, open_graph
from llama_retrieval_ext.testing.graph_contract import (
    GraphContract,
    WritableGraphContract,
    sample_graph,
)
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


class TestGeneric(GraphContract):
    @pytest.fixture
    def graph(self) -> PropertyGraph:
        nodes, edges = sample_graph()
        store = SimplePropertyGraphStore()
        store.upsert_nodes([node.to_llama_index() for node in nodes])
        store.upsert_relations([edge.to_llama_index() for edge in edges])
        return PropertyGraph(store)


@pytest.mark.slow
class TestNeo4j(WritableGraphContract, GraphPermissions):
    turns = 6

    @pytest.fixture
    def graph(self, neo4j_url: str) -> Iterator[WritableGraph]:
        with closing(open_graph(neo4j_url)) as graph:
            graph.clear(scope=None)
            graph.upsert(*sample_graph())
            yield graph


def test_async_graph_methods_agree_with_sync_ones() -> None:
    async def found(graph: EmbeddedGraph) -> list[object]:
        await graph.aupsert([GraphNode("ada", "Person", "Ada")], [Edge("ada", "LIVES_IN", "york")])
        return [await graph.anames(), await graph.anodes(["york"])]

    with EmbeddedGraph(":memory:") as graph:
        assert asyncio.run(found(graph)) == [graph.names(), graph.nodes(["york"])]
