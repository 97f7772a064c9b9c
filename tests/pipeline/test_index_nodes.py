"""Index nodes in what a basic retriever finds: followed once, to the end, and never in circles."""

import asyncio
from collections.abc import Sequence

import pytest
from llama_index.core.base.response.schema import Response
from llama_index.core.indices.vector_store import VectorStoreIndex
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.schema import (
    BaseNode,
    IndexNode,
    NodeWithScore,
    QueryBundle,
    QueryType,
    TextNode,
)
from pydantic import Field

from llama_retrieval_ext import RRF, Hit, Query, Retriever, Scope, VectorRetriever, branches
from llama_retrieval_ext.errors import ConfigurationError, ScopeViolationError
from llama_retrieval_ext.execution import Plan
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever, FixedRetriever
from tests.cases import cases
from tests.meeting import Meeting, MeetsAsync
from tests.searching import Searched

ACME = Scope("acme")
OURS, THEIRS = {"tenant_id": "acme"}, {"tenant_id": "globex"}


class Nodes(Retriever):
    """Finds these nodes with these scores."""

    def __init__(self, *scored: tuple[BaseNode, float], name: str = "nodes") -> None:
        super().__init__(top_k=10, name=name)
        self.scored = scored
        self.calls = 0

    def plan(self, query: Query) -> Plan[list[Hit]]:
        yield from ()
        self.calls += 1
        return [Hit(node=node, score=score, source=self.name) for node, score in self.scored]


def to(target: object, id_: str = "door") -> IndexNode:
    return IndexNode(id_=f"to {id_}", text=f"see {id_}", index_id=id_, obj=target)


def scores(hits: Sequence[NodeWithScore]) -> list[tuple[str, float | None]]:
    return [(hit.node.node_id, hit.score) for hit in hits]


class Engine(CustomQueryEngine):
    """Answers with the same words, drawn from the same nodes."""

    words: str = "twenty-five days"
    sources: list[NodeWithScore] = Field(default_factory=list)
    queries: list[str] = Field(default_factory=list)
    threads: list[bool] = Field(default_factory=list)

    def custom_query(self, query_str: str) -> Response:
        self.queries.append(query_str)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.threads.append(True)
        return Response(self.words, source_nodes=self.sources)


BIG = TextNode(id_="big", text="the whole section")


@cases(
    ("target", "score", "expected"),
    [
        (BIG, 0.7, [("big", 0.7, "door"), ("own", 0.5, "nodes")]),
        (BIG, 0.0, [("own", 0.5, "nodes"), ("big", 0.0, "door")]),
        (NodeWithScore(node=BIG, score=0.2), 0.7, [("own", 0.5, "nodes"), ("big", 0.2, "door")]),
        (
            FixedRetriever([("x", 0.9), ("y", 0.4)], name="inner"),
            0.7,
            [("x", 0.9, "inner"), ("own", 0.5, "nodes"), ("y", 0.4, "inner")],
        ),
        (FakeRetriever([("x", 0.9)]), 0.7, [("x", 0.9, "door"), ("own", 0.5, "nodes")]),
    ],
)
def test_an_index_node_is_replaced_by_its_target(
    searched: Searched, target: object, score: float, expected: list[tuple[str, float, str]]
) -> None:
    hits = searched(Nodes((to(target), score), (TextNode(id_="own"), 0.5)), "query").hits
    assert [(hit.node_id, hit.score, hit.source) for hit in hits] == expected


def test_an_index_node_is_replaced_by_the_answer_of_its_query_engine(searched: Searched) -> None:
    engine = Engine()
    (hit,) = searched(Nodes((to(engine, "faq"), 0.7)), "how many days?").hits
    assert (hit.node.node_id, hit.score, hit.source) == ("faq#answer", 0.7, "faq")
    assert hit.node.get_content() == "twenty-five days"
    assert engine.queries == ["how many days?"]
    assert engine.threads == [True]  # it is async by name only, and must not block the loop


def test_an_index_node_that_leads_to_its_own_retriever_is_not_followed_again(
    searched: Searched,
) -> None:
    circle = Nodes((TextNode(id_="own"), 0.5))
    door = to(circle, "self")
    circle.scored = (*circle.scored, (door, 0.9))
    result = searched(circle, "query")
    assert scores(result.hits) == [("to self", 0.9), ("own", 0.5)]
    assert {part.reason for part in result.degraded} == {"leads back to itself"}
    assert circle.calls == 2


def test_followed_hits_are_ordered_and_cut_to_top_k(searched: Searched) -> None:
    inner = FixedRetriever([(f"n{n}", n / 10) for n in range(9)], top_k=9)
    found = Nodes((to(inner), 0.7), (TextNode(id_="own"), 0.75))
    result = searched(found, Query("query", top_k=3))
    assert scores(result.hits) == [("n8", 0.8), ("own", 0.75), ("n7", 0.7)]


def test_sibling_index_nodes_are_followed_concurrently(searched: Searched) -> None:
    meeting = Meeting(4)
    inner = [MeetsAsync([(f"x{n}", 0.5)], meeting) for n in range(4)]
    found = Nodes(*((to(each, f"door {n}"), 0.9) for n, each in enumerate(inner)))
    assert sorted(node_ids(searched(found, "query").hits)) == ["x0", "x1", "x2", "x3"]


def test_a_target_of_several_index_nodes_is_searched_once(searched: Searched) -> None:
    inner = FixedRetriever([("x", 0.9)])
    twice = IndexNode(id_="also", text="also", index_id="door", obj=inner)
    hits = searched(Nodes((to(inner), 0.7), (twice, 0.6)), "query").hits
    assert scores(hits) == [("x", 0.9)]
    assert len(inner.calls) == 1


