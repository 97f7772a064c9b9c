"""References followed from retriever to node, retriever and query engine."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest
from llama_index.core.base.response.schema import Response
from llama_index.core.indices.vector_store import VectorStoreIndex
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.schema import BaseNode, IndexNode, NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext import Query, Scope
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.index_nodes import ScorePolicy
from llama_retrieval_ext.retrievers import RecursiveRetriever
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever, FixedRetriever
from tests.cases import cases
from tests.quick import is_async
from tests.retrievers.references import finding
from tests.searching import Searched


class Linked(FakeRetriever):
    """A foreign retriever; what it finds may refer to other ids, written ``->id``."""

    def __init__(self, *rows: tuple[str, float | None], delay_s: float = 0.0) -> None:
        super().__init__(rows, delay_s=delay_s)
        self.hits = [
            NodeWithScore(node=_node(id_, of=str(id(self))), score=score) for id_, score in rows
        ]


def _node(id_: str, *, of: str) -> BaseNode:
    if id_.startswith("->"):
        return IndexNode(id_=f"{id_} of {of}", text=id_, index_id=id_[2:])
    return TextNode(id_=id_, text=id_)


class Faq(CustomQueryEngine):
    answer: str = "25 days"

    def custom_query(self, query_str: str) -> str:
        return self.answer


def scores(hits: Sequence[NodeWithScore]) -> list[tuple[str, float | None]]:
    return [(hit.node.node_id, hit.score) for hit in hits]


def test_references_are_followed_to_nodes_retrievers_and_engines(searched: Searched) -> None:
    retriever = RecursiveRetriever(
        "root",
        {
            "root": Linked(("own", 0.5), ("->more", 0.9), ("->section", 0.4), ("->faq", 0.3)),
            "more": FixedRetriever([("m1", 0.8), ("m2", 0.1)]),
        },
        {"faq": Faq()},
        {"section": TextNode(id_="section", text="the whole section")},
    )
    result = searched(retriever, "how many days?")
    assert scores(result.hits) == [
        ("m1", 0.8),
        ("own", 0.5),
        ("section", 0.4),
        ("faq#answer", 0.3),
        ("m2", 0.1),
    ]
    assert result.degraded == ()
    answer = result.hits[3].node.get_content()
    assert answer == "Query: how many days?\nResponse: 25 days"  # LlamaIndex's template


def test_query_response_tmpl_formats_answers_of_engines() -> None:
    root = Linked(("->faq", 0.9))
    retriever = RecursiveRetriever(
        "root", {"root": root}, {"faq": Faq(answer="{5} days")}, query_response_tmpl="{response}!"
    )
    assert retriever.retrieve("query")[0].node.get_content() == "{5} days!"


def test_a_circle_of_references_ends_and_degrades_the_answer(searched: Searched) -> None:
    a = Linked(("in a", 0.5), ("->b", 0.9))
    b = Linked(("in b", 0.4), ("->a", 0.8))
    result = searched(RecursiveRetriever("a", {"a": a, "b": b}), "query")
    found = node_ids(result.hits)
    assert [id_ for id_ in found if "->" not in id_] == ["in a", "in b"]
    assert [(part.where, part.reason) for part in result.degraded] == [
        ("a", "leads back to itself")
    ]
    assert (len(a.calls), len(b.calls)) == (1, 1)


def test_an_unknown_index_id_degrades_the_answer_and_keeps_the_other_hits(
    searched: Searched,
) -> None:
    root = Linked(("own", 0.5), ("->lost", 0.9))
    result = searched(RecursiveRetriever("root", {"root": root}), "query")
    assert [hit.node.get_content() for hit in result.hits] == ["->lost", "own"]
    assert [(part.where, part.reason) for part in result.degraded] == [
        ("lost", "nothing is known under this id")
    ]


def test_references_are_followed_to_max_depth(searched: Searched) -> None:
    links = {f"r{n}": Linked((f"n{n}", 0.9), (f"->r{n + 1}", 0.8)) for n in range(9)}
    result = searched(RecursiveRetriever("r0", links, max_depth=3), "query")
    found = [id_ for id_ in node_ids(result.hits) if id_.startswith("n")]
    assert sorted(found) == ["n0", "n1", "n2", "n3"]
    assert [part.reason for part in result.degraded] == ["lies deeper than max_depth=3"]


def test_the_best_max_fan_out_references_are_followed(searched: Searched) -> None:
    targets = {f"t{n}": FixedRetriever([(f"n{n}", n / 10)]) for n in range(5)}
    root = Linked(*((f"->t{n}", n / 10) for n in range(5)))
    result = searched(RecursiveRetriever("root", {"root": root, **targets}, max_fan_out=2), "q")
    assert [target for target, each in targets.items() if each.calls] == ["t3", "t4"]
    assert len(result.hits) == 5
    assert len(result.degraded) == 3


def test_the_best_score_of_a_repeated_node_counts(searched: Searched) -> None:
    retriever = RecursiveRetriever(
        "root",
        {"root": Linked(("x", 0.1), ("->a", 0.05)), "a": FixedRetriever([("t", 0.95), ("x", 0.6)])},
    )
    assert scores(searched(retriever, "query").hits) == [("t", 0.95), ("x", 0.6)]


POLICIES: Mapping[ScorePolicy, dict[str, float]] = {
    "child": {"near": 0.5, "far": 0.4, "plain": 0.2},
    "parent": {"near": 0.8, "far": 0.8, "plain": 0.8},
    "product": {"near": 0.8 * 0.5, "far": 0.8 * 0.2 * 0.4, "plain": 0.8 * 0.2},
    "decayed": {"near": 0.5 * 0.5, "far": 0.4 * 0.5**2, "plain": 0.2 * 0.5},
}


@cases(("policy", "expected"), POLICIES.items())
def test_scores_of_parent_and_child_become_one_by_policy(
    searched: Searched, policy: ScorePolicy, expected: dict[str, float]
) -> None:
    retriever = RecursiveRetriever(
        "root",
        {
            "root": Linked(("->a", 0.8)),
            "a": Linked(("near", 0.5), ("->b", 0.2), ("->plain", 0.2)),
            "b": FixedRetriever([("far", 0.4)]),
        },
        node_dict={"plain": TextNode(id_="plain")},
        policy=policy,
        decay=0.5,
    )
    assert dict(scores(searched(retriever, "query").hits)) == pytest.approx(expected)


def test_the_best_path_to_a_node_counts_even_if_longer(searched: Searched) -> None:
    retriever = RecursiveRetriever(
        "root",
        {
            "root": Linked(("->goal", 0.1), ("->detour", 0.9)),
            "detour": Linked(("->goal", 0.8)),
            "goal": FixedRetriever([("x", 0.5)]),
        },
        policy="product",
    )
    best = {"x": 0.9 * 0.8 * 0.5}
    assert dict(scores(searched(retriever, "query").hits)) == pytest.approx(best)


def test_a_root_without_scores_keeps_its_order(searched: Searched) -> None:
    root = Linked(("z", None), ("->a", None), ("b", None))
    retriever = RecursiveRetriever("root", {"root": root}, node_dict={"a": TextNode(id_="a")})
    assert node_ids(searched(retriever, "query").hits) == ["z", "a", "b"]


def test_a_bound_scope_holds_on_every_reference(searched: Searched) -> None:
    ours, theirs = {"tenant_id": "acme"}, {"tenant_id": "globex"}

    links = [
        IndexNode(id_=f"to {id_}", text=id_, index_id=id_)
        for id_ in ("own", "foreign", "node", "engine")
    ]
    for link in links:
        link.metadata = ours

    class Leaky(CustomQueryEngine):
        def custom_query(self, query_str: str) -> Response:
            node = TextNode(text="secret", metadata=theirs)
            return Response("secret", source_nodes=[NodeWithScore(node=node)])

    rows = [("ours", 0.8, "ours", ours), ("theirs", 0.7, "secret", theirs)]
    retriever = RecursiveRetriever(
        "root",
        {"root": finding(*links), "own": FixedRetriever(rows), "foreign": FakeRetriever(rows)},
        {"engine": Leaky()},
        {"node": TextNode(id_="node", text="secret", metadata=theirs)},
    )
    bound = retriever.for_scope(Scope("acme"))
    result = searched(bound, "query")
    assert "ours" in node_ids(result.hits)
    assert all("secret" not in hit.node.get_content() for hit in result.hits)
    secrets = [
        hit for hit in searched(retriever, "query").hits if "secret" in hit.node.get_content()
    ]
    assert len(secrets) == 3


def test_recursive_retrievers_nest(searched: Searched) -> None:
    # Both know an id "more"; inside it means something else, and is not taken for a circle.
    inner = RecursiveRetriever(
        "root", {"root": Linked(("->more", 0.5)), "more": FixedRetriever([("deep", 0.7)])}
    )
    outer = RecursiveRetriever("root", {"root": Linked(("->more", 0.9)), "more": inner})
    result = searched(outer, "query")
    assert scores(result.hits) == [("deep", 0.7)]
    assert result.degraded == ()


def test_the_arguments_of_llama_indexs_recursive_retriever_work_unchanged() -> None:
    model = FakeEmbedding()
    chunks = [TextNode(id_="chunk", text="annual leave is 25 days")]
    chunk_retriever = VectorStoreIndex(chunks, embed_model=model).as_retriever()
    summary = IndexNode(id_="summary", text="everything on leave", index_id="leave")
    root = VectorStoreIndex([summary], embed_model=model).as_retriever(similarity_top_k=1)
    retriever = RecursiveRetriever(
        "vector",
        retriever_dict={"vector": root, "leave": chunk_retriever},
        query_engine_dict={},
        node_dict={},
        callback_manager=None,
        query_response_tmpl=None,
        verbose=False,
    )
    assert node_ids(retriever.retrieve("leave")) == ["chunk"]
    assert node_ids(asyncio.run(retriever.aretrieve(QueryBundle("leave")))) == ["chunk"]


def test_recursive_arguments_that_cannot_work_are_refused_at_construction() -> None:
    root = {"root": FixedRetriever()}
    with pytest.raises(ConfigurationError, match=r"no retriever under the root id 'top'.*root"):
        RecursiveRetriever("top", root)
    with pytest.raises(ConfigurationError, match="two things"):
        RecursiveRetriever("root", root, {"root": Faq()})
    with pytest.raises(ConfigurationError, match="two things"):
        RecursiveRetriever("root", root, node_dict={"root": TextNode()})
    for wrong in ({"max_depth": 0}, {"max_fan_out": 0}, {"decay": 0.0}, {"decay": 1.1}):
        with pytest.raises(ConfigurationError, match=r"max_depth|max_fan_out|decay"):
            RecursiveRetriever("root", root, **wrong)
    with pytest.raises(ConfigurationError, match="query_response_tmpl"):
        RecursiveRetriever("root", root, query_response_tmpl="{answer}")


@cases(("score", "expected"), [(0.0, 0.0), (0.3, 0.3), (None, 1.0)])
def test_a_node_has_the_score_of_the_reference_or_one_as_in_llama_index(
    score: float | None, expected: float, searched: Searched
) -> None:
    retriever = RecursiveRetriever(
        "root", {"root": Linked(("->a", score))}, node_dict={"a": TextNode(id_="a")}
    )
    assert scores(searched(retriever, "query").hits) == [("a", expected)]


class Sourced(CustomQueryEngine):
    """An engine that says on what its answer draws."""

    found: list[NodeWithScore]

    def custom_query(self, query_str: str) -> Response:
        return Response("25 days", source_nodes=self.found)


AllRetrieved = Callable[
    [RecursiveRetriever, str | QueryBundle], tuple[list[NodeWithScore], list[NodeWithScore]]
]


@pytest.fixture
def retrieved_all(request: pytest.FixtureRequest) -> AllRetrieved:
    if is_async(request):
        return lambda retriever, query: asyncio.run(retriever.aretrieve_all(query))
    return lambda retriever, query: retriever.retrieve_all(query)


def two_engines(**metadata: str) -> RecursiveRetriever:
    def source(id_: str, score: float) -> NodeWithScore:
        return NodeWithScore(node=TextNode(id_=id_, text=id_, metadata=metadata), score=score)

    shared = source("shared", 0.1)
    return RecursiveRetriever(
        "root",
        {"root": Linked(("->b", 0.9), ("own", 0.5), ("->a", 0.3), ("->b", 0.2))},
        {
            "a": Sourced(found=[source("a1", 0.9), shared]),
            "b": Sourced(found=[source("b1", 0.8), shared]),
        },
    )


def test_retrieve_all_also_gives_the_sources_of_the_engines(retrieved_all: AllRetrieved) -> None:
    retriever = two_engines()
    nodes, additional = retrieved_all(retriever, "q")
    assert nodes == retriever.retrieve("q")
    assert node_ids(nodes) == ["b#answer", "own", "a#answer"]
    assert scores(additional) == [("b1", 0.8), ("shared", 0.1), ("a1", 0.9)]


def test_retrieve_all_gives_only_sources_of_returned_answers(retrieved_all: AllRetrieved) -> None:
    nodes, additional = retrieved_all(two_engines(), Query("q", top_k=2))
    assert node_ids(nodes) == ["b#answer", "own"]
    assert node_ids(additional) == ["b1", "shared"]


def test_retrieve_all_keeps_to_the_scope(retrieved_all: AllRetrieved) -> None:
    retriever = two_engines(tenant_id="globex")
    assert retrieved_all(retriever, Query("q", scope=Scope("acme"))) == ([], [])
    _, additional = retrieved_all(two_engines(tenant_id="acme").for_scope(Scope("acme")), "q")
    assert node_ids(additional) == []


def test_top_k_cuts_after_references_were_followed(searched: Searched) -> None:
    retriever = RecursiveRetriever(
        "root",
        {"root": Linked(("own", 0.5), ("->more", 0.1)), "more": FixedRetriever([("m", 0.9)])},
        top_k=1,
    )
    assert node_ids(searched(retriever, "query").hits) == ["m"]
    assert node_ids(searched(retriever, Query("query", top_k=5)).hits) == ["m", "own"]
