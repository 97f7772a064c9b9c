"""Walks over passages from a seed."""

from llama_index.core.schema import NodeWithScore, TextNode

from llama_retrieval_ext.graph.seeded_walk import SeededWalk
from llama_retrieval_ext.query import Query
from tests.graph.passages import FILLER, graph_of


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
