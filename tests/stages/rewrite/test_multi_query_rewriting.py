"""The query is asked in other words too."""

import pytest
from llama_index.core.llms import LLM
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.store_retriever import VectorRetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rewrite.multi_query import MultiQuery
from llama_retrieval_ext.testing.fake_backend import FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.searching import Searched


@pytest.fixture
def source() -> FakeRetriever:
    return FakeRetriever([("a", 0.9), ("b", 0.5)])


def asked(source: FakeRetriever) -> set[str]:
    return {bundle.query_str for bundle in source.calls}


def test_the_query_and_its_variants_are_asked(source: FakeRetriever, searched: Searched) -> None:
    llm = ScriptedLLM(["1. days off\n2. holiday entitlement"])
    result = searched(MultiQuery(llm, n=2) >> source >> RRF(), "annual leave")
    assert asked(source) == {"annual leave", "days off", "holiday entitlement"}
    assert result.degraded == ()
    assert result.details == {
        "generated_queries": ["days off", "holiday entitlement"],
        "queries_count": 3,
    }
    assert node_ids(result.hits) == ["a", "b"]


def test_the_original_may_be_left_out(source: FakeRetriever, searched: Searched) -> None:
    stage = MultiQuery(ScriptedLLM(["days off"]), include_original=False)
    result = searched(stage >> source >> RRF(), "annual leave")
    assert asked(source) == {"days off"}
    assert result.details["queries_count"] == 1


def test_f13_variants_that_repeat_the_query_or_each_other_are_dropped(
    source: FakeRetriever, searched: Searched
) -> None:
    llm = ScriptedLLM(["Annual  leave?\ndays off\nDAYS OFF\nholidays"])
    searched(MultiQuery(llm) >> source >> RRF(), "annual leave")
    assert asked(source) == {"annual leave", "days off", "holidays"}
    assert len(source.calls) == 3


def test_f11_scores_are_those_of_the_queries_that_ran(
    source: FakeRetriever, searched: Searched
) -> None:
    result = searched(MultiQuery(ScriptedLLM([""]), n=3) >> source >> RRF(k=60), "annual leave")
    assert [hit.score for hit in result.hits] == [1 / 61, 1 / 62]


def test_f12_a_variant_that_came_twice_costs_one_retrieval(
    source: FakeRetriever, searched: Searched
) -> None:
    llm = ScriptedLLM(["annual leave\nannual leave\nannual leave"])
    result = searched(MultiQuery(llm) >> source >> RRF(), "annual leave")
    assert len(source.calls) == 1
    assert [part.where for part in result.degraded] == ["MultiQuery"]


def test_at_most_n_variants_are_asked(source: FakeRetriever, searched: Searched) -> None:
    llm = ScriptedLLM(["days off\nholidays\nvacation\ntime off"])
    searched(MultiQuery(llm, n=2) >> source >> RRF(), "annual leave")
    assert asked(source) == {"annual leave", "days off", "holidays"}


def test_chinese_stays_chinese(source: FakeRetriever, searched: Searched) -> None:
    llm = ScriptedLLM(["员工年假天数\nannual leave\n如何休假"])
    searched(MultiQuery(llm) >> source >> RRF(), "年假")
    assert asked(source) == {"年假", "员工年假天数", "如何休假"}


def test_the_prompt_has_the_query_the_number_and_the_wish_for_its_language() -> None:
    llm = ScriptedLLM(["days off"])
    (MultiQuery(llm, n=7) >> FakeRetriever() >> RRF()).retrieve("annual leave")
    (prompt,) = llm.prompts
    assert "annual leave" in prompt
    assert "7" in prompt
    assert "language of the question" in prompt
    assert "与问题相同的语言" in prompt
    assert "{" not in prompt


def test_f14_a_prompt_with_json_in_it_is_filled(source: FakeRetriever, searched: Searched) -> None:
    llm = ScriptedLLM(['{"queries": ["days off"]}'])
    prompt = 'Write {num_queries} queries for {query} as {"queries": ["..."]}'
    searched(MultiQuery(llm, n=1, prompt=prompt) >> source >> RRF(), "annual leave")
    assert llm.prompts == ['Write 1 queries for annual leave as {"queries": ["..."]}']
    assert asked(source) == {"annual leave", "days off"}


def test_scope_and_filters_go_with_every_variant() -> None:
    source = FakeRetriever(
        [("a", 0.9, "a", {"tenant_id": "acme"}), ("g", 0.8, "g", {"tenant_id": "globex"})]
    )
    fused = MultiQuery(ScriptedLLM(["days off"])) >> source >> RRF()
    assert node_ids(fused.for_scope(Scope("acme")).retrieve("annual leave")) == ["a"]


def test_variants_are_not_embedded_as_the_query_was() -> None:
    source = FakeRetriever([("a", 0.9)])
    query = Query("annual leave", embedding=[1.0], custom_embedding_strs=["leave"])
    (MultiQuery(ScriptedLLM(["days off"])) >> source >> RRF()).retrieve(query)
    embedded = {call.query_str: (call.embedding, call.embedding_strs) for call in source.calls}
    assert embedded == {"annual leave": ([1.0], ["leave"]), "days off": (None, ["days off"])}


def test_a_query_without_text_is_not_reworded() -> None:
    source, llm = FakeRetriever([("a", 0.9)]), ScriptedLLM([])
    result = (MultiQuery(llm) >> source >> RRF()).search(Query("", embedding=[1.0]))
    assert node_ids(result.hits) == ["a"]
    assert result.degraded == ()
    assert llm.prompts == []


def test_four_queries_on_three_vector_legs_are_four_embeddings(
    corpus: list[TextNode], embed_model: FakeEmbedding, searched: Searched
) -> None:
    legs = [VectorRetriever(FakeBackend(corpus), embed_model=embed_model) for _ in range(3)]
    llm = ScriptedLLM(["days off\nholiday entitlement\nvacation"])
    searched(MultiQuery(llm) >> (legs[0] | legs[1] | legs[2]) >> RRF(), "annual leave")
    assert sorted(embed_model.calls) == [
        "annual leave",
        "days off",
        "holiday entitlement",
        "vacation",
    ]


def test_stages_of_one_answer_add_up_in_its_details(source: FakeRetriever) -> None:
    inner = MultiQuery(ScriptedLLM(["holidays", "vacation"]), n=1) >> source >> RRF()
    outer = MultiQuery(ScriptedLLM(["days off"]), n=1) >> inner >> RRF()
    details = outer.search("annual leave").details
    assert isinstance(details["generated_queries"], list)
    assert sorted(details["generated_queries"]) == ["days off", "holidays", "vacation"]
    assert details["queries_count"] == 6


def test_f15_there_is_no_model_by_default() -> None:
    with pytest.raises(ConfigurationError, match="pass a LlamaIndex LLM"):
        MultiQuery(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_a_number_that_is_none_is_refused(n: int) -> None:
    with pytest.raises(ConfigurationError, match="n must be a whole number"):
        MultiQuery(ScriptedLLM([]), n=n)


def test_a_prompt_without_the_query_is_refused() -> None:
    llm: LLM = ScriptedLLM([])
    with pytest.raises(ConfigurationError, match=r"\{query\}"):
        MultiQuery(llm, prompt="Write {n} queries.")
