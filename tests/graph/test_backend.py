"""A graph does its work when its methods are called, and its plans are for engines."""

import asyncio
from inspect import signature

from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.backend import GraphBackend, WritableGraph
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.query import Scope


def test_upsert_writes_at_once() -> None:
    with EmbeddedGraph(":memory:") as graph:
        graph.upsert([GraphNode("ada", "Person", "Ada")])
        graph.upsert([], [Edge("ada", "LIVES_IN", "york")])
        assert graph.nodes(["ada"])["ada"].name == "Ada"
        assert graph.neighbours(["ada"])["ada"] == [Edge("ada", "LIVES_IN", "york")]
        assert graph.names() == [("Ada", "ada"), ("york", "york")]


def test_async_graph_methods_agree_with_sync_ones() -> None:
    async def found(graph: EmbeddedGraph) -> list[object]:
        await graph.aupsert([GraphNode("ada", "Person", "Ada")], [Edge("ada", "LIVES_IN", "york")])
        return [await graph.anames(), await graph.anodes(["york"])]

    with EmbeddedGraph(":memory:") as graph:
        assert asyncio.run(found(graph)) == [graph.names(), graph.nodes(["york"])]


def test_an_engine_overrides_the_plan_and_not_the_method() -> None:
    class Silent(EmbeddedGraph):
        def plan_names(self, *, scope: Scope | None = None) -> Call[list[tuple[str, str]]]:
            del scope
            return Call(list)

    with Silent(":memory:") as graph:
        graph.upsert([GraphNode("ada")])
        assert graph.names() == []


def test_no_method_but_a_plan_returns_a_call() -> None:
    public = [name for name in dir(WritableGraph) if not name.startswith(("_", "plan_"))]
    assert {"nodes", "anodes", "upsert", "aupsert", "clear", "aclear"} <= set(public)
    for name in public:
        method = getattr(WritableGraph, name)
        if callable(method):
            assert "Call[" not in str(signature(method)), name
            assert method.__doc__, name
    assert GraphBackend.nodes.__name__ == "nodes"
