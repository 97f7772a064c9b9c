"""Stages as users write them: plain functions that return values."""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import pytest
from llama_index.core.embeddings.mock_embed_model import MockEmbedding
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext import (
    MMR,
    RRF,
    CascadeSelector,
    Choice,
    FanOut,
    Fusion,
    Leg,
    Query,
    RerankChain,
    Reranker,
    Rewrite,
    Route,
    RouterRetriever,
    Scope,
    Selection,
    Selector,
    Top,
)
from llama_retrieval_ext.errors import (
    CompositionError,
    ConfigurationError,
    ExecutionError,
    ScoreError,
)
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.results import Hit, node_ids, score_of
from llama_retrieval_ext.testing.fakes import FakeRetriever, FixedRetriever
from tests.cases import each_case
from tests.searching import Searched

SOURCE = FixedRetriever(
    [("a", 0.9, "travel"), ("b", 0.8, "annual leave"), ("c", 0.7, "sick leave")]
)

# What a type checker need not know of: it would refuse what is tried here.
ANY: Any = SOURCE
Rankings: TypeAlias = Mapping[str, Sequence[NodeWithScore]]


class Mine(Refine):
    """Does what a function says."""

    def __init__(self, change: Callable[[Sequence[Hit]], object]) -> None:
        self.change = change

    def refine(self, query: Query, hits: Sequence[Hit]) -> Sequence[NodeWithScore]:
        return self.change(hits)  # type: ignore[return-value]  # wrong ones too


def test_a_refine_is_a_plain_function(searched: Searched) -> None:
    result = searched(SOURCE >> Mine(lambda hits: [hits[2], hits[0]]) >> Top(5), "leave")
    assert node_ids(result.hits) == ["c", "a"]
    scores = [score_of(hit) for hit in result.hits]
    assert scores == sorted(scores, reverse=True)
    assert result.degraded == ()


def test_new_scores_sort_the_hits_and_no_scores_leave_them(searched: Searched) -> None:
    raised = Mine(
        lambda hits: [NodeWithScore(node=h.node, score=len(h.node.get_content())) for h in hits]
    )
    bare = Mine(lambda hits: [NodeWithScore(node=hit.node) for hit in hits])
    assert node_ids(searched(SOURCE >> raised, "leave").hits) == ["b", "c", "a"]
    kept = searched(SOURCE >> bare, "leave").hits
    assert [(hit.node_id, hit.score, hit.source) for hit in kept] == [
        ("a", 0.9, "fixed"),
        ("b", 0.8, "fixed"),
        ("c", 0.7, "fixed"),
    ]


def test_a_repeated_hit_counts_once_where_it_stands_first(searched: Searched) -> None:
    assert node_ids(searched(SOURCE >> Mine(lambda hits: [*hits, hits[0]]), "q").hits) == [*"abc"]


