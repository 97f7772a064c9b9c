"""`HyDERetriever`: one retriever, asked with imagined answers."""

import json

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.pipeline.pipeline import Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.llm_queries import HyDERetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rewrite.hyde import HyDE, HyDEFanOut
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fake_backend import FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
from llama_retrieval_ext.testing.retriever_contract import RankingContract, RetrieverContract
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.searching import Searched


class EndlessLLM(ScriptedLLM):
    """Imagines an answer to every question: the question and a word."""

    def __init__(self) -> None:
        super().__init__([])

    def _next(self, prompt: str) -> tuple[float, str | BaseException]:
        question = prompt.partition("Question: ")[2].partition("\nPassage:")[0]
        return 0.0, f"{question} is regulated."


@pytest.fixture
def hybrid() -> HybridRetriever:
    model = FakeEmbedding()
    return HybridRetriever(FakeBackend(sample_nodes(model)), embed_model=model, top_k=20)


class TestContractWhereRankingsAreFused(RetrieverContract):
    @pytest.fixture
    def retriever(self, hybrid: HybridRetriever) -> Retriever:
        return HyDERetriever(hybrid, EndlessLLM())


class TestContractWhereEmbeddingsAreAveraged(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self, hybrid: HybridRetriever) -> Retriever:
        return Pipeline(hybrid, rewrites=[HyDE(EndlessLLM())], name="hyde")


def test_the_result_has_the_documents_and_what_each_found(searched: Searched) -> None:
    source = FakeRetriever([("a", 0.9)])
    llm = ScriptedLLM(["Staff have 25 days.", "Leave is 20 days."])
    result = searched(HyDERetriever(source, llm, hyde_queries=2), "annual leave")
    told = json.loads(json.dumps(result.to_dict()))
    assert sorted(told["hyde_queries"]) == ["Leave is 20 days.", "Staff have 25 days."]
    assert told["hyde_queries_count"] == 2
    details = told["retrieval_details"]
    assert [part["query"] for part in details] == ["annual leave", *told["hyde_queries"]]
    assert [part["hits_count"] for part in details] == [1, 1, 1]
    assert details[0]["hits"][0]["node_id"] == "a"


def test_averaging_asks_once_and_keeps_the_scores(searched: Searched) -> None:
    source = FakeRetriever([("a", 0.9)])
    llm = ScriptedLLM(["Staff have 25 days."])
    result = searched(HyDE(llm) >> source, "annual leave")
    (call,) = source.calls
    assert call.embedding_strs == ["annual leave", "Staff have 25 days."]
    assert [(hit.node_id, hit.score, hit.source) for hit in result.hits] == [
        ("a", 0.9, "FakeRetriever")
    ]
    assert result.details["hyde_queries"] == ["Staff have 25 days."]


def test_fused_it_is_what_the_algebra_gives(hybrid: HybridRetriever) -> None:
    retriever = HyDERetriever(hybrid, EndlessLLM(), rrf_k=10, top_k=None)
    algebra = HyDEFanOut(EndlessLLM()) >> hybrid >> RRF(k=10)
    expected = [(hit.node_id, hit.score) for hit in algebra.retrieve("annual leave")]
    assert [(hit.node_id, hit.score) for hit in retriever.retrieve("annual leave")] == expected


def test_what_is_plain_retrieved_leaves_no_details_behind(searched: Searched) -> None:
    source = FakeRetriever([("a", 0.9)])
    retriever = HyDERetriever(source, EndlessLLM())
    assert node_ids(retriever.retrieve("annual leave")) == ["a"]
    assert searched(retriever, "annual leave").details["hyde_queries_count"] == 1


def test_its_parts_show(hybrid: HybridRetriever) -> None:
    retriever = HyDERetriever(hybrid, EndlessLLM(), hyde_queries=2)
    first, second = retriever.outline().splitlines()
    assert "HyDE" in first
    assert "EndlessLLM(...), n=2" in first
    assert second == f"└─ {hybrid!r}"
    assert repr(retriever).startswith(f"HyDERetriever({hybrid!r}, EndlessLLM(...), hyde_queries=2")


def test_impossible_arguments_are_refused() -> None:
    source, llm = FakeRetriever(), ScriptedLLM([])
    with pytest.raises(ConfigurationError, match="n must be a whole number"):
        HyDERetriever(source, llm, hyde_queries=0)
    with pytest.raises(ConfigurationError, match="k"):
        HyDERetriever(source, llm, rrf_k=-1)
    with pytest.raises(ConfigurationError, match="max_tokens"):
        HyDERetriever(source, llm, max_tokens=0)
