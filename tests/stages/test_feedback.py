"""Pseudo-relevance feedback: RM3 for keywords, Rocchio for vectors."""

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import BM25Retriever, KnowledgeBase, Query, Scope
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.feedback import relevance_model, rocchio
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.stages import RM3, Rocchio
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever

TEXTS = {
    "rule": "Annual leave: employees may take vacation.",
    "form": "Vacation forms lie at the desk. Vacation forms are blue.",
    "menu": "Lunch is at noon.",
    "zh": "年假申请须提前提交, 休假安排由主管批准。",
    "zh2": "休假安排见公告。",
}


def nodes() -> list[TextNode]:
    return [TextNode(id_=id_, text=text) for id_, text in TEXTS.items()]


@pytest.mark.parametrize(("question", "further"), [("annual leave", "form"), ("年假", "zh2")])
def test_rm3_finds_what_shares_words_with_the_first_hits(question: str, further: str) -> None:
    bm25 = BM25Retriever(nodes=nodes(), top_k=5)
    assert further not in node_ids(bm25.retrieve(question))
    result = (RM3(bm25, hits=1, terms=20) >> bm25).search(question)
    assert node_ids(result)[0] in ("rule", "zh")  # its own words count most
    assert further in node_ids(result)
    assert result.details["feedback_terms"]


def test_rm3_leaves_a_query_alone_that_finds_nothing() -> None:
    behind = FakeRetriever()
    (RM3(FakeRetriever()) >> behind).retrieve("annual leave")
    assert behind.calls[0].query_str == "annual leave"


def test_rocchio_moves_the_embedding_to_the_hits_and_keeps_the_scope() -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        kb.add(nodes(), scope=Scope("acme"), show_progress=False)
        kb.add([TextNode(id_="other", text=TEXTS["rule"])], scope=Scope("globex"))
        vector = kb.retriever("vector", top_k=3)
        query = Query("annual leave", scope=Scope("acme"))
        moved = (Rocchio(vector, hits=1, alpha=0.0) >> vector).retrieve(query)
        assert moved[0].node_id == "rule"
        assert moved[0].score == pytest.approx(1.0)
        assert query.embedding is None
        assert "other" not in node_ids(moved)


def test_feedback_without_embeddings_degrades_and_answers() -> None:
    result = (Rocchio(FakeRetriever([("a", 0.5)])) >> FakeRetriever([("a", 0.5)])).search("leave")
    assert node_ids(result) == ["a"]
    assert "no embedding" in result.degraded[0].reason


def test_formulas_by_hand() -> None:
    mixed = relevance_model(
        {"a": 1, "b": 1}, [{"c": 1}, {"d": 4}], [3.0, 1.0], terms=2, original=0.4
    )
    assert mixed == pytest.approx({"a": 0.2, "b": 0.2, "c": 0.6 * 0.75, "d": 0.6 * 0.25})
    assert relevance_model({"a": 1}, [{}], [-1.0]) == {"a": 1.0}
    assert rocchio([2.0, 0.0], [], alpha=0.5) == [2.0, 0.0]
    for wrong in ({"terms": 0}, {"original": 2.0}):
        with pytest.raises(ConfigurationError):
            RM3(FakeRetriever(), **wrong)
    with pytest.raises(ConfigurationError):
        Rocchio(FakeRetriever(), alpha=0.0, beta=0.0)
