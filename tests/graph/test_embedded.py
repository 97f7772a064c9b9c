"""The embedded graph in a directory."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llama_retrieval_ext.errors import StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.graph.elements import Contents, Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.expansion import expand
from llama_retrieval_ext.query import Scope


def test_nodes_and_edges_are_there_after_opening_again(tmp_path: Path) -> None:
    node = GraphNode("a", "X", "Ä", {"tenant_id": "t", "aliases": ["b"]}, embedding=[0.5, 1.0])
    with EmbeddedGraph(tmp_path) as graph:
        graph.upsert([node], [Edge.of("a", "R", "c", {"tenant_id": "t"})], source="d")
    with EmbeddedGraph(tmp_path) as graph:
        found = graph.nodes(["a"], scope=Scope("t"))["a"]
        assert (found, found.embedding) == (node, [0.5, 1.0])
        assert len(expand(graph, ["c"], max_hops=1, scope=Scope("t"))) == 2
        graph.delete_sources(["d"], scope=None)
    with EmbeddedGraph(tmp_path) as graph:
        assert graph.names(scope=None) == []


def test_a_graph_directory_cannot_be_opened_twice(tmp_path: Path) -> None:
    with EmbeddedGraph(tmp_path), pytest.raises(StoreUnavailableError, match="open already"):
        EmbeddedGraph(tmp_path)
    EmbeddedGraph(tmp_path).close()


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "graph.sqlite3").write_bytes(b"no database" * 100)
    with pytest.raises(StoreFormatError):
        EmbeddedGraph(tmp_path)


def test_a_read_for_principals_waits_for_a_write_without_blocking_the_event_loop() -> None:
    can_write, waited = threading.Event(), list[bool]()

    def rows() -> Iterator[tuple[None, Contents]]:
        waited.append(can_write.wait(5))
        yield None, Contents([GraphNode("b")], [])

    async def read(graph: EmbeddedGraph) -> dict[str, GraphNode]:
        reading = asyncio.create_task(graph.anodes(["a", "b"], scope=Scope(principals=[])))
        await asyncio.sleep(0)
        can_write.set()
        return await reading

    with EmbeddedGraph(":memory:") as graph, ThreadPoolExecutor(1) as writers:
        graph.upsert([GraphNode("a")])
        written = writers.submit(graph.write, rows())
        assert "a" in asyncio.run(read(graph))
        written.result()
    assert waited == [True]
