from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import Document, NodeRelationship, RelatedNodeInfo, TextNode
from tqdm import tqdm  # type: ignore[import-untyped]

from llama_retrieval_ext import KnowledgeBase, read_documents
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base import preparation
from llama_retrieval_ext.knowledge_base.documents import batched
from tests.cases import cases
from tests.knowledge_base.nodes import node_of


@pytest.mark.slow
def test_a_generator_of_documents_is_read_in_batches(kb: KnowledgeBase) -> None:
    held: list[int] = []

    def reader() -> Iterator[Document]:
        for number in range(200):
            held.append(kb.count())
            yield Document(id_=f"d{number}", text="leave")

    report = kb.add(reader())
    assert report.added == kb.count() == 200
    assert held[-1] >= 128  # most of it was stored before the last was read


def test_nodes_of_a_document_may_be_anywhere_in_a_list(kb: KnowledgeBase) -> None:
    nodes = [node_of(f"d{n % 2}", f"n{n}", "leave") for n in range(6)]
    report = kb.add(nodes)
    assert (report.added, report.n_nodes) == (2, 6)
    assert [document.n_nodes for document in kb.documents()] == [3, 3]


def test_scattered_nodes_of_a_document_from_a_generator_are_an_error(kb: KnowledgeBase) -> None:
    nodes = [node_of(f"d{n % 2}", f"n{n}", "leave") for n in range(4)]
    report = kb.add(node for node in nodes)
    assert set(report.failures) == {"d0", "d1"}
    assert "in a row" in str(report.failures["d0"])


@pytest.mark.parametrize("total", ["15.0/15.0", "15.0char"])
def test_the_progress_bar_counts_characters_with_and_without_an_end(
    kb: KnowledgeBase,
    total: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def documents() -> Iterator[Document]:
        for number in range(3):
            yield Document(id_=f"d{number}", text="leave")

    monkeypatch.setattr(preparation, "_DELAY_S", 0)
    kb.add(list(documents()) if "/" in total else documents())
    assert total in capsys.readouterr().err


def test_show_progress_false_shows_no_progress_bar(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preparation, "_DELAY_S", 0)
    kb.add([Document(text="leave")], show_progress=False)
    assert capsys.readouterr().err == ""


@cases("items", [["text"], [Document(text="x"), None], iter([b"bytes"])])
def test_adding_another_type_than_documents_names_the_type(
    kb: KnowledgeBase, items: object
) -> None:
    with pytest.raises(ConfigurationError, match="expected LlamaIndex documents or nodes, got"):
        kb.add(items)  # type: ignore[arg-type]
    assert kb.count() == 0


@pytest.mark.slow
def test_the_bar_moves_while_one_long_document_is_embedded(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[float] = []

    class Bar(tqdm):  # type: ignore[misc]  # tqdm has no types
        def update(self, n: float = 1) -> None:
            moves.append(n)
            super().update(n)

    monkeypatch.setattr(preparation, "tqdm", Bar)
    monkeypatch.setattr(preparation, "_DELAY_S", 1e9)
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d")}
    nodes = [TextNode(text=f"Line {n:03}", relationships=source) for n in range(500)]
    assert kb.add(nodes).added == 1
    assert sum(moves) == pytest.approx(500 * len("Line 000"))
    assert len(moves) > 3


def test_documents_are_in_one_batch_while_they_are_few_and_short() -> None:
    short, long = Document(text="leave"), Document(text="leave. " * 300_000)
    of_short = batched([[short]] * 100, preparation.weight_of, preparation.BATCH_WEIGHT)
    assert [len(batch) for batch in of_short] == [64, 36]
    of_long = batched([[long]] * 5, preparation.weight_of, preparation.BATCH_WEIGHT)
    assert [len(batch) for batch in of_long] == [2, 2, 1]


@cases(
    ("items", "instead"),
    [
        ("handbook/", r"got str; for a file or folder write kb\.sync\('handbook/'\)"),
        (Path("a.md"), r"kb\.add\(read_documents\('a\.md'\)\)"),
        (["handbook/"], r"kb\.sync\('handbook/'\)"),
        ("x" * 1000, r"kb\.sync\('PATH'\)"),
        (None, r"got NoneType; write \[Document"),
        (7, r"got int; write \[Document"),
        (Document(text="leave"), r"got one Document; write \[\.\.\.\] around it"),
    ],
)
def test_what_is_no_list_of_documents_gets_what_to_write(
    kb: KnowledgeBase, items: Any, instead: str
) -> None:
    with pytest.raises(ConfigurationError, match=instead):
        kb.add(items)
    assert kb.count() == 0


def test_add_repeats_which_files_were_not_read(kb: KnowledgeBase, tmp_path: Path) -> None:
    report = kb.add(read_documents(tmp_path / "handbok"))
    assert report.added == 0
    assert [Path(name).name for name in report.skipped] == ["handbok"]
    assert "1 skipped" in str(report)
