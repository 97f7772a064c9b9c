"""Passage graphs are kept by scope, within a limit of memory."""

import random
from collections.abc import Iterator

import pytest
from llama_index.core.schema import NodeWithScore, TextNode

from llama_retrieval_ext import Query, Scope
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph import evidence as module
from llama_retrieval_ext.graph.elements import Contents, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.evidence import TextEvidence
from llama_retrieval_ext.graph.passage_graph import PassageGraph
from llama_retrieval_ext.graph.passage_graphs import PassageGraphs, SeededWalk
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from tests.graph.passages import FILLER, graph_of
from tests.quick import trials


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


TITLES = ("Anne Lister", "Overview", "Night Train (film)", "Beta Gamma", "安全生产法", "Night")


PIECES = (
    *("Anne Lister", "anne lister", "Night Train", "the night", "overview", "Alpha Beta Gamma"),
    *(
        "beta gamma",
        "alpha beta",
        "安全生产法",
        "《安全生产法》",
        "深基坑支护",
        "基坑支护",
        "It met",
    ),
)


def random_passage(rng: random.Random, id_: str) -> GraphNode:
    own = {"title": rng.choice(TITLES), "ref_doc_id": rng.choice([id_, id_, "common"])}
    return GraphNode(id_, "text_chunk", "", own, " ".join(rng.choices(PIECES, k=4)))


@pytest.mark.slow
def test_links_brought_up_to_date_are_those_derived_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW", 2)  # so that limits move with so few passages
    monkeypatch.setattr(module, "_SHARE", 3)
    links = PassageLinks()
    for seed in range(trials(20)):
        rng = random.Random(seed)
        nodes: dict[str, GraphNode] = {}
        evidence = TextEvidence(links)
        for _ in range(8):
            for id_ in rng.sample([f"p{n:02}" for n in range(16)], rng.randint(1, 6)):
                if nodes.pop(id_, None) is None or rng.random() < 0.3:
                    nodes[id_] = random_passage(rng, id_)
            listed = rng.sample(list(nodes.values()), len(nodes))
            updated = PassageGraph(listed, [], links, evidence=evidence)
            fresh = TextEvidence(links)
            anew = PassageGraph(nodes.values(), [], links, evidence=fresh)
            assert said(evidence) == said(fresh)
            assert (updated.ids, updated.terms) == (anew.ids, anew.terms)
            assert (updated.transitions != anew.transitions).nnz == 0
            query = "Who met Anne Lister beside the Night Train? overview 安全生产法"
            assert updated.named_titles(query) == anew.named_titles(query)
            assert updated.named_terms(query) == anew.named_terms(query)


def said(evidence: TextEvidence) -> object:
    """Return all that evidence says."""
    counts = evidence.phrase_counts()
    having = {phrase: evidence.having(phrase) for phrase in counts}
    assert counts == {phrase: len(own) for phrase, own in having.items()}
    return evidence.passages, evidence.bearers, evidence.mentions, having