def test_a_failing_target_leaves_the_index_node(searched: Searched) -> None:
    broken = FixedRetriever(error=ConnectionError("down"))
    found = Nodes((to(broken, "broken"), 0.7), (TextNode(id_="own"), 0.5))
    result = searched(found, "query")
    assert scores(result.hits) == [("to broken", 0.7), ("own", 0.5)]
    assert [(part.where, part.reason) for part in result.degraded] == [
        ("broken", "ConnectionError: down")
    ]


@pytest.mark.parametrize(
    "error", [ConfigurationError("no model"), ScopeViolationError("a leak", ("x",))]
)
def test_configuration_errors_and_leaks_of_a_target_are_raised(
    searched: Searched, error: Exception
) -> None:
    with pytest.raises(type(error)):
        searched(Nodes((to(FixedRetriever(error=error)), 0.7)), Query("query", scope=ACME))


def test_an_index_node_without_a_target_stays(searched: Searched) -> None:
    unknown = IndexNode(id_="lost", text="lost", index_id="nowhere")
    result = searched(Nodes((unknown, 0.7)), "query")
    assert node_ids(result.hits) == ["lost"]
    assert result.degraded == ()  # a RecursiveRetriever above may know it


def test_targets_outside_the_scope_are_dropped(searched: Searched) -> None:
    ours = TextNode(id_="ours", metadata=OURS)
    theirs = TextNode(id_="theirs", metadata=THEIRS)
    rows = [("r-ours", 0.4, "text", OURS), ("r-theirs", 0.9, "text", THEIRS)]
    found = Nodes(
        (to(ours, "ours"), 0.5),
        (to(theirs, "theirs"), 0.9),
        (to(NodeWithScore(node=theirs, score=1.0), "scored"), 0.9),
        (to(FixedRetriever(rows, name="own"), "own"), 0.8),
        (to(FakeRetriever(rows), "foreign"), 0.8),
    )
    result = searched(found, Query("query", scope=ACME))
    assert node_ids(result.hits) == ["ours", "r-ours"]
    assert all("theirs" not in hit.node.node_id for hit in result.hits)
    everything = searched(found, "query")
    assert {"theirs", "r-theirs"} <= set(node_ids(everything.hits))


@cases("sources", [[], [OURS, THEIRS], [THEIRS], [{}]])
def test_an_answer_from_sources_outside_the_scope_is_dropped(
    searched: Searched, sources: list[dict[str, str]]
) -> None:
    drawn = [NodeWithScore(node=TextNode(text="x", metadata=source)) for source in sources]
    engine = Engine(sources=drawn)
    found = Nodes((to(engine, "faq"), 0.7))
    result = searched(found, Query("query", scope=ACME))
    assert node_ids(result.hits) == ["to faq"]
    assert "outside the query's scope" in result.degraded[0].reason
    assert node_ids(searched(found, "query").hits) == ["faq#answer"]


def test_an_answer_from_sources_within_the_scope_is_kept(searched: Searched) -> None:
    drawn = [NodeWithScore(node=TextNode(text="x", metadata=OURS))]
    found = Nodes((to(Engine(sources=drawn), "faq"), 0.7))
    result = searched(found, Query("query", scope=ACME))
    assert node_ids(result.hits) == ["faq#answer"]
    assert result.degraded == ()


class WritingEngine(Engine):
    """Writes into the query it gets, as engines over LlamaIndex's vector retriever do."""

    def query(self, str_or_query_bundle: QueryType) -> Response:
        assert isinstance(str_or_query_bundle, QueryBundle)
        assert str_or_query_bundle.embedding is None
        str_or_query_bundle.embedding = [1.0]
        return Response("scribbled", source_nodes=[])

    async def aquery(self, str_or_query_bundle: QueryType) -> Response:
        return self.query(str_or_query_bundle)


def test_query_engines_do_not_share_the_embedding_of_the_query(searched: Searched) -> None:
    found = Nodes((to(WritingEngine(), "one"), 0.7), (to(WritingEngine(), "two"), 0.6))
    query = Query("query", embedding=[0.5])
    result = searched(found, query)
    assert node_ids(result.hits) == ["one#answer", "two#answer"]
    assert result.degraded == ()
    assert query.embedding == [0.5]


@pytest.mark.parametrize("kind", ["index", "store"])
def test_index_nodes_of_an_index_and_of_the_embedded_store(kind: str, searched: Searched) -> None:
    model = FakeEmbedding()
    inner = FixedRetriever([("inner", 0.05)], name="inner")
    nodes: list[BaseNode] = [
        TextNode(id_="own", text="annual leave"),
        IndexNode(id_="door", text="annual leave and more", index_id="more", obj=inner),
    ]
    if kind == "index":
        index = VectorStoreIndex(nodes, embed_model=model, objects=[nodes[1]])  # type: ignore[list-item]
        retriever = VectorRetriever(index)
        assert node_ids(searched(retriever, "annual leave").hits) == ["own", "inner"]
        return
    for node in nodes:
        node.embedding = model.get_text_embedding(node.get_content())
    with EmbeddedVectorStore(":memory:") as store:
        nodes[1].obj = None  # type: ignore[attr-defined]  # a store keeps no live objects
        store.add(nodes)
        retriever = VectorRetriever(store, embed_model=model)
        retriever.object_map = {"more": inner}
        assert node_ids(searched(retriever, "annual leave").hits) == ["own", "inner"]


def test_a_composite_does_not_follow_index_nodes_again(searched: Searched) -> None:
    inner = FixedRetriever([("x", 0.9)])
    fused = branches(Nodes((to(inner), 0.7)), FixedRetriever([("y", 0.1)])) >> RRF()
    result = searched(fused, "query")
    assert node_ids(result.hits) == ["x", "y"]
    assert len(inner.calls) == 1