@each_case(
    ("change", "error", "message"),
    [
        (lambda hits: None, ConfigurationError, r"Mine.refine must return .* got None; add a ret"),
        (lambda hits: {"a": 1}, ConfigurationError, r"must return a list of hits"),
        (lambda hits: ["a"], ConfigurationError, r"got 'a' as item 0"),
        (
            lambda hits: [NodeWithScore(node=TextNode(id_="x"), score=1.0)],
            ExecutionError,
            r"returned node 'x', which was not in the ranking",
        ),
        (
            lambda hits: [NodeWithScore(node=hits[0].node, score=math.nan)],
            ScoreError,
            r"gave node 'a' the score nan",
        ),
    ],
)
def test_what_a_stage_must_not_return_is_an_error_that_names_it(
    searched: Searched,
    change: Callable[[Sequence[Hit]], object],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        searched(SOURCE >> Mine(change), "q")


def test_an_async_stage_and_a_generator_are_pointed_to_the_plan() -> None:
    class Async(Refine):
        async def refine(self, query: Query, hits: Sequence[Hit]) -> Sequence[Hit]:  # type: ignore[override]
            return hits

    class Yields(Refine):
        def refine(self, query: Query, hits: Sequence[Hit]) -> Iterator[Hit]:  # type: ignore[override]
            yield from hits

    class Empty(Refine):
        pass

    class PlanWithoutYield(Refine):
        def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Sequence[Hit]:  # type: ignore[override]
            return hits

    for stage, advice in (
        (Async(), "refine_plan"),
        (Yields(), "name it refine_plan"),
        (Empty(), r"write `def refine\(self, query, hits\)` in Empty"),
        (PlanWithoutYield(), "is named refine"),
    ):
        with pytest.raises(ConfigurationError, match=advice):
            (SOURCE >> stage).retrieve("q")


def test_a_stage_that_has_a_plan_alone_says_so_when_it_is_called() -> None:
    with pytest.raises(ConfigurationError, match=r"MMR has no refine: .* put it into"):
        MMR().refine(Query("q"), [])


def laws(query: Query, hits: Sequence[Hit]) -> list[Hit]:
    return [hit for hit in hits if query.query_str in hit.text]


def test_a_stage_without_a_representation_of_its_own_shows_its_arguments() -> None:
    pipeline = Says("other") >> (SOURCE | SOURCE) >> First() >> Mine(list) >> Longest()
    assert repr(pipeline) == (
        "Says(made='other') >> (fixed | fixed) >> First() >> Mine(list) >> Longest()"
    )
    assert repr(Short([])) == "Short([])"


def test_a_function_works_behind_a_retriever(searched: Searched) -> None:
    result = searched(SOURCE >> laws >> (lambda hits: hits[1:]), "leave")
    assert node_ids(result.hits) == ["c"]
    assert repr(SOURCE >> laws >> Top(1)) == "fixed >> laws >> Top(k=1)"
    assert repr(SOURCE >> partial(laws, Query("annual"))) == "fixed >> laws"
    fused = (SOURCE | SOURCE) >> RRF() >> laws
    assert node_ids(searched(fused, "annual").hits) == ["b"]
    assert node_ids((SOURCE >> (laws >> Top(1))).retrieve("leave")) == ["b"]


@each_case(
    ("compose", "message"),
    [
        (lambda: str.upper >> ANY, "a function is a refinement, which follows a retriever"),
        (lambda: ANY >> (lambda a, b, c: a), r"takes \(query, hits\) or \(hits\)"),
        (lambda: ANY >> (lambda: [1]), r"takes \(query, hits\) or \(hits\)"),
        (lambda: ANY >> asyncio.sleep, "async function"),
        (lambda: ANY >> Top, r"Top is a class.*write Top\(...\)"),
        (lambda: (ANY | ANY) >> laws, "put a Fusion between them"),
        (lambda: ANY | laws, "only retrievers can be combined by"),
    ],
)
def test_a_function_elsewhere_is_refused_with_advice(
    compose: Callable[[], object], message: str
) -> None:
    with pytest.raises(CompositionError, match=message):
        compose()


def test_what_can_be_called_but_is_no_function_is_no_stage() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        SOURCE >> MockEmbedding(embed_dim=2)  # type: ignore[operator]


class Says(Rewrite):
    def __init__(self, made: object) -> None:
        self.made = made

    def rewrite(self, query: Query) -> str | QueryBundle:
        return self.made  # type: ignore[return-value]


@each_case("made", ["other", QueryBundle("other"), Query("other")])
def test_a_rewrite_returns_a_query_in_any_form(searched: Searched, made: object) -> None:
    leg = FixedRetriever([("a", 1.0, "a", {"tenant_id": "acme"}), ("b", 0.9)])
    scope = Scope("acme")
    asked = Query("query", embedding=[1.0], scope=scope)
    assert node_ids(searched(Says(made) >> leg, asked).hits) == ["a"]
    (call,) = leg.calls
    assert (call.query_str, call.embedding, call.scope) == ("other", None, scope)


@each_case("made", [None, 3, ["other"]])
def test_a_rewrite_that_returns_no_query_is_a_mistake(searched: Searched, made: object) -> None:
    with pytest.raises(ConfigurationError, match=r"Says.rewrite must return a string, a QueryB"):
        searched(Says(made) >> SOURCE, "query")


def test_a_fan_out_returns_texts(searched: Searched) -> None:
    class Halves(FanOut):
        def fan_out(self, query: Query) -> list[str]:
            return query.query_str.split(" and ")

    leg = FixedRetriever([("a", 1.0)])
    searched(Halves() >> leg >> RRF(), "leave and travel")
    assert {call.query_str for call in leg.calls} == {"leave", "travel"}


class First(Fusion):
    """The legs one after the other, in reverse."""

    def fuse(self, rankings: Rankings) -> list[NodeWithScore]:  # type: ignore[override]
        return [hit for name in [*rankings][::-1] for hit in rankings[name]]


def test_a_fusion_returns_a_ranking(searched: Searched) -> None:
    x, y = FixedRetriever([("a", 0.9), ("b", 0.8)]), FixedRetriever([("b", 5.0), ("c", 7.0)])
    result = searched((x | y) >> First() >> Top(2), "q")
    assert node_ids(result.hits) == ["c", "b"]
    assert score_of(result.hits[0]) >= score_of(result.hits[1])


def test_a_fusion_that_takes_no_weights_refuses_them() -> None:
    weighted = branches(Leg("a", SOURCE, weight=2.0), b=SOURCE)
    with pytest.raises(ConfigurationError, match="takes no weights"):
        (weighted >> First()).search("q")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "First2.fuse must return a list of hits"),
        ([NodeWithScore(node=TextNode(id_="x"), score=1.0)], "'x', which no leg found"),
        ([NodeWithScore(node=TextNode(id_="a"), score=math.inf)], "the score inf"),
    ],
)
def test_what_a_fusion_must_not_return_is_an_error(found: object, message: str) -> None:
    class First2(Fusion):
        def fuse(self, rankings: Rankings) -> list[NodeWithScore]:  # type: ignore[override]
            return found  # type: ignore[return-value]

    with pytest.raises((ConfigurationError, ExecutionError, ScoreError), match=message):
        ((SOURCE | SOURCE) >> First2()).retrieve("q")


