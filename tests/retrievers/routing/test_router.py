"""Queries sent where they are best answered, and somewhere even when the selector is no help."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from llama_index.core.base.base_selector import BaseSelector, SelectorResult
from llama_index.core.schema import IndexNode, QueryBundle, TextNode
from llama_index.core.selectors import EmbeddingSingleSelector, LLMMultiSelector, LLMSingleSelector
from llama_index.core.tools import RetrieverTool, ToolMetadata

from llama_retrieval_ext import Query, Route, RouterRetriever, Scope, SearchResult
from llama_retrieval_ext.errors import ConfigurationError, TooFewLegsError
from llama_retrieval_ext.execution import Leg
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers import LLMSelector
from llama_retrieval_ext.retrievers.routing.selectors import (
    CascadeSelector,
    EmbeddingSelector,
    RouteRule,
    RuleSelector,
    Selection,
    Selector,
)
from llama_retrieval_ext.stages import RRF, Max
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever, FixedRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedAnswer, ScriptedLLM
from tests.cases import cases
from tests.meeting import Meeting, met_by_the_loop
from tests.patience import unless_stalled
from tests.retrievers.references import finding
from tests.retrievers.routing.sample_routes import Picks, TheirPicks, names, routes
from tests.searching import Searched


def searched_routes(offered: dict[str, Route]) -> list[str]:
    return [
        name
        for name, route in offered.items()
        if isinstance(route.retriever, FixedRetriever) and route.retriever.calls
    ]


def broken() -> FixedRetriever:
    return FixedRetriever(error=ConnectionError("down"))


def test_the_picked_route_answers_and_the_result_says_why(searched: Searched) -> None:
    offered = routes()
    picked = Picks([Selection("code", 0.8, "it has an underscore")])
    result = searched(RouterRetriever(picked, offered), "parse_filters")
    assert node_ids(result.hits) == ["code", "shared"]
    assert searched_routes(offered) == ["code"]
    assert result.details["routes"] == [
        {"name": "code", "confidence": 0.8, "reason": "it has an underscore"}
    ]
    assert result.degraded == ()


def test_several_picked_routes_are_fused(searched: Searched) -> None:
    result = searched(RouterRetriever(Picks(["code", "leave"]), routes()), "query")
    assert [(hit.node.node_id, hit.score) for hit in result.hits] == [
        ("shared", 2 / 62),
        ("code", 1 / 61),
        ("leave", 1 / 61),
    ]
    assert [part.leg for part in result.hits[0].contributions] == ["code", "leave"]


def test_unknown_names_are_left_out_and_reported(searched: Searched) -> None:
    mixed = searched(RouterRetriever(Picks(["travel", "code"]), routes()), "query")
    assert names(mixed) == ["code"]
    assert "['travel']" in mixed.degraded[0].reason


def test_a_route_picked_twice_counts_once(searched: Searched) -> None:
    for selector in (Picks(["code", "leave", "code"]), TheirPicks(1, 0, 1)):
        result = searched(RouterRetriever(selector, routes()), "query")
        assert names(result) == ["code", "leave"]


def test_max_routes_limits_the_picked_routes(searched: Searched) -> None:
    router = RouterRetriever(Picks(["code", "code", "leave", "food"]), routes(), max_routes=2)
    assert names(searched(router, "query")) == ["code", "leave"]


FAILING: dict[str, tuple[Selector | BaseSelector, str]] = {
    "index out of range": (TheirPicks(-1), "picked route 0 of 3"),
    "unknown name": (Picks(["travel"]), "['travel']"),
    "an error": (Picks(ValueError("I would choose 2")), "I would choose 2"),
    "a mistake of its author": (Picks(None), "a mistake of its author"),
    "no confidence": (Picks([Selection("code", confidence=0.0)]), "not in (0, 1]"),
    "NaN": (Picks([Selection("code", confidence=float("nan"))]), "not in (0, 1]"),
}


@cases(("selector", "reason"), FAILING.values())
def test_a_selector_that_fails_takes_the_fallback_and_says_so(
    selector: Selector | BaseSelector, reason: str, searched: Searched
) -> None:
    result = searched(RouterRetriever(selector, routes(), fallback="leave"), "query")
    assert result.details["routes"] == [{"name": "leave", "confidence": 1.0, "reason": "fallback"}]
    ((where, said),) = [(part.where, part.reason) for part in result.degraded]
    assert where == "router"
    assert reason in said


def test_every_route_is_searched_if_the_selector_fails_without_a_fallback(
    searched: Searched,
) -> None:
    result = searched(RouterRetriever(Picks(ValueError("no")), routes()), "query")
    assert names(result) == ["leave", "code", "food"]
    assert set(node_ids(result.hits)) == {"leave", "code", "food", "shared"}


def test_a_selector_that_abstains_takes_the_fallback_and_nothing_is_degraded(
    searched: Searched,
) -> None:
    result = searched(RouterRetriever(Picks([]), routes(), fallback="food"), "query")
    assert names(result) == ["food"]
    assert result.degraded == ()


def test_a_configuration_error_of_a_selector_is_raised(searched: Searched) -> None:
    with pytest.raises(ConfigurationError, match="no model"):
        searched(RouterRetriever(Picks(ConfigurationError("no model")), routes()), "query")


def test_the_other_routes_are_searched_if_every_picked_route_fails(searched: Searched) -> None:
    offered = {**routes(), "broken": Route(broken(), "nothing")}
    result = searched(RouterRetriever(Picks(["broken"]), offered), "query")
    assert set(node_ids(result.hits)) == {"leave", "code", "food", "shared"}
    assert names(result) == ["broken", "leave", "code", "food"]
    assert [part.where for part in result.degraded] == ["broken"]


@cases("picks", [["one"], ["one", "two"], []])
def test_the_query_fails_if_all_routes_fail(picks: list[str], searched: Searched) -> None:
    offered = {"one": Route(broken(), "one"), "two": Route(broken(), "two")}
    with pytest.raises(TooFewLegsError, match="down"):
        searched(RouterRetriever(Picks(picks), offered), "query")


def test_the_other_routes_are_searched_if_fewer_than_min_success_answered(
    searched: Searched,
) -> None:
    offered = {**routes(), "broken": Route(broken(), "nothing")}
    router = RouterRetriever(Picks(["broken", "code"]), offered, fusion=RRF(min_success=2))
    result = searched(router, "query")
    assert names(result) == ["broken", "code", "leave", "food"]
    assert set(node_ids(result.hits)) == {"leave", "code", "food", "shared"}
    two = {"one": Route(broken(), ""), "two": Route(broken(), ""), "code": routes()["code"]}
    with pytest.raises(TooFewLegsError, match="1 of 3 routes answered, at least 2 must"):
        searched(RouterRetriever(Picks(["one", "two"]), two, fusion=RRF(min_success=2)), "query")


def test_fused_hits_of_routes_are_sorted_and_cut_to_top_k(searched: Searched) -> None:
    rows = {"a": [("x", 0.2), ("y", 0.1)], "b": [("y", 0.9), ("z", 0.3)]}
    offered = {name: Route(FakeRetriever(each), name) for name, each in rows.items()}
    router = RouterRetriever(Picks(["a", "b"]), offered, fusion=Max(), top_k=2)
    result = searched(router, "query")
    assert [(hit.node.node_id, hit.score) for hit in result.hits] == [("y", 0.9), ("z", 0.3)]
    assert len(searched(router, Query("query", top_k=9)).hits) == 3


def test_the_order_of_a_single_route_is_kept(searched: Searched) -> None:
    offered = {"theirs": Route(FakeRetriever([("best", 0.1), ("worst", 0.9)]), "theirs")}
    result = searched(RouterRetriever(Picks(["theirs"]), offered), "query")
    assert node_ids(result.hits) == ["best", "worst"]
    assert {hit.source for hit in result.hits} == {"theirs"}


def test_weights_of_the_fusion_and_of_legs_count(searched: Searched) -> None:
    picks = Picks(["code", "leave"])
    by_fusion = RouterRetriever(picks, routes(), fusion=RRF(weights={"leave": 3}))
    assert node_ids(searched(by_fusion, "query").hits) == ["shared", "leave", "code"]
    offered = routes()
    leave = offered["leave"].retriever
    assert isinstance(leave, FixedRetriever)
    offered["leave"] = Route(Leg("leave", leave, weight=3), "leave")
    by_leg = searched(RouterRetriever(picks, offered), "query")
    assert node_ids(by_leg.hits) == ["shared", "leave", "code"]


def test_a_bound_scope_holds_on_every_route(searched: Searched) -> None:
    rows = [
        (f"{tenant}-{n}", 0.9, "text", {"tenant_id": tenant}) for tenant in ("a", "b") for n in "12"
    ]
    offered = {
        "own": Route(FixedRetriever(rows), "own"),
        "theirs": Route(FakeRetriever(rows), "theirs"),
        "broken": Route(broken(), "broken"),
    }
    for picks in (["own"], ["theirs"], ["own", "theirs"], ["broken"], []):
        router = RouterRetriever(Picks(picks), offered).for_scope(Scope("a"))
        assert node_ids(searched(router, "query").hits) == ["a-1", "a-2"]


def test_a_blocking_selector_leaves_the_event_loop_free() -> None:
    class Blocks(TheirPicks):
        def _select(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
            meeting.join()
            return super()._select(choices, query)

    meeting = Meeting(2)
    router = RouterRetriever(Blocks(1), routes())
    result = asyncio.run(met_by_the_loop(router, meeting))
    assert result.degraded == ()


class Late(TheirPicks):
    """Picks after so long, in either way."""

    def _select(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        time.sleep(0.8)
        return super()._select(choices, query)

    async def _aselect(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        await asyncio.sleep(0.8)
        return super()._select(choices, query)


LATE: list[Callable[[], Selector | BaseSelector]] = [
    lambda: Late(1),
    lambda: EmbeddingSelector(FakeEmbedding(delay_s=0.8)),
    lambda: LLMSelector(ScriptedLLM([(0.8, "2")])),
    lambda: CascadeSelector(Late(1), Late(1)),
]


@pytest.mark.slow
@unless_stalled
def test_a_selector_that_is_late_takes_the_fallback_and_says_so(searched: Searched) -> None:
    def result_of(make: Callable[[], Selector | BaseSelector]) -> SearchResult:
        router = RouterRetriever(make(), routes(), fallback="food")
        return searched(router, Query("query", timeout_s=0.6))

    with ThreadPoolExecutor(len(LATE)) as threads:
        results = [*threads.map(result_of, LATE)]
    for result in results:
        assert names(result) == ["food"]
        assert node_ids(result.hits) == ["food", "shared"]
        assert result.degraded
        assert all("did not answer within" in part.reason for part in result.degraded)


@pytest.mark.slow
@unless_stalled
def test_a_late_selector_leaves_time_for_the_next_of_its_cascade(searched: Searched) -> None:
    llm = ScriptedLLM([(0.05, "2")])
    cascade = CascadeSelector(Late(0), LLMSelector(llm))
    result = searched(
        RouterRetriever(cascade, routes(), fallback="food"), Query("query", timeout_s=1.5)
    )
    assert names(result) == ["code"]
    assert [part.where for part in result.degraded] == ["Late(...)"]


def test_a_cascade_takes_selectors_of_llama_index_as_they_are(searched: Searched) -> None:
    rules = RuleSelector([RouteRule("food", any_of=["lunch"])])
    router = RouterRetriever(CascadeSelector(rules, TheirPicks(1)), routes())
    assert names(searched(router, "lunch")) == ["food"]
    assert names(searched(router, "anything else")) == ["code"]


def test_routes_and_arguments_that_cannot_work_are_refused_at_construction() -> None:
    rules = RuleSelector([RouteRule("travel", any_of=["train"])])
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: RouterRetriever(Picks([]), {}), "at least one route"),
        (
            lambda: RouterRetriever(Picks([]), {"a": FixedRetriever(name="a")}),  # type: ignore[dict-item]
            r"retriever_tools of 'a' must be of type Route, got a; or give",
        ),
        (
            lambda: RouterRetriever(Picks([]), [FixedRetriever(name="a")]),  # type: ignore[list-item]
            "must be .* RetrieverTool, got a; or give a mapping of names to Routes",
        ),
        (lambda: RouterRetriever(Picks([]), routes(), fallback="x"), "'x' is no route"),
        (lambda: RouterRetriever(Picks([]), routes(), max_routes=0), "max_routes"),
        (lambda: RouterRetriever(CascadeSelector(rules), routes()), r"\['travel'\]"),
        (
            lambda: RouterRetriever(Picks([]), routes(), fusion=RRF(weights={"x": 1})),
            "'x', which is no leg",
        ),
        (lambda: LLMSelector(ScriptedLLM([]), max_routes=0), "max_routes"),
    ]
    for make, problem in wrong:
        with pytest.raises(ConfigurationError, match=problem):
            make()


SINGLE = '[{"choice": 2, "reason": "code"}, {"choice": 1, "reason": "leave"}]'


def test_a_single_selector_picks_one_route_though_the_llm_names_two(searched: Searched) -> None:
    selector = LLMSingleSelector.from_defaults(llm=ScriptedLLM([SINGLE]))
    assert names(searched(RouterRetriever(selector, routes()), "query")) == ["code"]
    most = LLMMultiSelector.from_defaults(llm=ScriptedLLM([SINGLE]), max_outputs=1)
    assert names(searched(RouterRetriever(most, routes()), "query")) == ["code"]
    several = LLMMultiSelector.from_defaults(llm=ScriptedLLM([SINGLE]))
    assert names(searched(RouterRetriever(several, routes()), "query")) == ["code", "leave"]


THEIR_ANSWERS: dict[str, tuple[ScriptedAnswer, list[str]]] = {
    "as it should be": ('[{"choice": 2, "reason": "code"}]', ["code"]),
    "zero": ('[{"choice": 0, "reason": "none"}]', ["food"]),
    "prose": ("I would choose 2", ["food"]),
    "an exception": (ConnectionError("LLM down"), ["food"]),
}


@pytest.mark.parametrize(("answer", "expected"), THEIR_ANSWERS.values(), ids=THEIR_ANSWERS)
@pytest.mark.parametrize("multi", [False, True])
def test_selectors_of_llama_index_are_followed_where_their_answer_makes_sense(
    answer: ScriptedAnswer, expected: list[str], multi: bool, searched: Searched
) -> None:
    kind = LLMMultiSelector if multi else LLMSingleSelector
    selector = kind.from_defaults(llm=ScriptedLLM([answer]))
    result = searched(RouterRetriever(selector, routes(), fallback="food"), "query")
    assert names(result) == expected
    assert bool(result.degraded) is (expected == ["food"])


def test_the_embedding_selector_of_llama_index_works(searched: Searched) -> None:
    selector = EmbeddingSingleSelector.from_defaults(embed_model=FakeEmbedding())
    result = searched(RouterRetriever(selector, routes()), "sick leave")
    assert names(result) == ["leave"]


def tools() -> list[RetrieverTool]:
    return [
        RetrieverTool.from_defaults(
            FakeRetriever([(name, 0.9)]), name=name, description=f"about {name}"
        )
        for name in ("leave", "code")
    ]


def test_the_arguments_of_llama_indexs_router_work_unchanged(searched: Searched) -> None:
    llm = ScriptedLLM(['[{"choice": 2, "reason": "code"}]'] * 2)
    selector = LLMSingleSelector.from_defaults(llm=llm)
    router = RouterRetriever(
        selector=selector,
        retriever_tools=tools(),
        llm=llm,
        objects=None,
        object_map=None,
        verbose=False,
    )
    assert node_ids(searched(router, "query").hits) == ["code"]
    assert "selector:prompt" in router.get_prompts()
    assert node_ids(searched(RouterRetriever.from_defaults(tools(), llm), "query").hits) == ["code"]


def test_from_defaults_picks_one_or_several() -> None:
    for multi, expected in ((False, ["code"]), (True, ["code", "leave"])):
        router = RouterRetriever.from_defaults(tools(), ScriptedLLM([SINGLE]), None, multi)
        assert names(router.search("query")) == expected
    router = RouterRetriever.from_defaults(tools(), selector=TheirPicks(0, 1))
    assert names(router.search("query")) == ["leave", "code"]
    with pytest.raises(ConfigurationError, match="selector= or llm="):
        RouterRetriever.from_defaults(tools())


def test_tools_of_the_same_name_are_separate_routes() -> None:
    unnamed = [
        RetrieverTool.from_defaults(FakeRetriever([(id_, 0.9)]), description=id_) for id_ in "ab"
    ]
    router = RouterRetriever(TheirPicks(1), unnamed)
    assert node_ids(router.retrieve("query")) == ["b"]
    assert len(router.legs) == 2


def test_a_router_follows_index_nodes_by_object_map() -> None:
    doors = finding(IndexNode(id_="door", text="door", index_id="section"))
    section = TextNode(id_="section", text="the whole section")
    router = RouterRetriever(
        Picks(["a"]), {"a": Route(doors, "a")}, object_map={"section": section}
    )
    assert node_ids(router.retrieve("query")) == ["section"]
