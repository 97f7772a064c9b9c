"""Two embedding models over the same nodes."""

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.evaluation.model_comparison import Comparison
from llama_retrieval_ext.knowledge_base.report import CopyReport
from llama_retrieval_ext.retrievers.store_retriever import VectorRetriever
from llama_retrieval_ext.stores.open import open_store
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.text.tokenizer import Tokenizer

TEXTS = [f"Rule {number} asks for form {number} in colour {number}." for number in range(12)]
NODES = [TextNode(id_=f"n{number}", text=text) for number, text in enumerate(TEXTS)]
DONE = CopyReport(copied=12)


def searching(model: FakeEmbedding) -> VectorRetriever:
    store = open_store("embedded::memory:")
    store.add(
        [
            node.model_copy(update={"embedding": model.get_text_embedding(node.text)})
            for node in NODES
        ]
    )
    return VectorRetriever(store, embed_model=model)


def test_a_model_that_knows_the_words_is_better_than_one_that_sees_one_dimension() -> None:
    worse, better = searching(FakeEmbedding(dim=1)), searching(FakeEmbedding(dim=500))
    (compared,) = Comparison(None, Tokenizer()).compared(DONE, worse, better, NODES).comparisons
    assert (compared.n_questions, compared.new, compared.verdict) == (
        12,
        1.0,
        "the new model is better",
    )
    assert compared.old < 0.6
    assert compared.p_value < 0.05


def test_a_model_that_fails_is_named_and_its_questions_are_not_counted_as_wrong() -> None:
    works, fails = searching(FakeEmbedding()), searching(FakeEmbedding(dim=8))
    assert isinstance(fails.embed_model, FakeEmbedding)
    fails.embed_model.fail = ConnectionError("the server is down")
    report = Comparison(None, Tokenizer()).compared(DONE, works, fails, NODES)
    assert report.comparisons == ()
    assert "the new model fails" in report.not_compared
    assert "the server is down" in report.not_compared


@pytest.mark.parametrize("nodes", [[], [TextNode(text="Leave")]])
def test_nodes_without_a_sentence_give_no_comparison_but_a_reason(nodes: list[TextNode]) -> None:
    both = searching(FakeEmbedding())
    report = Comparison(None, Tokenizer()).compared(DONE, both, both, nodes)
    assert (report.copied, report.comparisons) == (12, ())
    assert "nodes" in report.not_compared
