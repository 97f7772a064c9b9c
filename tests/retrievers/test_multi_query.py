"""`MultiQueryRetriever`: one retriever, the query in several wordings."""

import json

import pytest
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext.errors import ConfigurationError, TooFewLegsError
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.llm_queries import MultiQueryRetriever
from llama_retrieval_ext.retrievers.store_retriever import VectorRetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rewrite.multi_query import MultiQuery
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fake_backend import FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
from llama_retrieval_ext.testing.retriever_contract import RankingContract, RetrieverContract
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.searching import Searched


class EndlessLLM(ScriptedLLM):
    """Rewords every question by a word behind it, in its own script."""

    def __init__(self) -> None:
        super().__init__([])

    def _next(self, prompt: str) -> tuple[float, str | BaseException]:
        question = prompt.partition("Question: ")[2].strip()
        return 0.0, f"1. {question[:200]} year\n2. {question[:200]} work"


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


class TestContract(RetrieverContract):
    @pytest.fixture
    def retriever(self, hybrid: HybridRetriever) -> Retriever:
        return MultiQueryRetriever(hybrid, EndlessLLM(), num_queries=2)


class TestContractOfOneInAnother(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self, hybrid: HybridRetriever) -> Retriever:
        inner = MultiQueryRetriever(hybrid, EndlessLLM(), num_queries=1, top_k=None)
        return MultiQueryRetriever(inner, EndlessLLM(), num_queries=1)


def test_the_result_has_the_queries_and_what_each_found(searched: Searched) -> None:
    source = FakeRetriever([("a", 0.9, "text of a", {"kb_id": "k"}), ("b", 0.5)])
    llm = ScriptedLLM(["days off\nholidays"])
    retriever = MultiQueryRetriever(source, llm, num_queries=2)
    told = json.loads(json.dumps(searched(retriever, "annual leave").to_dict()))
    assert told["generated_queries"] == ["days off", "holidays"]
    assert told["queries_count"] == 3
    details = told["retrieval_details"]
    assert [part["query"] for part in details] == ["annual leave", "days off", "holidays"]
    assert [part["hits_count"] for part in details] == [2, 2, 2]
    assert [hit["node_id"] for hit in details[1]["hits"]] == ["a", "b"]
    assert details[1]["hits"][0]["score"] == 0.9
    assert details[1]["hits"][0]["kb_id"] == "k"
    assert [hit["node_id"] for hit in told["hits"]] == ["a", "b"]


def test_it_is_what_the_algebra_gives(hybrid: HybridRetriever) -> None:
    retriever = MultiQueryRetriever(hybrid, EndlessLLM(), num_queries=2, rrf_k=10, top_k=None)
    algebra = MultiQuery(EndlessLLM(), n=2) >> hybrid >> RRF(k=10)
    expected = algebra.search("annual leave").hits
    hits = retriever.search("annual leave").hits
    assert [(hit.node_id, hit.score) for hit in hits] == [
        (hit.node_id, hit.score) for hit in expected
    ]
    assert hits[0].contributions == expected[0].contributions


def test_its_parts_show(hybrid: HybridRetriever) -> None:
    retriever = MultiQueryRetriever(hybrid, EndlessLLM(), num_queries=2)
    assert retriever.outline().splitlines() == [
        "MultiQuery(EndlessLLM(...), n=2) >> RRF()",
        f"└─ {hybrid!r}",
    ]
    assert repr(retriever) == f"MultiQueryRetriever({hybrid!r}, EndlessLLM(...), num_queries=2)"


def test_ten_hits_come_back_unless_told_otherwise() -> None:
    source = FakeRetriever([(f"n{place:02}", 1 - place / 100) for place in range(30)])
    assert len(MultiQueryRetriever(source, EndlessLLM()).retrieve("leave")) == 10
    assert len(MultiQueryRetriever(source, EndlessLLM(), top_k=None).retrieve("leave")) == 30


def test_a_query_that_fails_leaves_the_others(searched: Searched) -> None:
    source = PickyRetriever([("a", 0.9)])
    retriever = MultiQueryRetriever(source, ScriptedLLM(["days off"]), num_queries=1)
    result = searched(retriever, "annual leave")
    assert node_ids(result.hits) == ["a"]
    assert [part.where for part in result.degraded] == ["PickyRetriever"]
    details = result.details["retrieval_details"]
    assert isinstance(details, list)
    assert [part["hits_count"] for part in details] == [1, 0]


def test_a_base_retriever_that_fails_is_an_error(searched: Searched) -> None:
    source = FakeRetriever(error=ConnectionError("down"))
    with pytest.raises(TooFewLegsError, match="down"):
        searched(MultiQueryRetriever(source, ScriptedLLM(["days off"])), "annual leave")


def test_four_queries_on_three_vector_legs_are_four_embeddings(
    corpus: list[TextNode], embed_model: FakeEmbedding, searched: Searched
) -> None:
    legs = [VectorRetriever(FakeBackend(corpus), embed_model=embed_model) for _ in range(3)]
    base = (legs[0] | legs[1] | legs[2]) >> RRF()
    llm = ScriptedLLM(["days off\nholidays\nvacation"])
    searched(MultiQueryRetriever(base, llm), "annual leave")
    assert sorted(embed_model.calls) == ["annual leave", "days off", "holidays", "vacation"]


def test_the_fusion_can_be_watched_while_it_grows() -> None:
    source = FakeRetriever([("a", 0.9)])
    retriever = MultiQueryRetriever(source, ScriptedLLM(["days off"]), num_queries=1)
    results = list(retriever.stream("annual leave"))
    assert len(results) >= 2
    assert node_ids(results[-1].hits) == ["a"]
    assert len(results[-1].hits[0].contributions) == 2


def test_impossible_arguments_are_refused() -> None:
    source, llm = FakeRetriever(), ScriptedLLM([])
    with pytest.raises(ConfigurationError, match="n must be a whole number"):
        MultiQueryRetriever(source, llm, num_queries=0)
    with pytest.raises(ConfigurationError, match="k"):
        MultiQueryRetriever(source, llm, rrf_k=-1)
    with pytest.raises(ConfigurationError, match="pass a LlamaIndex LLM"):
        MultiQueryRetriever(source, None)  # type: ignore[arg-type]
