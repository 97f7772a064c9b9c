"""Queries sent where they are best answered, and somewhere even when the selector is no help."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import get_ident

import pytest
from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.llms import MockLLM
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.selectors import EmbeddingSingleSelector, LLMMultiSelector, LLMSingleSelector
from llama_index.core.tools import RetrieverTool, ToolMetadata

from llama_retrieval_ext.errors import ConfigurationError, TooFewLegsError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import SearchResult, node_ids
from llama_retrieval_ext.retrievers.routing.llm_selector import LLMSelector
from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
from llama_retrieval_ext.retrievers.routing.rule_selector import RouteRule, RuleSelector
from llama_retrieval_ext.retrievers.routing.selectors import (
    CascadeSelector,
    Choice,
    EmbeddingSelector,
    Selection,
    Selector,
)
from llama_retrieval_ext.stages.fusion import RRF, Max
from llama_retrieval_ext.testing.fakes import (
    FakeEmbedding,
    FakeRetriever,
    FixedRetriever,
    HangingRetriever,
)
from llama_retrieval_ext.testing.scripted_llm import ScriptedAnswer, ScriptedLLM
from tests.cases import each_case
from tests.meeting import Meeting, Meets, MeetsAsync, met_by_the_loop
from tests.patience import unless_stalled
from tests.searching import Searched


@dataclass
class Picks(Selector):
    """Picks these, or fails."""

    found: Sequence[Selection | str] | Exception | None

    def select(self, query: Query, choices: Sequence[Choice]) -> list[Selection]:
        if isinstance(self.found, Exception):
            raise self.found
        assert self.found is not None, "a mistake of its author"
        return [Selection(each) if isinstance(each, str) else each for each in self.found]


class TheirPicks(BaseSelector):
    """A LlamaIndex selector that picks these places, counted from 0."""

    def __init__(self, *places: int) -> None:
        self.places = places

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        pass

    def _select(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        picks = [SingleSelection(index=place, reason=f"pick {place}") for place in self.places]
        return SelectorResult(selections=picks)

    async def _aselect(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        return self._select(choices, query)


def routes() -> dict[str, Route]:
    return {
        name: Route(FixedRetriever([(name, 0.9), ("shared", 0.5)], name=name), description)
        for name, description in (
            ("leave", "annual leave and sick leave"),
            ("code", "functions and classes"),
            ("food", "the canteen and its lunch"),
        )
    }


def asked(given: dict[str, Route]) -> list[str]:
    return [
        name
        for name, route in given.items()
        if isinstance(route.retriever, FixedRetriever) and route.retriever.calls
    ]


def names(result: SearchResult) -> list[object]:
    told = result.details["routes"]
    assert isinstance(told, list)
    return [route["name"] for route in told]


def broken() -> FixedRetriever:
    return FixedRetriever(error=ConnectionError("down"))


def test_the_picked_route_answers_and_the_result_says_why(searched: Searched) -> None:
    given = routes()
    picked = Picks([Selection("code", 0.8, "it has an underscore")])
    result = searched(RouterRetriever(picked, given), "parse_filters")
    assert node_ids(result.hits) == ["code", "shared"]
    assert asked(given) == ["code"]
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


def test_r1_several_routes_are_asked_side_by_side(searched: Searched) -> None:
    for kind in (Meets, MeetsAsync):
        meeting = Meeting(3)
        given = {name: Route(kind([(name, 0.9)], meeting), name) for name in ("a", "b", "c")}
        router = RouterRetriever(Picks(["a", "b", "c"]), given)
        assert len(searched(router, "query").hits) == 3


@each_case("place", [-1, 3, 9])
def test_r2_a_pick_out_of_range_takes_the_fallback_and_says_so(
    place: int, searched: Searched
) -> None:
    router = RouterRetriever(TheirPicks(place), routes(), fallback="food")
    result = searched(router, "query")
    assert names(result) == ["food"]
    assert f"picked route {place + 1} of 3" in result.degraded[0].reason


def test_r2_an_unknown_name_takes_the_fallback_and_says_so(searched: Searched) -> None:
    result = searched(RouterRetriever(Picks(["travel"]), routes(), fallback="food"), "query")
    assert names(result) == ["food"]
    assert "['travel']" in result.degraded[0].reason
    mixed = searched(RouterRetriever(Picks(["travel", "code"]), routes()), "query")
    assert names(mixed) == ["code"]
    assert "['travel']" in mixed.degraded[0].reason


def test_r3_repeated_picks_count_once(searched: Searched) -> None:
    for selector in (Picks(["code", "leave", "code"]), TheirPicks(1, 0, 1)):
        result = searched(RouterRetriever(selector, routes()), "query")
        assert names(result) == ["code", "leave"]


def test_r3_at_most_so_many_routes_are_taken(searched: Searched) -> None:
    router = RouterRetriever(Picks(["code", "code", "leave", "food"]), routes(), max_routes=2)
    assert names(searched(router, "query")) == ["code", "leave"]


SINGLE = '[{"choice": 2, "reason": "code"}, {"choice": 1, "reason": "leave"}]'


def test_r3_a_selector_that_is_to_pick_one_is_held_to_one(searched: Searched) -> None:
    selector = LLMSingleSelector.from_defaults(llm=ScriptedLLM([SINGLE]))
    assert names(searched(RouterRetriever(selector, routes()), "query")) == ["code"]
    most = LLMMultiSelector.from_defaults(llm=ScriptedLLM([SINGLE]), max_outputs=1)
    assert names(searched(RouterRetriever(most, routes()), "query")) == ["code"]
    several = LLMMultiSelector.from_defaults(llm=ScriptedLLM([SINGLE]))
    assert names(searched(RouterRetriever(several, routes()), "query")) == ["code", "leave"]


@each_case(
    "found",
    [
        ValueError("I would choose 2"),
        KeyError("choice"),
        None,
        [Selection("code", confidence=0.0)],
        [Selection("code", confidence=float("nan"))],
        [Selection("code", confidence=1.5)],
    ],
    ids=str,
)
def test_r4_a_selector_that_fails_takes_the_fallback_and_says_so(
    found: Sequence[Selection] | Exception | None, searched: Searched
) -> None:
    result = searched(RouterRetriever(Picks(found), routes(), fallback="leave"), "query")
    assert names(result) == ["leave"]
    assert [part.where for part in result.degraded] == ["router"]
    assert result.details["routes"] == [{"name": "leave", "confidence": 1.0, "reason": "fallback"}]


def test_r4_without_a_fallback_every_route_is_asked(searched: Searched) -> None:
    result = searched(RouterRetriever(Picks(ValueError("no")), routes()), "query")
    assert names(result) == ["leave", "code", "food"]
    assert set(node_ids(result.hits)) == {"leave", "code", "food", "shared"}


def test_a_selector_that_abstains_takes_the_fallback_and_nothing_is_degraded(
    searched: Searched,
) -> None:
    result = searched(RouterRetriever(Picks([]), routes(), fallback="food"), "query")
    assert names(result) == ["food"]
    assert result.degraded == ()


def test_a_selector_that_is_set_up_wrongly_is_an_error(searched: Searched) -> None:
    with pytest.raises(ConfigurationError, match="no model"):
        searched(RouterRetriever(Picks(ConfigurationError("no model")), routes()), "query")


def test_r5_one_route_that_fails_is_left_out(searched: Searched) -> None:
    given = {**routes(), "broken": Route(broken(), "nothing")}
    result = searched(RouterRetriever(Picks(["broken", "code"]), given), "query")
    assert node_ids(result.hits) == ["code", "shared"]
    assert [part.where for part in result.degraded] == ["broken"]


def test_r5_when_every_picked_route_fails_the_others_are_asked(searched: Searched) -> None:
    given = {**routes(), "broken": Route(broken(), "nothing")}
    result = searched(RouterRetriever(Picks(["broken"]), given), "query")
    assert set(node_ids(result.hits)) == {"leave", "code", "food", "shared"}
    assert names(result) == ["broken", "leave", "code", "food"]
    assert [part.where for part in result.degraded] == ["broken"]


@each_case("picks", [["one"], ["one", "two"], []], ids=str)
def test_r5_when_all_routes_fail_the_query_fails(picks: list[str], searched: Searched) -> None:
    given = {"one": Route(broken(), "one"), "two": Route(broken(), "two")}
    with pytest.raises(TooFewLegsError, match="down"):
        searched(RouterRetriever(Picks(picks), given), "query")


def test_fewer_answers_than_min_success_have_the_other_routes_asked_as_well(
    searched: Searched,
) -> None:
    given = {**routes(), "broken": Route(broken(), "nothing")}
    router = RouterRetriever(Picks(["broken", "code"]), given, fusion=RRF(min_success=2))
    result = searched(router, "query")
    assert names(result) == ["broken", "code", "leave", "food"]
    assert set(node_ids(result.hits)) == {"leave", "code", "food", "shared"}
    two = {"one": Route(broken(), ""), "two": Route(broken(), ""), "code": routes()["code"]}
    with pytest.raises(TooFewLegsError, match="1 of 3 routes answered, at least 2 must"):
        searched(RouterRetriever(Picks(["one", "two"]), two, fusion=RRF(min_success=2)), "query")


def test_r5_a_callback_manager_is_taken() -> None:
    manager = CallbackManager([])
    router = RouterRetriever(Picks(["code"]), routes(), callback_manager=manager)
    assert router.callback_manager is manager


def test_r5_a_route_that_hangs_costs_its_time_and_no_more(searched: Searched) -> None:
    hanging = HangingRetriever([("late", 1.0)])
    given = {**routes(), "slow": Route(Leg("any", hanging, timeout_s=0.05), "slow")}
    try:
        result = searched(RouterRetriever(Picks(["slow", "code"]), given), "query")
    finally:
        hanging.release()
    assert node_ids(result.hits) == ["code", "shared"]
    assert [part.where for part in result.degraded] == ["slow"]


def test_r5_the_result_is_sorted_and_has_at_most_top_k_hits(searched: Searched) -> None:
    rows = {"a": [("x", 0.2), ("y", 0.1)], "b": [("y", 0.9), ("z", 0.3)]}
    given = {name: Route(FakeRetriever(each), name) for name, each in rows.items()}
    router = RouterRetriever(Picks(["a", "b"]), given, fusion=Max(), top_k=2)
    result = searched(router, "query")
    assert [(hit.node.node_id, hit.score) for hit in result.hits] == [("y", 0.9), ("z", 0.3)]
    assert len(searched(router, Query("query", top_k=9)).hits) == 3


def test_f17_one_route_keeps_its_order(searched: Searched) -> None:
    given = {"theirs": Route(FakeRetriever([("best", 0.1), ("worst", 0.9)]), "theirs")}
    result = searched(RouterRetriever(Picks(["theirs"]), given), "query")
    assert node_ids(result.hits) == ["best", "worst"]
    assert {hit.source for hit in result.hits} == {"theirs"}


def test_confidence_can_be_the_weight_of_a_route(searched: Searched) -> None:
    picks = Picks([Selection("code", 0.2), Selection("leave", 0.9)])
    plain = searched(RouterRetriever(picks, routes()), "query")
    assert node_ids(plain.hits) == ["shared", "code", "leave"]
    weighed = searched(RouterRetriever(picks, routes(), weigh_by_confidence=True), "query")
    assert node_ids(weighed.hits) == ["shared", "leave", "code"]
    shares = {part.leg: part.weight for part in weighed.hits[0].contributions}
    assert shares == {"code": 0.2, "leave": 0.9}


def test_weights_of_the_fusion_and_of_legs_count(searched: Searched) -> None:
    picks = Picks(["code", "leave"])
    by_fusion = RouterRetriever(picks, routes(), fusion=RRF(weights={"leave": 3}))
    assert node_ids(searched(by_fusion, "query").hits) == ["shared", "leave", "code"]
    given = routes()
    leave = given["leave"].retriever
    assert isinstance(leave, FixedRetriever)
    given["leave"] = Route(Leg("leave", leave, weight=3), "leave")
    by_leg = searched(RouterRetriever(picks, given), "query")
    assert node_ids(by_leg.hits) == ["shared", "leave", "code"]


def test_scope_and_filters_reach_every_route(searched: Searched) -> None:
    rows = [
        (f"{tenant}-{n}", 0.9, "text", {"tenant_id": tenant}) for tenant in ("a", "b") for n in "12"
    ]
    given = {
        "own": Route(FixedRetriever(rows), "own"),
        "theirs": Route(FakeRetriever(rows), "theirs"),
        "broken": Route(broken(), "broken"),
    }
    for picks in (["own"], ["theirs"], ["own", "theirs"], ["broken"], []):
        router = RouterRetriever(Picks(picks), given).for_scope(Scope("a"))
        assert node_ids(searched(router, "query").hits) == ["a-1", "a-2"]


LLM_ANSWERS: dict[str, tuple[ScriptedAnswer, list[str], bool]] = {
    "a number": ("2", ["code"], False),
    "a number and a full stop": ("2.", ["code"], False),
    "several": ("2, 1", ["code"], False),
    "prose": ("I would choose 2, because it is about code.", ["code"], False),
    "fenced": ("```\n2\n```", ["code"], False),
    "thoughts": ("<think>1 or 3? No: 1.</think>\n2", ["code"], False),
    "json": ('{"choice": 2}', ["code"], False),
    "zero": ("0", ["food"], True),
    "out of range": ("9", ["food"], True),
    "in range and out of it": ("9, 2", ["code"], False),
    "in Chinese": ("选择第2个来源", ["code"], False),
    "a fraction": ("Between 1.5 and 2.5", ["food"], True),
    "none": ("none", ["food"], False),
    "none of them": ("None of 1, 2 or 3 fits.", ["food"], False),
    "none in Chinese": ("没有, 3 个都不合适", ["food"], False),
    "prose without a number": ("The second one.", ["food"], True),
    "nothing": ("", ["food"], True),
    "thoughts alone": ("<think>hmm, 1?", ["food"], True),
    "an exception": (ConnectionError("LLM down"), ["food"], True),
    "late": ((5.0, "2"), ["food"], True),
}


@each_case(("answer", "expected", "degraded"), LLM_ANSWERS.values(), ids=LLM_ANSWERS)
def test_r4_whatever_the_llm_answers_the_query_is_answered(
    answer: ScriptedAnswer, expected: list[str], degraded: bool, searched: Searched
) -> None:
    selector = LLMSelector(ScriptedLLM([answer]), timeout_s=0.5)
    result = searched(RouterRetriever(selector, routes(), fallback="food"), "parse it")
    assert names(result) == expected
    assert bool(result.degraded) is degraded
    assert result.hits


def test_the_llm_may_pick_several() -> None:
    selector = LLMSelector(ScriptedLLM(["3, 1, 3, 2"]), max_routes=2)
    assert names(RouterRetriever(selector, routes()).search("query")) == ["food", "leave"]


def test_the_llm_is_told_the_routes_and_the_question_as_they_are() -> None:
    llm = ScriptedLLM(["1"])
    given = {"a": Route(FixedRetriever(), "about {query} and {choices}")}
    RouterRetriever(LLMSelector(llm), given).retrieve("what is {most}?")
    assert "1. a: about {query} and {choices}" in llm.prompts[0]
    assert "Question: what is {most}?" in llm.prompts[0]


THEIR_ANSWERS: dict[str, tuple[ScriptedAnswer, list[str]]] = {
    "as it should be": ('[{"choice": 2, "reason": "code"}]', ["code"]),
    "zero": ('[{"choice": 0, "reason": "none"}]', ["food"]),
    "nine": ('[{"choice": 9, "reason": "none"}]', ["food"]),
    "no reason": ('[{"choice": 2}]', ["food"]),
    "prose": ("I would choose 2", ["food"]),
    "nothing": ("", ["food"]),
    "an exception": (ConnectionError("LLM down"), ["food"]),
}


@each_case(("answer", "expected"), THEIR_ANSWERS.values(), ids=THEIR_ANSWERS)
@each_case("multi", [False, True])
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


def test_r7_a_blocking_selector_leaves_the_event_loop_free() -> None:
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


LATE: dict[str, Callable[[], Selector | BaseSelector]] = {
    "LlamaIndex's": lambda: Late(1),
    "by embedding": lambda: EmbeddingSelector(FakeEmbedding(delay_s=0.8)),
    "by an LLM": lambda: LLMSelector(ScriptedLLM([(0.8, "2")])),
    "a cascade": lambda: CascadeSelector(Late(1), Late(1)),
}


@each_case("make", LATE.values(), ids=LATE, side_by_side=True)
@unless_stalled
def test_r4_a_selector_that_is_late_takes_the_fallback_and_says_so(
    make: Callable[[], Selector | BaseSelector], searched: Searched
) -> None:
    router = RouterRetriever(make(), routes(), fallback="food")
    result = searched(router, Query("query", timeout_s=0.6))
    assert names(result) == ["food"]
    assert node_ids(result.hits) == ["food", "shared"]
    assert all("did not answer within" in part.reason for part in result.degraded)
    assert result.degraded


@unless_stalled
def test_a_selector_that_is_late_leaves_time_for_the_next_of_its_cascade(
    searched: Searched,
) -> None:
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


def test_an_async_selector_is_awaited() -> None:
    class Awaits(TheirPicks):
        def _select(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
            raise AssertionError("the blocking way of a selector that has an async one")

        async def _aselect(
            self, choices: Sequence[ToolMetadata], query: QueryBundle
        ) -> SelectorResult:
            await asyncio.sleep(0)
            threads.append(get_ident())
            return super()._select(choices, query)

    threads: list[int] = []
    result = asyncio.run(RouterRetriever(Awaits(1), routes()).asearch("query"))
    assert names(result) == ["code"]
    assert threads == [get_ident()]


def test_an_answer_that_no_route_fits_is_kept_as_any_other(searched: Searched) -> None:
    llm = ScriptedLLM(["none"])
    router = RouterRetriever(LLMSelector(llm), routes(), fallback="food")
    for _ in range(2):
        result = searched(router, "quantum chromodynamics")
        assert names(result) == ["food"]
        assert result.degraded == ()
    assert len(llm.prompts) == 1


def test_r7_a_selector_whose_model_blocks_leaves_the_event_loop_free() -> None:
    class BlocksByName(FakeEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            meeting.join()
            return super()._get_query_embedding(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_query_embedding(query)  # as HuggingFaceEmbedding's

    meeting = Meeting(2)
    selector = EmbeddingSingleSelector.from_defaults(embed_model=BlocksByName())
    result = asyncio.run(met_by_the_loop(RouterRetriever(selector, routes()), meeting))
    assert result.degraded == ()


def test_a_cascade_of_selectors_routes(searched: Searched) -> None:
    rules = RuleSelector([RouteRule("code", pattern=r"\w_\w")])
    llm = ScriptedLLM(["1", "none"])
    router = RouterRetriever(
        CascadeSelector(rules, Picks(ValueError("broken")), LLMSelector(llm)),
        routes(),
        fallback="food",
    )
    assert names(searched(router, "parse_filters")) == ["code"]
    assert llm.prompts == []
    second = searched(router, "days off")
    assert names(second) == ["leave"]
    assert len(second.degraded) == 1
    assert names(searched(router, "quantum chromodynamics")) == ["food"]


def tools() -> list[RetrieverTool]:
    return [
        RetrieverTool.from_defaults(
            FakeRetriever([(name, 0.9)]), name=name, description=f"about {name}"
        )
        for name in ("leave", "code")
    ]


def test_changing_the_import_is_enough(searched: Searched) -> None:
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
    given = RouterRetriever.from_defaults(tools(), selector=TheirPicks(0, 1))
    assert names(given.search("query")) == ["leave", "code"]
    with pytest.raises(ConfigurationError, match="selector= or llm="):
        RouterRetriever.from_defaults(tools())


def test_tools_of_one_name_are_told_apart() -> None:
    unnamed = [
        RetrieverTool.from_defaults(FakeRetriever([(id_, 0.9)]), description=id_) for id_ in "ab"
    ]
    router = RouterRetriever(TheirPicks(1), unnamed)
    assert node_ids(router.retrieve("query")) == ["b"]
    assert len(router.legs) == 2


def test_index_nodes_are_followed_with_the_objects_one_gives() -> None:
    class Doors(FakeRetriever):
        def _answer(self) -> list[NodeWithScore]:
            node = IndexNode(id_="door", text="door", index_id="section")
            return [NodeWithScore(node=node, score=0.5)]

    section = TextNode(id_="section", text="the whole section")
    router = RouterRetriever(
        Picks(["a"]), {"a": Route(Doors(), "a")}, object_map={"section": section}
    )
    assert node_ids(router.retrieve("query")) == ["section"]


def test_verbose_tells_the_log(caplog: pytest.LogCaptureFixture) -> None:
    router = RouterRetriever(TheirPicks(0), tools(), MockLLM(), verbose=True)
    with caplog.at_level(logging.INFO):
        router.retrieve("query")
    assert caplog.messages == ["router found 1 hits for 'query'"]


def test_what_cannot_work_is_refused_at_construction() -> None:
    rules = RuleSelector([RouteRule("travel", any_of=["train"])])
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: RouterRetriever(Picks([]), {}), "at least one route"),
        (
            lambda: RouterRetriever(Picks([]), {"a": FixedRetriever(name="a")}),  # type: ignore[dict-item]
            r"the route 'a' must be .* Route, got a; write Route\(retriever, description\)",
        ),
        (
            lambda: RouterRetriever(Picks([]), [FixedRetriever(name="a")]),  # type: ignore[list-item]
            "must be .* RetrieverTool, got a; or give a mapping of names to Routes",
        ),
        (lambda: RouterRetriever(Picks([]), []), "at least one route"),
        (lambda: RouterRetriever(Picks([]), routes(), fallback="x"), "'x' is no route"),
        (lambda: RouterRetriever(Picks([]), routes(), max_routes=0), "max_routes"),
        (lambda: RouterRetriever(rules, routes()), r"\['travel'\]"),
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


def test_a_blank_query_asks_neither_selector_nor_route(searched: Searched) -> None:
    given = routes()
    assert searched(RouterRetriever(Picks(ValueError("asked")), given), " ").hits == []
    assert asked(given) == []


def test_it_says_what_it_is_made_of() -> None:
    rules = RuleSelector([RouteRule("code", pattern=r"\w_\w")])
    router = RouterRetriever(rules, routes(), fallback="food")
    assert repr(router).startswith(
        r"RouterRetriever(RuleSelector([RouteRule(route='code', pattern='\\w_\\w')]), "
        "{'leave': Route("
    )
    assert router.outline() == (
        "RouterRetriever(RuleSelector([RouteRule(route='code', pattern='\\\\w_\\\\w')]), "
        "fallback='food')\n"
        "├─ leave\n├─ code\n└─ food"
    )
