"""Passage graphs are kept by scope, within a limit of memory."""

from collections.abc import Iterator

import pytest
from llama_index.core.schema import NodeWithScore, TextNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.elements import Contents, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.passage_graphs import PassageGraphs, SeededWalk
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.scope import Scope
from tests.graph.passages import FILLER, graph_of


@pytest.fixture
def graph() -> Iterator[EmbeddedGraph]:
    texts = {"film": "A film by Anne Lister.", "Anne Lister": "Born in Halifax.", "Halifax": "Old."}
    nodes = [TextNode(text=text, metadata={"title": title}) for title, text in texts.items()]
    with EmbeddedGraph(":memory:") as opened:
        opened.upsert(*passage_rows(nodes, PassageLinks()))
        yield opened


def test_derived_links_are_kept_by_scope_until_something_is_written(graph: EmbeddedGraph) -> None:
    graphs = PassageGraphs(graph)
    first = graphs.of(None)
    assert graphs.of(None) is first
    assert graphs.of(Scope("acme")) is not first
    graph.upsert([GraphNode("x")], [])
    assert graphs.of(None) is not first


def test_a_refresh_while_links_are_derived_is_not_lost(
    graph: EmbeddedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = PassageGraphs(graph)
    read = graph.contents

    def contents(*, scope: Scope | None) -> Contents:
        found = read(scope=scope)
        graphs.refresh()
        return found

    monkeypatch.setattr(graph, "contents", contents)
    first = graphs.of(None)
    monkeypatch.undo()
    assert graphs.of(None) is not first


def test_derived_links_are_bounded_in_memory(graph: EmbeddedGraph) -> None:
    size = PassageGraphs(graph).of(None).size_bytes
    graphs = PassageGraphs(graph, max_bytes=size + 10)
    first = graphs.of(None)
    graphs.of(Scope("acme"))
    assert graphs.of(None) is not first
    with pytest.raises(ConfigurationError, match="max_bytes=10"):
        PassageGraphs(graph, max_bytes=10).of(None)


def test_of_passages_with_one_id_that_of_the_first_partition_is_linked() -> None:
    with EmbeddedGraph(":memory:") as graph:
        for kb_id in ("b", "a"):
            own = {"kb_id": kb_id, "title": f"Title {kb_id}"}
            graph.upsert([GraphNode("p", "text_chunk", properties=own, text="t")])
        links = PassageGraphs(graph).of(None)
    assert (links.ids, links.name(0)) == (["p"], "Title a")


def test_a_title_that_several_have_does_not_outweigh_the_seed() -> None:
    overviews = [(f"o{n}", "Overview", f"text {n}") for n in range(5)]
    graph = graph_of([*overviews, ("pump", "Pumps 7", "They lift water."), *FILLER])
    assert set(graph.named_titles("overview of lifting water")) == set(range(60, 65))
    seed = [
        NodeWithScore(node=TextNode(id_=id_), score=score)
        for id_, score in (("pump", 1.0), ("o3", 0.4))
    ]
    best = SeededWalk(graph, seed, [], Query("overview of lifting water")).best(3)
    assert list(best)[:2] == ["pump", "o3"]
