"""Rows of the embedded graph: their sources, and what a crash leaves."""

import random
import sys
import time
from pathlib import Path

import pytest

from llama_retrieval_ext.graph.elements import Edge, GraphNode, Hop
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from tests.programs import Program


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
