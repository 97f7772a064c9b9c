"""The kind of a question, and how it changes the retrieval."""

from collections.abc import Callable, Mapping, Sequence

import pytest
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext import RRF, Query, SearchResult, WeightedSum, branches
from llama_retrieval_ext.arguments import arguments_of
from llama_retrieval_ext.errors import CompositionError, ConfigurationError
from llama_retrieval_ext.execution import Leg
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers import LLMSelector
from llama_retrieval_ext.retrievers.intent import (
    GENERAL,
    IntentAdaptive,
    IntentAdaptiveRetriever,
    IntentProfile,
    default_intent_profiles,
    default_intent_rules,
)
from llama_retrieval_ext.retrievers.routing.selectors import (
    Choice,
    EmbeddingSelector,
    Selection,
    Selector,
)
from llama_retrieval_ext.stages import LongContextReorder, Threshold, Top
from llama_retrieval_ext.testing import FakeEmbedding, FixedRetriever, ScriptedLLM
from tests.cases import cases
from tests.searching import Searched

INTENTS: Mapping[str, Sequence[str]] = {
    "exact": (
        'documents that say "force majeure"',
        "parse_filters",
        "error E1205",
        "llama_index.core.schema",
        "GB 50016 防火",
        "第九条",
        "第40条规定了什么",
        "what does Article 5 say",
        "article 5(2) obligations",
        "§ 12",
        "Section 3.2 of the handbook",
        "Zhang Wei",
        "IBM policy",
        "salary of Ada Lovelace",
        "华为技术有限公司",
        "清华大学 招生",
    ),
    "comparison": (
        "postgres vs mysql",
        "difference between annual and sick leave",
        "compare Qdrant and Milvus",
        "年假和病假的区别",
    ),
    "time_bound": (
        "incidents in 2023",
        "latest safety rules",
        "what changed last month",
        "A 2023 report on scaffolds",
    ),
    "how_to": ("how do I apply for leave", "steps to reset the password", "如何申请年假"),
    "definition": (
        "what is a scaffold",
        "Who was Ada Lovelace?",
        "meaning of indemnity",
        "什么是脚手架",
    ),
    GENERAL: (
        "annual leave days",
        "canteen opening hours",
        "员工年假",
        "ANNUAL LEAVE DAYS",
        "the first article in the canteen",
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


@cases("intent", INTENTS)
def test_the_default_rules_recognise_the_intent(intent: str) -> None:
    rules = default_intent_rules()
    found = {
        query: [*rules.select(Query(query), []), Selection(GENERAL)] for query in INTENTS[intent]
    }
    assert {query: first.name for query, (first, *_) in found.items()} == dict.fromkeys(
        INTENTS[intent], intent
    )


def test_the_weights_of_the_intent_change_the_ranking(searched: Searched) -> None:
    how_to = IntentProfile("how to do something", {"vector": 0.6, "keyword": 0.4})
    retriever = IntentAdaptiveRetriever(
        legs(), profiles={**default_intent_profiles(), "how_to": how_to}
    )
    exact = searched(retriever, "parse_filters")
    assert node_ids(exact.hits) == ["k", "v"]
    assert {part.leg: part.weight for part in exact.hits[0].contributions} == {
        "vector": 0.3,
        "keyword": 0.7,
    }
    assert node_ids(searched(retriever, "how do I apply for leave").hits) == ["v", "k"]
    assert exact.degraded == ()


def test_profiles_set_depth_filters_weights_and_refinements(searched: Searched) -> None:
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


def test_legs_of_other_names_can_have_the_default_intent_profiles(searched: Searched) -> None:
    sides = {"dense": legs()["vector"], "bm25": legs()["keyword"]}
    profiles = default_intent_profiles(semantic="dense", exact="bm25")
    result = searched(IntentAdaptiveRetriever(sides, profiles=profiles), "E1205")
    assert node_ids(result.hits) == ["k", "v"]


def test_legs_may_be_branches_with_limits(searched: Searched) -> None:
    vector, keyword = legs().values()
    limited = branches(vector=Leg("x", vector, top_k=33, timeout_s=5.0), keyword=keyword)
    searched(IntentAdaptiveRetriever(limited), "annual leave")
    assert [call.top_k for call in vector.calls] == [33]


def test_the_fusion_of_intent_legs_can_be_any(searched: Searched) -> None:
    result = searched(IntentAdaptiveRetriever(legs(), fusion=WeightedSum()), "E1205")
    assert node_ids(result.hits) == ["k", "v"]
    assert [hit.score for hit in result.hits] == pytest.approx([0.7, 0.3])


def test_the_selector_of_intents_can_be_any(searched: Searched) -> None:
    by_meaning = EmbeddingSelector(FakeEmbedding())
    result = searched(IntentAdaptiveRetriever(legs(), selector=by_meaning), "code or name?")
    assert intent_of(result) == "exact"
    by_llm = LLMSelector(ScriptedLLM(["3"]))
    result = searched(IntentAdaptiveRetriever(legs(), selector=by_llm), "leave")
    assert intent_of(result) == [*default_intent_profiles()][2]


def test_intent_adapts_inside_a_pipeline(searched: Searched) -> None:
    english = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])
    rows = [(f"n{n}", 1 - n / 10, "text", {"lang": "en" if n % 2 else "zh"}) for n in range(6)]
    adaptive = IntentAdaptive(
        {
            "exact": IntentProfile("codes", refine=(Threshold(0.6), Top(2))),
            "definition": IntentProfile("what something is", filters=english),
        }
    )
    retriever = FixedRetriever(rows) >> adaptive
    exact = searched(retriever, "error E1205")
    assert node_ids(exact.hits) == ["n0", "n1"]
    assert exact.details["intents"] == [{"name": "exact", "reason": "a rule holds"}]
    assert node_ids(searched(retriever, "what is leave").hits) == ["n1", "n3", "n5"]
    other = searched(retriever, "annual leave")
    assert len(other.hits) == 6
    assert other.details["intents"] == [{"name": GENERAL, "reason": "no intent was found"}]
    assert repr(retriever).endswith(f">> {adaptive!r}")
    assert list(arguments_of(adaptive)["profiles"]) == ["exact", "definition"]  # type: ignore[call-overload]
    assert exact.trace is not None
    assert "Threshold(min_score=0.6)" in exact.trace.outline()


