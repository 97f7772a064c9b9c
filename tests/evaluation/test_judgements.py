"""Judgements at each level: nodes, documents, passages."""

from pathlib import Path

from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_retrieval_ext.evaluation.datasets import load_judgements
from llama_retrieval_ext.evaluation.judgements import BY_LLM, Judgements, Level


def test_saved_judgements_are_read_again(tmp_path: Path) -> None:
    known = Judgements({"q1": "leave?"}, {"q1": {"n1": 2, "n2": 0}}, Level.NODE, BY_LLM)
    known.save(tmp_path / "judged.jsonl")
    assert load_judgements(tmp_path / "judged.jsonl") == known


def test_each_level_knows_a_node_by_its_own_names() -> None:
    node = TextNode(
        id_="n1",
        text="Everybody has  25 days\nof leave.",
        metadata={"file_path": "/hr/leave.pdf", "file_name": "leave.pdf"},
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d1")},
    )
    queries = {"q": "leave"}
    documents = Judgements(queries, {"q": {"leave.pdf": 1}})
    assert documents.names_of(node, "q") == ["d1", "/hr/leave.pdf", "leave.pdf", "n1"]
    assert documents.names_of(TextNode(id_="alone"), "q") == ["alone"]
    by_tail = Judgements(queries, {"q": {"hr/leave.pdf": 1, "r/leave.pdf": 1}})
    assert "hr/leave.pdf" in by_tail.names_of(node, "q")
    assert "r/leave.pdf" not in by_tail.names_of(node, "q")
    assert Judgements(queries, {"q": {"n1": 1}}, Level.NODE).names_of(node, "q") == ["n1"]
    passage = Judgements(queries, {"q": {"25 days of leave": 1, "noon": 1}}, Level.PASSAGE)
    assert passage.names_of(node, "q") == ["25 days of leave", "n1"]
