"""The embedded graph in a directory."""

import asyncio
import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llama_retrieval_ext.errors import StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.graph import sqlite_rows
from llama_retrieval_ext.graph.elements import Contents, Edge, GraphNode, Hop
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.expansion import expand
from llama_retrieval_ext.scope import Scope
from tests.programs import Program

EVERYONE = Scope("acme", principals=[])


def rows_of(word: str, *allowed: str) -> Contents:
    own: dict[str, object] = {"tenant_id": "acme", "word": word}
    own |= {"allowed": list(allowed)} if allowed else {}
    return Contents([GraphNode("crane", word, word, own)], [Edge.of("crane", "LIFTS", "beam", own)])


def shown(graph: EmbeddedGraph, scope: Scope | None) -> set[object]:
    nodes, edges = graph.contents(scope=scope)
    (crane,) = (node for node in nodes if node.id == "crane")
    names = {name for name, id_ in graph.names(scope=scope) if id_ == "crane"}
    words = {crane.label, crane.name, crane.properties["word"], *names}
    return words | {edge.properties["word"] for edge in edges}


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


@pytest.mark.parametrize(("format_", "advice"), [(1, "write the graph again"), (99, "upgrade")])
def test_a_graph_of_another_format_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: int, advice: str
) -> None:
    with monkeypatch.context() as other_version:
        other_version.setattr(sqlite_rows, "FORMAT", format_)
        EmbeddedGraph(tmp_path).close()
    with pytest.raises(StoreFormatError, match=f"has format {format_}, .*{advice}"):
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


@pytest.mark.parametrize("scope", [None, EVERYONE])
def test_what_a_deleted_document_said_of_a_row_is_gone_also_after_reopening(
    tmp_path: Path, scope: Scope | None
) -> None:
    with EmbeddedGraph(tmp_path) as graph:
        graph.replace_sources({"open": rows_of("first")})
        graph.replace_sources({"secret": rows_of("second", "group:hr")})
        assert shown(graph, None) == {"second"}
        assert shown(graph, EVERYONE) == {"first"}
        graph.delete_sources(["secret"], scope=None)
        assert shown(graph, scope) == {"first"}
    with EmbeddedGraph(tmp_path) as graph:
        assert shown(graph, scope) == {"first"}


def test_a_node_that_its_document_names_again_stays_as_hidden_as_it_was(tmp_path: Path) -> None:
    with EmbeddedGraph(tmp_path) as graph:
        graph.upsert(*rows_of("secret", "group:hr"), source="d")
        graph.upsert([], [Edge.of("crane", "NEAR", "road", {"tenant_id": "acme"})], source="d")
        assert set(graph.nodes(["crane", "road"], scope=EVERYONE)) == {"road"}
    with EmbeddedGraph(tmp_path) as graph:
        assert set(graph.nodes(["crane", "road"], scope=EVERYONE)) == {"road"}


def test_a_reader_who_began_before_the_first_hidden_row_does_not_see_it() -> None:
    with EmbeddedGraph(":memory:") as graph:
        graph.replace_sources({"open": rows_of("first")})
        (view,) = graph.views(EVERYONE)
        graph.replace_sources({"secret": rows_of("second", "group:hr")})
        graph.upsert([GraphNode("safe", properties={"tenant_id": "acme", "allowed": ["group:hr"]})])
        assert set(view.nodes) == {"crane", "beam"}
        assert [edge.properties["word"] for edge in view.outgoing()] == ["first"]


def test_documents_of_one_write_keep_what_each_says(tmp_path: Path) -> None:
    with EmbeddedGraph(tmp_path) as graph:
        graph.replace_sources({"open": rows_of("first"), "secret": rows_of("second", "group:hr")})
        graph.upsert([], [Edge.of("crane", "NEAR", "beam", {"tenant_id": "acme"})], source="open")
    with EmbeddedGraph(tmp_path) as graph:
        assert graph.nodes(["crane"], scope=EVERYONE)["crane"].name == "first"
        assert (
            graph.nodes(["crane"], scope=Scope("acme", principals=["group:hr"]))["crane"].name
            == "second"
        )


@pytest.mark.slow
@pytest.mark.parametrize("scope", [None, EVERYONE])
def test_a_node_that_is_written_again_is_there_for_every_reader(scope: Scope | None) -> None:
    with EmbeddedGraph(":memory:") as graph, ThreadPoolExecutor(1) as writers:
        graph.replace_sources({"open": rows_of("first"), "secret": rows_of("x", "group:hr")})
        writing = writers.submit(
            lambda: [graph.replace_sources({"open": rows_of(f"{n}")}) for n in range(200)]
        )
        while not writing.done():
            assert set(graph.nodes(["crane"], scope=scope)) == {"crane"}
            assert "crane" in {node.id for node in graph.contents(scope=scope).nodes}
        writing.result()


def test_a_source_is_its_whole_name_also_after_a_nul() -> None:
    with EmbeddedGraph(":memory:") as graph:
        for source in ("a", "a\0b"):
            own = [GraphNode(f"{source}-1"), GraphNode(f"{source}-2")]
            edge = Edge.of(own[0].id, "R", own[1].id)
            graph.upsert(own, [edge], source=source)
        assert len(graph.claims_of(["a\0b"])["a\0b"].edges) == 1
        graph.delete_sources(["a\0b"], scope=None)
        nodes, edges = graph.contents(scope=None)
        assert {node.id for node in nodes} == {"a-1", "a-2"}
        assert [edge.source for edge in edges] == ["a-1"]


WRITER = """
import sys
from llama_retrieval_ext.graph.elements import Edge
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
graph = EmbeddedGraph(sys.argv[1])
for batch in range(100_000):
    edges = [Edge.of(f"{batch}", "R", f"{batch}-{at}") for at in range(50)]
    graph.upsert([], edges, source=str(batch))
    print(batch, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_a_batch_is_there_as_a_whole_after_a_crash(tmp_path: Path) -> None:
    with Program(WRITER, tmp_path) as process:
        assert [process.stdout.readline() for _ in range(6)][-1] == "5\n"
        time.sleep(random.Random().random() / 20)
        process.kill()
        confirmed = process.stdout.read().split()
    with EmbeddedGraph(tmp_path) as graph:
        (view,) = graph.views(None)
        batches = {edge.source for edge in view.outgoing()}
        assert {len(neighbour) for neighbour in view.neighbours(batches, Hop()).values()} == {50}
        assert {str(at) for at in range(6)} | set(confirmed) <= batches


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "graph.sqlite3").write_bytes(b"no database" * 100)
    with pytest.raises(StoreFormatError):
        EmbeddedGraph(tmp_path)
