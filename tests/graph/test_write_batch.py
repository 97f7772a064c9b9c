"""A write records what each document says of a row that they share."""

from pathlib import Path

import pytest

from llama_retrieval_ext.graph.elements import Contents, Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.query import Scope

EVERYONE = Scope("acme", principals=[])


def said(word: str, *allowed: str) -> Contents:
    own: dict[str, object] = {"tenant_id": "acme", "word": word}
    own |= {"allowed": list(allowed)} if allowed else {}
    return Contents([GraphNode("crane", word, word, own)], [Edge.of("crane", "LIFTS", "beam", own)])


def shown(graph: EmbeddedGraph, scope: Scope | None) -> set[object]:
    nodes, edges = graph.contents(scope=scope)
    (crane,) = (node for node in nodes if node.id == "crane")
    names = {name for name, id_ in graph.names(scope=scope) if id_ == "crane"}
    words = {crane.label, crane.name, crane.properties["word"], *names}
    return words | {edge.properties["word"] for edge in edges}


@pytest.mark.parametrize("scope", [None, EVERYONE])
def test_what_a_deleted_document_said_of_a_row_is_gone_also_after_reopening(
    tmp_path: Path, scope: Scope | None
) -> None:
    with EmbeddedGraph(tmp_path) as graph:
        graph.replace_sources({"open": said("first")})
        graph.replace_sources({"secret": said("second", "group:hr")})
        assert shown(graph, None) == {"second"}
        assert shown(graph, EVERYONE) == {"first"}
        graph.delete_sources(["secret"], scope=None)
        assert shown(graph, scope) == {"first"}
    with EmbeddedGraph(tmp_path) as graph:
        assert shown(graph, scope) == {"first"}


def test_a_node_that_its_document_names_again_stays_as_hidden_as_it_was(tmp_path: Path) -> None:
    with EmbeddedGraph(tmp_path) as graph:
        graph.upsert(*said("secret", "group:hr"), source="d")
        graph.upsert([], [Edge.of("crane", "NEAR", "road", {"tenant_id": "acme"})], source="d")
        assert set(graph.nodes(["crane", "road"], scope=EVERYONE)) == {"road"}
    with EmbeddedGraph(tmp_path) as graph:
        assert set(graph.nodes(["crane", "road"], scope=EVERYONE)) == {"road"}


def test_a_reader_who_began_before_the_first_hidden_row_does_not_see_it() -> None:
    with EmbeddedGraph(":memory:") as graph:
        graph.replace_sources({"open": said("first")})
        (view,) = graph.views(EVERYONE)
        graph.replace_sources({"secret": said("second", "group:hr")})
        graph.upsert([GraphNode("safe", properties={"tenant_id": "acme", "allowed": ["group:hr"]})])
        assert set(view.nodes) == {"crane", "beam"}
        assert [edge.properties["word"] for edge in view.outgoing()] == ["first"]


def test_documents_of_one_write_keep_what_each_says(tmp_path: Path) -> None:
    with EmbeddedGraph(tmp_path) as graph:
        graph.replace_sources({"open": said("first"), "secret": said("second", "group:hr")})
        graph.upsert([], [Edge.of("crane", "NEAR", "beam", {"tenant_id": "acme"})], source="open")
    with EmbeddedGraph(tmp_path) as graph:
        assert graph.nodes(["crane"], scope=EVERYONE)["crane"].name == "first"
        assert (
            graph.nodes(["crane"], scope=Scope("acme", principals=["group:hr"]))["crane"].name
            == "second"
        )
