"""Two embedding models over the same documents."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_index.core import Document
from llama_index.core.schema import TextNode

from llama_retrieval_ext import BM25Retriever, KnowledgeBase
from llama_retrieval_ext.errors import ConfigurationError, ExecutionError
from llama_retrieval_ext.evaluation import Experiment, Level
from llama_retrieval_ext.evaluation.model_comparison import (
    compare_models,
    generated_questions,
    known_item_questions,
)
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM, sample_nodes

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


def test_known_items_are_found_by_keywords_and_marked() -> None:
    nodes = sample_nodes()
    judged = known_item_questions(nodes)
    assert len(judged) > 5
    assert judged.level is Level.NODE
    assert judged == known_item_questions(nodes)
    found = Experiment([BM25Retriever(nodes)], judged, measures=["RR"]).run(progress=False)
    assert found.results["RR"][0] > 0.9
    assert set(found.results["questions"]) == {"synthetic: known items"}


def test_a_sentence_in_several_nodes_is_answered_by_each_and_the_rarest_is_taken() -> None:
    common = "Every employee has paid annual leave."
    nodes = [
        TextNode(id_="a", text=f"{common} The zebra crossing near reception glows purple."),
        TextNode(id_="b", text=common),
        TextNode(id_="c", text=f"{common} 工地上的塔式起重机必须由持证人员操作。"),
        TextNode(id_="d", text="Short.", metadata={"title": "Working time"}),
    ]
    judged = known_item_questions(nodes)
    by_text = {text: set(judged.relevant[id_]) for id_, text in judged.queries.items()}
    assert by_text["The zebra crossing near reception glows purple"] == {"a"}
    assert by_text["工地上的塔式起重机必须由持证人员操作"] == {"c"}
    assert by_text["Every employee has paid annual leave"] == {"a", "b", "c"}
    assert by_text["Working time"] == {"d"}


def test_questions_of_a_knowledge_base() -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        with pytest.raises(ConfigurationError, match="no nodes"):
            known_item_questions(kb)
        kb.add([Document(id_="leave", text="Every employee has 25 days of paid annual leave.")])
        judged = known_item_questions(kb)
        (node,) = kb.get("leave")
    assert list(judged.relevant.values()) == [{node.node_id: 1}]


def test_an_llm_writes_questions_about_nodes() -> None:
    nodes = [TextNode(id_="leave", text="25 days"), TextNode(id_="pay", text="monthly")]
    llm = ScriptedLLM(["1. How many days?", "1. When is pay day?"])
    judged = generated_questions(nodes, llm)
    assert len(judged) == 2
    assert judged.origin == "synthetic: by an LLM"
    assert {id_ for own in judged.relevant.values() for id_ in own} == {"leave", "pay"}
    assert all(text.endswith("?") for text in judged.queries.values())