class Short(Selector):
    def __init__(self, found: object) -> None:
        self.found = found

    def select(self, query: Query, choices: Sequence[Choice]) -> Sequence[Selection]:
        return self.found  # type: ignore[return-value]


def test_a_selector_returns_selections(searched: Searched) -> None:
    routes = {"x": Route(SOURCE, "x"), "y": Route(FakeRetriever([("y", 1.0)]), "y")}
    for selector in (Short([Selection("y")]), CascadeSelector(Short([]), Short([Selection("y")]))):
        assert node_ids(searched(RouterRetriever(selector, routes), "q").hits) == ["y"]
    for wrong in (None, [None], 1.5):
        with pytest.raises(ConfigurationError, match=r"Short.select must return .*Selections"):
            searched(RouterRetriever(Short(wrong), routes), "q")


class Longest(Reranker):
    def rerank(self, query: Query, hits: Sequence[Hit]) -> Sequence[NodeWithScore]:
        if query.query_str == "fail":
            raise ConnectionError("no model")
        if query.query_str == "nothing":
            return []
        return sorted(hits, key=lambda hit: -len(hit.text))


def test_a_reranker_is_a_plain_function_that_may_fail(searched: Searched) -> None:
    assert node_ids(searched(SOURCE >> Longest(), "q").hits) == ["b", "c", "a"]
    for query, reason in (("fail", "no model"), ("nothing", "returned no hits")):
        result = searched(SOURCE >> Longest(), query)
        assert node_ids(result.hits) == ["a", "b", "c"]
        (degraded,) = result.degraded
        assert reason in degraded.reason
    chain = RerankChain(Longest(), Mine(lambda hits: hits[::-1]))
    assert node_ids(searched(SOURCE >> chain, "nothing").hits) == ["c", "b", "a"]
