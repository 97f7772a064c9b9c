"""Two embedding models over the same documents."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_index.core import Document

from llama_retrieval_ext.errors import ConfigurationError, ExecutionError
from llama_retrieval_ext.evaluation.model_comparison import compare_models
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.testing.fakes import FakeEmbedding

DOCUMENTS = [
    Document(id_=f"d{number}", text=f"Rule {number} asks for form {number} in colour {number}.")
    for number in range(12)
]


def filled(model: FakeEmbedding, documents: list[Document] = DOCUMENTS) -> KnowledgeBase:
    kb = KnowledgeBase.open("embedded::memory:", embed_model=model)
    kb.add(documents, show_progress=False)
    return kb


@pytest.fixture
def sharp() -> Iterator[KnowledgeBase]:
    with filled(FakeEmbedding(dim=500)) as kb:
        yield kb


@pytest.mark.slow
def test_a_model_that_knows_the_words_is_better_than_one_that_sees_one_dimension(
    sharp: KnowledgeBase, tmp_path: Path
) -> None:
    judged = tmp_path / "judged.csv"
    rows = [f"Which form does colour {number} need?,d{number}" for number in range(12)]
    judged.write_text("\n".join(["question,document", *rows]))
    with filled(FakeEmbedding(dim=1)) as blind:
        labelled, known = compare_models(blind, sharp, judged)
    assert (labelled.questions, labelled.n_questions) == ("labels", 12)
    assert (known.questions, known.n_questions) == ("synthetic: known items", 12)
    for compared in (labelled, known):
        assert compared.old < compared.new
        assert compared.p_value < 0.05
        assert compared.verdict == "the new model is better"


@pytest.mark.slow
def test_a_model_that_fails_is_named_and_its_questions_are_not_counted_as_wrong(
    sharp: KnowledgeBase,
) -> None:
    model = FakeEmbedding(dim=8)
    with filled(model) as failing:
        model.fail = ConnectionError("the server is down")
        with pytest.raises(ExecutionError, match=r"the new model fails.*the server is down"):
            compare_models(sharp, failing)


def test_documents_without_a_sentence_cannot_be_asked_for() -> None:
    kb = filled(FakeEmbedding(), [Document(text="Leave")])
    with kb, pytest.raises(ConfigurationError, match="nodes"):
        compare_models(kb, kb)
