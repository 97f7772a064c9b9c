"""Judgements from each source that people have them in."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from pydantic import BaseModel

from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
from llama_retrieval_ext.evaluation.datasets import load_judgements
from llama_retrieval_ext.evaluation.judgements import BY_LLM, Judgements, Level
from tests.cases import cases


class Pairs:
    """As LlamaIndex's EmbeddingQAFinetuneDataset, which this version may not have."""

    def __init__(self) -> None:
        self.queries = {"q1": "annual leave"}
        self.corpus = {"n1": "25 days"}
        self.relevant_docs = {"q1": ["n1"]}


class Example(BaseModel):
    """As LlamaIndex's LabelledRagDataExample."""

    query: str
    query_by: dict[str, Any] | None = None
    reference_contexts: list[str] | None = None


def test_csv_tsv_jsonl_and_pandas_say_the_same(tmp_path: Path) -> None:
    rows = [
        {"question": "annual leave", "document": "leave.pdf", "grade": 2},
        {"question": "annual leave", "document": "pay.pdf", "grade": 1},
        {"question": "lunch", "document": "canteen.md", "grade": 1},
    ]
    import pandas as pd  # noqa: PLC0415 - slow to import

    table = pd.DataFrame(rows)
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "a.jsonl").write_text(lines)
    expected = Judgements(
        {"annual leave": "annual leave", "lunch": "lunch"},
        {"annual leave": {"leave.pdf": 2, "pay.pdf": 1}, "lunch": {"canteen.md": 1}},
    )
    triples = [tuple(row.values()) for row in rows]
    nested = {"annual leave": {"leave.pdf": 2, "pay.pdf": 1}, "lunch": "canteen.md"}
    for source in (
        table,
        rows,
        triples,
        nested,
        *(tmp_path / f"a.{kind}" for kind in ("csv", "tsv", "jsonl")),
    ):
        assert load_judgements(source) == expected


@pytest.mark.parametrize("qrels", ["qrels.tsv", "qrels/test.tsv"])
def test_beir_folder(tmp_path: Path, qrels: str) -> None:
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "leave"}\n')
    (tmp_path / qrels).parent.mkdir(exist_ok=True)
    (tmp_path / qrels).write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nother\td2\t1\n")
    assert load_judgements(tmp_path).relevant == {"q1": {"d1": 1}}


def test_the_datasets_of_llama_index_and_their_files(tmp_path: Path) -> None:
    pairs = load_judgements(Pairs())
    assert (pairs.relevant, pairs.level) == ({"q1": {"n1": 1}}, Level.NODE)
    (tmp_path / "pairs.json").write_text(json.dumps(vars(Pairs())))
    assert load_judgements(tmp_path / "pairs.json") == pairs
    examples = [
        Example(query="leave?", query_by={"type": "ai"}, reference_contexts=["25 days"]),
        Example(query="no context"),
    ]
    rag = load_judgements(SimpleNamespace(examples=examples))
    assert (rag.relevant, rag.level) == ({"leave?": {"25 days": 1}}, Level.PASSAGE)
    assert rag.is_synthetic
    saved = {"examples": [example.model_dump() for example in examples]}
    (tmp_path / "rag.json").write_text(json.dumps(saved))
    assert load_judgements(tmp_path / "rag.json") == rag


def test_ir_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    query = SimpleNamespace(query_id="1", default_text=lambda: "leave")
    qrel = SimpleNamespace(query_id="1", doc_id="d1", relevance=2)
    fake = ModuleType("ir_datasets")
    fake.load = lambda id_: SimpleNamespace(  # type: ignore[attr-defined]
        queries_iter=lambda: [query], qrels_iter=lambda: [qrel]
    )
    monkeypatch.setitem(sys.modules, "ir_datasets", fake)
    assert load_judgements("ir_datasets:beir/scifact/test").relevant == {"1": {"d1": 2}}
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(MissingDependencyError, match="ir-datasets"):
        load_judgements("ir_datasets:beir/scifact/test")


def test_a_source_without_judgements_is_an_error_with_the_expected_form(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("question,where\nleave,here\n")
    with pytest.raises(ConfigurationError, match=r"document.*'where': 'here'|'where': 'here'"):
        load_judgements(tmp_path / "a.csv")
    (tmp_path / "a.json").write_text("[{}]")
    for source, what in (
        (tmp_path, "no BEIR folder"),
        (tmp_path / "b.csv", "ir_datasets:ID"),
        (tmp_path / "a.json", "LabelledRagDataset"),
        (3, "got int"),
        (["leave"], r"'leave'; write \(question, document\)"),
        ([("leave",)], r"write \(question, document\)"),
        ({}, "no judg|nothing|no question"),
    ):
        with pytest.raises(ConfigurationError, match=what):
            load_judgements(source)
    with pytest.raises(ConfigurationError, match="nothing is relevant"):
        Judgements({"q1": "leave"}, {"q1": {"n1": 0}})


@cases(
    ("file", "content", "words"),
    [
        ("a.jsonl", b'{"question": "leave"', "cannot be read: JSONDecodeError"),
        ("a.jsonl", b'["leave", "leave.pdf"]', "no JSON object"),
        ("a.jsonl", b'{"question": "leave", "document": ["a", "b"]}', "a row for each"),
        ("a.json", b"{", "cannot be read: JSONDecodeError"),
        ("a.csv", "question,document\nfrühstück,a\n".encode("latin-1"), "UnicodeDecodeError"),
        ("a.csv", b"question,document,grade\nleave,leave.pdf,high\n", "a grade is a number"),
        ("a.csv", b"question,document,grade\nleave,leave.pdf,inf\n", "a grade is a number"),
        ("a.csv", b"question,document\nleave," + b"a" * 200_000, "field larger than"),
        ("a.json", b'{"queries": {"q1": "leave"}, "relevant_docs": ["d1"]}', "cannot be read"),
        ("a.json", b'{"examples": [1]}', "cannot be read"),
        ("qrels.tsv", b"query-id\tcorpus-id\tscore\nq1\td1\n", "cannot be read: ValueError"),
    ],
)
def test_a_malformed_file_is_named(file: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "leave"}\n')
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ConfigurationError, match=words):
        load_judgements(tmp_path if file == "qrels.tsv" else tmp_path / file)


def test_an_empty_cell_of_a_pandas_table_is_a_missing_value() -> None:
    import pandas as pd  # noqa: PLC0415 - slow to import

    table = pd.DataFrame(
        {"question": ["leave"], "document": ["leave.pdf"], "grade": [float("nan")]}
    )
    assert load_judgements(table).relevant == {"leave": {"leave.pdf": 1}}
    with pytest.raises(ConfigurationError, match="what answers it"):
        load_judgements(table.assign(document=float("nan")))


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