class Failing(Selector):
    """Raises, where others degrade the answer themselves."""

    def select(self, query: Query, choices: Sequence[Choice]) -> list[Selection]:
        raise ConnectionError("down")


def test_a_failing_selector_of_an_intent_stage_keeps_the_ranking_and_degrades(
    searched: Searched,
) -> None:
    profiles = {"exact": IntentProfile("codes", refine=(Top(1),))}
    failing = LLMSelector(ScriptedLLM([ConnectionError("LLM down")]))
    for selector, where in ((failing, repr(failing)), (Failing(), "intent")):
        stage = IntentAdaptive(profiles, selector=selector)
        result = searched(FixedRetriever([("a", 0.9), ("b", 0.5)]) >> stage, "E1205")
        assert node_ids(result.hits) == ["a", "b"]
        assert [part.where for part in result.degraded] == [where]


def test_an_intent_stage_refuses_weights_and_reorderings() -> None:
    with pytest.raises(ConfigurationError, match="use IntentAdaptiveRetriever"):
        IntentAdaptive(default_intent_profiles())
    last = IntentProfile("x", refine=(LongContextReorder(),))
    with pytest.raises(CompositionError, match=r"IntentAdaptive\(...\) >> LongContextReorder"):
        IntentAdaptive({"exact": last})


def test_intent_arguments_that_cannot_work_are_refused_at_construction() -> None:
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
            r"got a; write a \| b, or a mapping of names to retrievers",
        ),
        (
            lambda: IntentAdaptiveRetriever(
                legs(), profiles={GENERAL: IntentProfile("rest")}, selector=default_intent_rules()
            ),
            "rules name the routes",
        ),
    ]
    for make, problem in wrong:
        with pytest.raises(ConfigurationError, match=problem):
            make()
