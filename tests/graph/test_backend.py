"""A graph does its work when its methods are called, and its plans are for engines."""

import asyncio
from inspect import signature

from llama_retrieval_ext.graph.backend import GraphBackend, WritableGraph
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph


def test_async_graph_methods_agree_with_sync_ones() -> None:
    async def found(graph: EmbeddedGraph) -> list[object]:
        await graph.aupsert([GraphNode("ada", "Person", "Ada")], [Edge("ada", "LIVES_IN", "york")])
        return [await graph.anames(), await graph.anodes(["york"])]

    with EmbeddedGraph(":memory:") as graph:
        assert asyncio.run(found(graph)) == [graph.names(), graph.nodes(["york"])]


def test_no_method_but_a_plan_returns_a_call() -> None:
    public = [name for name in dir(WritableGraph) if not name.startswith(("_", "plan_"))]
    assert {"nodes", "anodes", "upsert", "aupsert", "clear", "aclear"} <= set(public)
    for name in public:
        method = getattr(WritableGraph, name)
        if callable(method):
            assert "Call[" not in str(signature(method)), name
            assert method.__doc__, name
    assert GraphBackend.nodes.__name__ == "nodes"
