"""Retrievers that search with the answers or wordings that a language model writes."""

import json
from collections.abc import Callable

import pytest
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext import RRF, HybridRetriever, Retriever
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers import HyDERetriever, MultiQueryRetriever
from llama_retrieval_ext.stages import HyDEFanOut, MultiQuery
from llama_retrieval_ext.testing import RetrieverContract, ScriptedLLM, sample_nodes
from llama_retrieval_ext.testing.fakes import FakeBackend, FakeEmbedding, FakeRetriever
from tests.cases import cases
from tests.searching import Searched


def echoing() -> ScriptedLLM:
    """Answers every question by the question and a word, in its own script."""

    def answer(prompt: str) -> str:
        question = prompt.partition("Question: ")[2].partition("\nPassage:")[0].strip()
        return f"1. {question[:200]} year\n2. {question[:200]} work"

    return ScriptedLLM(answer)


class PickyRetriever(FakeRetriever):
    """Fails for days off."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if query_bundle.query_str == "days off":
            raise ConnectionError("down")
        return super()._retrieve(query_bundle)


@pytest.fixture
def hybrid() -> HybridRetriever:
    model = FakeEmbedding()
    return HybridRetriever(FakeBackend(sample_nodes(model)), embed_model=model, top_k=20)


@pytest.mark.slow
class TestMultiQuery(RetrieverContract):
    @pytest.fixture
    def retriever(self, hybrid: HybridRetriever) -> Retriever:
        return MultiQueryRetriever(hybrid, echoing(), num_queries=2)


def test_a_multi_query_result_has_the_wordings_and_what_each_found(searched: Searched) -> None:
    source = FakeRetriever([("a", 0.9, "text of a", {"kb_id": "k"}), ("b", 0.5)])
    retriever = MultiQueryRetriever(source, ScriptedLLM(["days off\nholidays"]), num_queries=2)
    shown = json.loads(json.dumps(searched(retriever, "annual leave").to_dict()))
    assert shown["generated_queries"] == ["days off", "holidays"]
    assert shown["queries_count"] == 3
    details = shown["retrieval_details"]
    assert [part["query"] for part in details] == ["annual leave", "days off", "holidays"]
    assert [part["hits_count"] for part in details] == [2, 2, 2]
    assert [hit["node_id"] for hit in details[1]["hits"]] == ["a", "b"]
    assert details[1]["hits"][0]["score"] == 0.9
    assert details[1]["hits"][0]["kb_id"] == "k"
    assert [hit["node_id"] for hit in shown["hits"]] == ["a", "b"]


def test_a_hyde_result_has_the_documents_and_what_each_found(searched: Searched) -> None:
    llm = ScriptedLLM(["Staff have 25 days.", "Leave is 20 days."])
    retriever = HyDERetriever(FakeRetriever([("a", 0.9)]), llm, hyde_queries=2)
    shown = json.loads(json.dumps(searched(retriever, "annual leave").to_dict()))
    assert sorted(shown["hyde_queries"]) == ["Leave is 20 days.", "Staff have 25 days."]
    assert shown["hyde_queries_count"] == 2
    details = shown["retrieval_details"]
    assert [part["query"] for part in details] == ["annual leave", *shown["hyde_queries"]]
    assert [part["hits_count"] for part in details] == [1, 1, 1]


def test_multi_query_and_hyde_find_what_the_operators_find(hybrid: HybridRetriever) -> None:
    llm = echoing()
    for retriever, algebra in (
        (MultiQueryRetriever(hybrid, llm, num_queries=2, rrf_k=10), MultiQuery(llm, n=2)),
        (HyDERetriever(hybrid, llm, rrf_k=10), HyDEFanOut(llm)),
    ):
        expected = (algebra >> hybrid >> RRF(k=10)).search("annual leave", top_k=10).hits
        found = retriever.search("annual leave").hits
        assert [(hit.node_id, hit.score, hit.contributions) for hit in found] == [
            (hit.node_id, hit.score, hit.contributions) for hit in expected
        ]


def test_multi_query_returns_ten_hits_by_default() -> None:
    source = FakeRetriever([(f"n{place:02}", 1 - place / 100) for place in range(30)])
    assert len(MultiQueryRetriever(source, echoing()).retrieve("leave")) == 10
    assert len(MultiQueryRetriever(source, echoing(), top_k=None).retrieve("leave")) == 30


def test_a_wording_whose_search_fails_leaves_the_others(searched: Searched) -> None:
    source = PickyRetriever([("a", 0.9)])
    retriever = MultiQueryRetriever(source, ScriptedLLM(["days off"]), num_queries=1)
    result = searched(retriever, "annual leave")
    assert node_ids(result.hits) == ["a"]
    assert [part.where for part in result.degraded] == ["PickyRetriever"]
    details = result.details["retrieval_details"]
    assert isinstance(details, list)
    assert [part["hits_count"] for part in details] == [1, 0]


@cases(
    ("make", "message"),
    [
        (lambda: HyDERetriever(FakeRetriever(), ScriptedLLM([]), hyde_queries=0), "n must be"),
        (lambda: HyDERetriever(FakeRetriever(), ScriptedLLM([]), max_tokens=0), "max_tokens"),
        (lambda: MultiQueryRetriever(FakeRetriever(), ScriptedLLM([]), num_queries=0), "n must be"),
        (lambda: MultiQueryRetriever(FakeRetriever(), ScriptedLLM([]), rrf_k=-1), "k"),
    ],
)
def test_hyde_and_multi_query_arguments_out_of_range_are_refused(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()
