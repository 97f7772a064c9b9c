"""Documents that are deleted, by filters, by scope or all, and the space that they leave."""

import random
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal
from unicodedata import normalize

import pytest
from llama_index.core.schema import Document, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext import KnowledgeBase, Scope, read_documents
from llama_retrieval_ext.errors import (
    InvalidFilterError,
    ScopeRequiredError,
    StoreClosedError,
    StoreUnavailableError,
)
from llama_retrieval_ext.knowledge_base import storage
from llama_retrieval_ext.knowledge_base.ledger.records import DocumentRecord
from llama_retrieval_ext.knowledge_base.write import Writer
from llama_retrieval_ext.stores.engine.records import Record
from llama_retrieval_ext.testing import FakeEmbedding
from llama_retrieval_ext.text import Tokenizer
from tests.cases import cases
from tests.knowledge_base.engines import EMBEDDED, LEDGERS
from tests.knowledge_base.nodes import book

Open = Callable[..., KnowledgeBase]
ACME, GLOBEX = Scope("acme"), Scope("globex")


def found(kb: KnowledgeBase) -> set[str]:
    hits = kb.retriever("keyword", top_k=100).retrieve("leave")
    return {str(hit.node.ref_doc_id) for hit in hits}


def where(key: str, value: object) -> MetadataFilters:
    return MetadataFilters.from_dicts([{"key": key, "value": value}])


def test_a_change_of_one_document_reads_the_records_of_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = list[str]()
    from_record = DocumentRecord.from_record

    def noted(record: Record) -> DocumentRecord:
        read.append(record.id)
        return from_record(record)

    kb = KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding())
    documents = [Document(id_=f"d{n}", text="leave", metadata={"n": n}) for n in range(30)]
    kb.add(documents, show_progress=False)
    monkeypatch.setattr(DocumentRecord, "from_record", noted)
    kb.add([Document(id_="d1", text="other")], show_progress=False)
    kb.share("d2", allowed=["hr"])
    kb.delete("d3")
    kb.delete_where(where("n", 4))
    kb.info()
    assert len(set(read)) == 4


def test_delete_where_deletes_documents_that_satisfy_the_filters(open_kb: Open) -> None:
    kb = open_kb()
    for scope in (ACME, GLOBEX):
        documents = [
            Document(id_=str(year), text="leave", metadata={"year": year, "of": "leave"})
            for year in (2022, 2023, 2024)
        ]
        kb.add(documents, scope=scope, show_progress=False)
    assert kb.delete_where(where("year", 2022), scope=ACME) == 1
    assert [document.document_id for document in kb.documents(scope=ACME)] == ["2023", "2024"]
    assert kb.delete_where(where("year", 2023)) == 2
    assert kb.delete_where(where("tenant_id", "globex"), scope=ACME) == 0
    assert [document.document_id for document in kb.documents()] == ["2022", "2024", "2024"]
    assert len(kb.retriever("keyword").retrieve("leave")) == kb.count() == 3
    with pytest.raises(InvalidFilterError):
        kb.delete_where(MetadataFilters(filters=[]))
    assert kb.count() == 3


@LEDGERS
def test_delete_where_deletes_all_nodes_of_a_document_if_one_satisfies_the_filters(
    open_kb: Open,
) -> None:
    kb = open_kb()
    nodes = book("a")
    nodes[3].metadata["page"] = 7
    kb.add([*nodes, *book("b")], show_progress=False)
    assert kb.delete_where(where("page", 7)) == 1
    assert found(kb) == {"b"}


@pytest.mark.slow
def test_clear_keeps_the_settings(open_kb: Open) -> None:
    kb = open_kb(tokenizer=Tokenizer(language="none"))
    kb.add([*book("a"), *book("b")], show_progress=False)
    assert kb.clear() == 2
    assert (kb.count(), kb.documents(), found(kb)) == (0, [], set())
    assert kb.clear() == 0
    kb.close()
    kb = open_kb()
    assert kb.add(book("a"), show_progress=False).added == 1
    assert found(kb) == {"a"}
    assert kb.retriever("keyword").retrieve('"leaves"') == []  # it has the tokenizer that it had


@LEDGERS
def test_clear_of_a_scope_keeps_the_other_scopes(open_kb: Open) -> None:
    kb = open_kb()
    for scope in (ACME, GLOBEX, None):
        kb.add([Document(id_="d", text="leave")], scope=scope, show_progress=False)
    assert kb.clear(scope=ACME) == 1
    assert [document.tenant_id for document in kb.documents()] == [None, "globex"]
    assert len(kb.retriever("keyword").retrieve("leave")) == 2


