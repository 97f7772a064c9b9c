"""The kind of a question, and how it changes the retrieval."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext.composite.intent import (
    GENERAL,
    INTENT_RULES,
    IntentAdaptiveRetriever,
    IntentProfile,
    default_profiles,
)
from llama_retrieval_ext.composite.routing.embedding_selector import EmbeddingSelector
from llama_retrieval_ext.composite.routing.llm_selector import LLMSelector
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.ranking import SearchResult, node_ids
from llama_retrieval_ext.stages.algebra.branches import branches
from llama_retrieval_ext.stages.fusions.rrf import RRF
from llama_retrieval_ext.stages.fusions.score_fusions import CombMNZ
from llama_retrieval_ext.stages.refining.top import Top
from llama_retrieval_ext.testing.fake_embedding import FakeEmbedding
from llama_retrieval_ext.testing.fixed_retriever import FixedRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.searching import Searched

INTENTS: Mapping[str, Sequence[str]] = {
    "exact": (
        'documents that say "force majeure"',
        "“不可抗力” 条款",
        "parse_filters",
        "where is getUserName defined",
        "error E1205",
        "retry() raises",
        "llama_index.core.schema",
        "GB 50016 防火",
        "ISO-9001 certificate",
    ),
    "comparison": (
        "postgres vs mysql",
        "difference between annual and sick leave",
        "compare Qdrant and Milvus",
        "年假和病假的区别",
        "哪个更便宜",
    ),
    "time_bound": (
        "incidents in 2023",
        "latest safety rules",
        "what changed last month",
        "最新的安全规定",
        "2021年的事故",
        "A 2023 report on scaffolds",
    ),
    "how_to": (
        "how do I apply for leave",
        "steps to reset the password",
        "如何申请年假",
        "脚手架怎么检查",
        "报销流程",
    ),
    "definition": (
        "what is a scaffold",
        "Who was Ada Lovelace?",
        "meaning of indemnity",
        "什么是脚手架",
        "施工单位是指什么",
    ),
    GENERAL: (
        "annual leave days",
        "canteen opening hours",
        "员工年假",
        "安全帽",
        "Is lunch free?",
    ),
}


def legs() -> dict[str, FixedRetriever]:
    return {
        "vector": FixedRetriever([("v", 0.9), ("k", 0.2)], name="vector"),
        "keyword": FixedRetriever([("k", 9.0), ("v", 2.0)], name="keyword"),
    }


def intent_of(result: SearchResult) -> object:
    routes = result.details["routes"]
    assert isinstance(routes, list)
    assert len(routes) == 1
    return routes[0]["name"]


@pytest.mark.parametrize(
    ("query", "intent"),
    [(query, intent) for intent, queries in INTENTS.items() for query in queries],
)
def test_the_rules_tell_the_intent(query: str, intent: str) -> None:
    assert intent_of(IntentAdaptiveRetriever(legs()).search(query)) == intent


def test_the_weights_of_the_intent_change_the_ranking(searched: Searched) -> None:
    retriever = IntentAdaptiveRetriever(legs())
    exact = searched(retriever, "parse_filters")
    assert node_ids(exact.hits) == ["k", "v"]
    assert {part.leg: part.weight for part in exact.hits[0].contributions} == {
        "vector": 0.3,
        "keyword": 0.7,
    }
    assert node_ids(searched(retriever, "how do I apply for leave").hits) == ["v", "k"]
    assert exact.degraded == ()


def test_profiles_are_data(searched: Searched) -> None:
    english = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])
    rows = [("en", 0.9, "text", {"lang": "en"}), ("zh", 0.8, "text", {"lang": "zh"})]
    leg = FixedRetriever(rows, name="only")
    profiles = {
        "exact": IntentProfile("codes", depth=77, refine=(Top(1),)),
        "definition": IntentProfile("what", filters=english),
        GENERAL: IntentProfile("rest", weights={"only": 0.5}),
    }
    retriever = IntentAdaptiveRetriever({"only": leg}, profiles=profiles)
    assert node_ids(searched(retriever, "E1205").hits) == ["en"]
    assert node_ids(searched(retriever, "what is leave").hits) == ["en"]
    assert node_ids(searched(retriever, "leave").hits) == ["en", "zh"]
    assert [call.top_k for call in leg.calls] == [77, 10, 10]
    # Intents without a profile are treated as general ones.
    assert intent_of(searched(retriever, "how do I apply")) == GENERAL


def test_a_profile_can_be_changed_by_itself(searched: Searched) -> None:
    profiles = default_profiles()
    profiles["exact"] = replace(profiles["exact"], weights={"vector": 1.0, "keyword": 0.0})
    given = legs()
    result = searched(IntentAdaptiveRetriever(given, profiles=profiles), "E1205")
    assert node_ids(result.hits) == ["v", "k"]
    assert given["keyword"].calls == []


def test_legs_of_other_names_can_have_the_default_profiles(searched: Searched) -> None:
    given = {"dense": legs()["vector"], "bm25": legs()["keyword"]}
    profiles = default_profiles(semantic="dense", exact="bm25")
    result = searched(IntentAdaptiveRetriever(given, profiles=profiles), "E1205")
    assert node_ids(result.hits) == ["k", "v"]


def test_legs_may_be_branches_with_limits(searched: Searched) -> None:
    given = legs()
    sides = branches(
        vector=Leg("x", given["vector"], top_k=33, timeout_s=5.0), keyword=given["keyword"]
    )
    searched(IntentAdaptiveRetriever(sides), "annual leave")
    assert [call.top_k for call in given["vector"].calls] == [33]


def test_any_fusion_will_do(searched: Searched) -> None:
    result = searched(IntentAdaptiveRetriever(legs(), fusion=CombMNZ()), "E1205")
    assert node_ids(result.hits) == ["k", "v"]
    assert [hit.score for hit in result.hits] == pytest.approx([2 * 0.7, 2 * 0.3])


def test_any_selector_will_do(searched: Searched) -> None:
    by_meaning = EmbeddingSelector(FakeEmbedding())
    result = searched(IntentAdaptiveRetriever(legs(), selector=by_meaning), "code or name?")
    assert intent_of(result) == "exact"
    by_llm = LLMSelector(ScriptedLLM(["3"]))
    result = searched(IntentAdaptiveRetriever(legs(), selector=by_llm), "leave")
    assert intent_of(result) == [*default_profiles()][2]


def test_a_selector_that_fails_makes_it_a_general_question(searched: Searched) -> None:
    failing = LLMSelector(ScriptedLLM([ConnectionError("LLM down")]))
    result = searched(IntentAdaptiveRetriever(legs(), selector=failing), "leave")
    assert intent_of(result) == GENERAL
    assert result.degraded
    assert result.hits


def test_a_leg_that_fails_is_left_out(searched: Searched) -> None:
    given = {**legs(), "vector": FixedRetriever(error=ConnectionError("down"))}
    result = searched(IntentAdaptiveRetriever(given), "E1205")
    assert node_ids(result.hits) == ["k", "v"]
    assert [part.where for part in result.degraded] == ["exact/vector"]


def test_the_scope_reaches_every_leg(searched: Searched) -> None:
    given = legs()
    searched(IntentAdaptiveRetriever(given).for_scope(Scope("acme")), Query("E1205"))
    assert {call.scope for leg in given.values() for call in leg.calls} == {Scope("acme")}


def test_the_rules_are_data_one_can_read() -> None:
    assert [rule.route for rule in INTENT_RULES.rules] == [
        "exact",
        "comparison",
        "time_bound",
        "how_to",
        "definition",
    ]
    assert set(default_profiles()) == {*(rule.route for rule in INTENT_RULES.rules), GENERAL}


def test_what_cannot_work_is_refused_at_construction() -> None:
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: IntentAdaptiveRetriever(legs(), profiles={}), "'general' is needed"),
        (
            lambda: IntentAdaptiveRetriever({"dense": legs()["vector"]}),
            "which is no leg; the legs are 'dense'",
        ),
        (
            lambda: IntentAdaptiveRetriever(legs(), fusion=RRF(weights=(1, 2))),
            "give the weights to the profiles",
        ),
        (
            lambda: IntentAdaptiveRetriever(FixedRetriever(name="a")),  # type: ignore[arg-type]
            r"must be a \| b, or a mapping of names to retrievers, got a",
        ),
        (
            lambda: IntentAdaptiveRetriever(
                legs(), profiles={GENERAL: IntentProfile("rest")}, selector=INTENT_RULES
            ),
            "rules name the routes",
        ),
    ]
    for make, problem in wrong:
        with pytest.raises(ConfigurationError, match=problem):
            make()


def test_it_says_what_it_is_made_of() -> None:
    profiles = {"how_to": IntentProfile("how"), GENERAL: IntentProfile("rest")}
    retriever = IntentAdaptiveRetriever(legs(), profiles=profiles)
    assert repr(retriever) == (
        "IntentAdaptiveRetriever((vector | keyword), intents=['how_to', 'general'])"
    )


def test_the_outline_shows_the_legs_once() -> None:
    told = IntentAdaptiveRetriever(legs()).outline().splitlines()
    assert told[0].startswith("IntentAdaptiveRetriever(RuleSelector(")
    assert told[1:] == ["├─ vector", "└─ keyword"]
