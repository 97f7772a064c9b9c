"""A graph does its work when its methods are called, and its plans are for engines."""

import asyncio

from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph


def test_async_graph_methods_agree_with_sync_ones() -> None:
    async def found(graph: EmbeddedGraph) -> list[object]:
        await graph.aupsert([GraphNode("ada", "Person", "Ada")], [Edge("ada", "LIVES_IN", "york")])
        return [await graph.anames(), await graph.anodes(["york"])]

    with EmbeddedGraph(":memory:") as graph:
        assert asyncio.run(found(graph)) == [graph.names(), graph.nodes(["york"])]