@EMBEDDED
def test_an_interrupted_clear_leaves_whole_documents(
    open_kb: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = open_kb()
    kb.add([*book("a"), *book("b"), *book("c")], show_progress=False)
    delete, calls = Writer.delete, []

    def failing(writer: Writer, keys: list[object]) -> None:
        calls.append(keys)
        if len(calls) == 2:
            raise StoreUnavailableError("the server is away")
        delete(writer, keys)  # type: ignore[arg-type]  # as the method has them

    monkeypatch.setattr(storage, "_MANY_NODES", 12)
    monkeypatch.setattr(Writer, "delete", failing)
    with pytest.raises(StoreUnavailableError, match="away"):
        kb.clear()
    assert {document.document_id: document.n_nodes for document in kb.documents()} == {
        "b": 12,
        "c": 12,
    }
    assert kb.clear() == 2


@pytest.mark.slow
@LEDGERS
def test_compact_does_not_change_the_contents(open_kb: Open) -> None:
    kb = open_kb()
    kb.add([*book("a"), *book("b")], show_progress=False)
    kb.delete("b")
    assert kb.compact() >= 0
    assert (found(kb), kb.count()) == ({"a"}, 12)
    kb.close()
    kb = open_kb()
    assert (found(kb), kb.count()) == ({"a"}, 12)
    assert kb.add([*book("a"), *book("b")], show_progress=False).unchanged == 1
    kb.close()
    with pytest.raises(StoreClosedError):
        kb.compact()


@EMBEDDED
@pytest.mark.slow
def test_compact_frees_disk_space(open_kb: Open, url: str) -> None:
    rng = random.Random(1)
    nodes = [
        TextNode(
            id_=f"n{number}", text="leave", embedding=[rng.gauss(0, 1) for _ in range(16)] * 64
        )
        for number in range(3000)
    ]
    kb = open_kb(embed_model=FakeEmbedding(dim=1024))
    kb.add(nodes, show_progress=False)
    full = size_bytes(url)
    kb.clear()
    assert size_bytes(url) < full / 2


def size_bytes(url: str) -> int:
    files = Path(url.partition(":")[2]).rglob("*")
    return sum(file.stat().st_blocks * 512 for file in files if file.is_file())


def test_a_required_scope_is_required_of_every_change(model: FakeEmbedding) -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=model, require_scope=True) as kb:
        kb.add([Document(id_="d", text="leave")], scope=ACME, show_progress=False)
        changes: list[Callable[[], object]] = [
            kb.clear,
            lambda: kb.get("d"),
            lambda: kb.delete_where(where("year", 2022)),
            lambda: kb.share("d", allowed=None),
            lambda: kb.sync([], name="wiki"),
        ]
        for change in changes:
            with pytest.raises(ScopeRequiredError):
                change()
        assert kb.count(scope=ACME) == 1


@pytest.mark.slow
@cases(
    ("name", "stored", "typed"),
    [("Café.txt", "NFD", "NFC"), ("한국어.txt", "NFC", "NFD"), ("が.txt", "NFD", "NFC")],
)
def test_names_are_one_however_their_accents_are_written(
    open_kb: Open,
    tmp_path: Path,
    name: str,
    stored: Literal["NFC", "NFD"],
    typed: Literal["NFC", "NFD"],
) -> None:
    folder, written = Path(mkdtemp(dir=tmp_path)), normalize(typed, name)
    (folder / normalize(stored, name)).write_text("Leave is 25 days.")
    kb = open_kb()
    kb.sync(folder, show_progress=False)
    for operator, value in ((FilterOperator.EQ, written), (FilterOperator.IN, [written, "x"])):
        equal = MetadataFilter(key="file_name", value=value, operator=operator)
        assert len(kb.search("leave", filters=MetadataFilters(filters=[equal]))) == 1
        other = MetadataFilters(filters=[equal], condition=FilterCondition.NOT)
        assert not kb.search("leave", filters=other)
    assert not read_documents(folder, exclude=[f"{written[:-4]}*"])
    assert len(read_documents(folder, include=[written])) == 1
    path = str(folder / written)
    assert len(kb.get(path)) == kb.share(path, allowed=["ann"]) == kb.delete(path) == 1
