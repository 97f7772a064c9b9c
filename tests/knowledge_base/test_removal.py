"""A knowledge base is removed as a whole, or says that it is being removed."""

from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any

import pytest
from llama_index.core.schema import Document, TextNode

from llama_retrieval_ext import KnowledgeBase, open_store
from llama_retrieval_ext.errors import (
    ConfigurationError,
    StoreClosedError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.knowledge_base import copy, storage
from llama_retrieval_ext.knowledge_base.ledger.journal import Journal
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding
from tests.knowledge_base.engines import BESIDE, EMBEDDED
from tests.programs import Program

pytestmark = pytest.mark.slow

Open = Callable[..., KnowledgeBase]
HOLDING = """
import sys
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.testing.fakes import FakeEmbedding

with KnowledgeBase.open(sys.argv[1], embed_model=FakeEmbedding(dim=16), must_exist=True):
    print("open", flush=True)
    sys.stdin.read()
"""


class Killed(BaseException):
    """The process ends here."""


def killed(*_: object) -> None:
    raise Killed


def fill(open_kb: Open, **options: Any) -> None:
    with open_kb(**options) as kb:
        kb.add([Document(id_=name, text=f"leave {name}") for name in "abc"], show_progress=False)


def folder_of(url: str) -> Path:
    return Path(url.partition(":")[2])


def test_after_removal_a_new_knowledge_base_can_be_created(open_kb: Open, url: str) -> None:
    fill(open_kb)
    KnowledgeBase.remove(url)
    with pytest.raises(ConfigurationError, match="there is no knowledge base"):
        open_kb(must_exist=True)
    with open_kb(embed_model=FakeEmbedding(dim=7)) as kb:  # with another model, if need be
        assert kb.documents() == []
        assert kb.add([Document(id_="d", text="leave")], show_progress=False).added == 1
    with open_kb(embed_model=FakeEmbedding(dim=7)) as kb:
        assert [hit.node.ref_doc_id for hit in kb.retriever("hybrid").retrieve("leave")] == ["d"]


def test_an_empty_knowledge_base_that_requires_a_scope_can_be_removed(
    open_kb: Open, url: str
) -> None:
    open_kb(require_scope=True).close()
    KnowledgeBase.remove(url)
    with pytest.raises(ConfigurationError, match="there is no knowledge base"):
        open_kb(must_exist=True)


def test_removal_of_a_missing_knowledge_base_is_refused_and_creates_nothing(url: str) -> None:
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="there is no knowledge base"):
            KnowledgeBase.remove(url)
    if "//" not in url:
        assert not folder_of(url).exists()


@pytest.mark.parametrize("engine", ["embedded", "qdrant"], indirect=True)
def test_removal_of_a_store_without_a_ledger_is_refused(url: str) -> None:
    with open_store(url) as store:
        store.add([TextNode(id_="n", text="x", embedding=[1.0, 0.0])])
    with pytest.raises(ConfigurationError, match="there is no knowledge base"):
        KnowledgeBase.remove(url)
    with open_store(url) as store:
        assert store.count() == 1


@pytest.mark.parametrize("after_nodes", [False, True])
def test_an_interrupted_removal_blocks_opening_and_can_be_repeated(
    open_kb: Open, url: str, after_nodes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(stored: storage.Storage) -> None:
        if after_nodes:
            stored.store.clear()
        raise Killed

    fill(open_kb)
    with monkeypatch.context() as patched:
        patched.setattr(storage.Storage, "remove", failing)
        with pytest.raises(Killed):
            KnowledgeBase.remove(url)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match=r"is being removed.*remove"):
            open_kb()
    with pytest.raises(StoreUnavailableError, match="is being removed"):
        copy.copy_knowledge_base(url, f"{url}-copy", show_progress=False)
    KnowledgeBase.remove(url)
    with pytest.raises(ConfigurationError, match="there is no knowledge base"):
        KnowledgeBase.remove(url)
    assert open_kb().count() == 0


@EMBEDDED
def test_removal_deletes_the_folder_unless_it_has_other_files(open_kb: Open, url: str) -> None:
    fill(open_kb)
    KnowledgeBase.remove(url)
    assert not folder_of(url).exists()
    fill(open_kb)
    (folder_of(url) / "thesis.txt").write_text("three years of work")
    KnowledgeBase.remove(url)
    assert [each.name for each in folder_of(url).iterdir()] == ["thesis.txt"]


@EMBEDDED
def test_a_store_whose_ledger_was_deleted_is_no_knowledge_base(
    open_kb: Open, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(open_kb)
    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedVectorStore, "remove", killed)
        with pytest.raises(Killed):
            KnowledgeBase.remove(url)
    with pytest.raises(ConfigurationError, match="there is no knowledge base"):
        open_kb(must_exist=True)
    with open_kb(embed_model=FakeEmbedding(dim=7)) as kb:
        assert kb.count() == 0
    KnowledgeBase.remove(url)
    assert not folder_of(url).exists()


@EMBEDDED
def test_removal_of_another_folder_is_refused(url: str) -> None:
    folder_of(url).mkdir()
    (folder_of(url) / "ledger.sqlite3").write_text("accounts")
    with pytest.raises(StoreFormatError, match="is not a store"):
        KnowledgeBase.remove(url)
    assert [each.name for each in folder_of(url).iterdir()] == ["ledger.sqlite3"]


@EMBEDDED
def test_removal_is_refused_while_open_in_this_process(open_kb: Open, url: str) -> None:
    kb = open_kb()
    kb.add([Document(id_="d", text="leave")], show_progress=False)
    with pytest.raises(StoreUnavailableError, match="is open in this process; close it first"):
        KnowledgeBase.remove(url)
    assert len(kb.retriever("keyword").retrieve("leave")) == kb.count() == 1
    kb.close()
    KnowledgeBase.remove(url)
    assert not folder_of(url).exists()


@EMBEDDED
def test_removal_is_refused_while_being_opened(
    open_kb: Open, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(open_kb)
    opened: list[KnowledgeBase] = []

    class Waiting:
        def __enter__(self) -> None:
            monkeypatch.undo()
            opened.append(open_kb())

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(storage, "lock_of", lambda _: Waiting())
    with pytest.raises(StoreUnavailableError, match="is open in this process; close it first"):
        KnowledgeBase.remove(url)
    assert opened[0].count() == len(opened[0].documents()) == 3


@pytest.mark.parametrize("engine", ["embedded", "milvus"], indirect=True)
def test_removal_is_refused_while_open_in_another_process(open_kb: Open, url: str) -> None:
    fill(open_kb, embed_model=FakeEmbedding(dim=16))
    with Program(HOLDING, url) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StoreUnavailableError, match="another process"):
            KnowledgeBase.remove(url)
        other.communicate()
    assert open_kb(embed_model=FakeEmbedding(dim=16)).count() == 3


def test_removal_in_memory_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is in memory"):
        KnowledgeBase.remove("embedded::memory:")


@BESIDE
def test_after_removal_open_objects_find_nothing_and_cannot_write(open_kb: Open, url: str) -> None:
    kb = open_kb()
    kb.add([Document(id_="d", text="leave")], show_progress=False)
    KnowledgeBase.remove(url)
    assert kb.documents() == []
    assert kb.retriever("hybrid").retrieve("leave") == []
    calls: list[Callable[[], object]] = [
        lambda: kb.add([Document(id_="e", text="leave")], show_progress=False),
        lambda: kb.delete("d"),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError, match="was removed since it was opened"):
            call()
    with pytest.raises(ConfigurationError, match="there is no knowledge base"):
        open_kb(must_exist=True)


@pytest.mark.parametrize("engine", ["qdrant", "elasticsearch"], indirect=True)
def test_a_writer_overtaken_by_removal_fails_and_leaves_nothing(
    open_kb: Open, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = open_kb()
    begin = Journal.begin

    def overtaken(journal: Journal, documents: Any) -> Any:
        monkeypatch.setattr(Journal, "begin", begin)
        KnowledgeBase.remove(url)
        return begin(journal, documents)

    monkeypatch.setattr(Journal, "begin", overtaken)
    with pytest.raises((StoreUnavailableError, StoreClosedError)):
        kb.add([Document(id_="d", text="leave")], show_progress=False)
    with open_store(url) as store:
        assert store.count() == 0
    with pytest.raises(ConfigurationError, match="there is no knowledge base"):
        open_kb(must_exist=True)


@pytest.mark.parametrize("engine", ["qdrant-server", "elasticsearch"], indirect=True)
def test_removal_is_refused_during_writes_and_works_after_the_writer_died(
    open_kb: Open, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two that share no lock are as good as two processes.
    monkeypatch.setattr(storage, "lock_of", lambda _: RLock())
    kb = open_kb()
    fill(open_kb)
    with monkeypatch.context() as patched:
        patched.setattr("llama_retrieval_ext.knowledge_base.write.Writer._upsert", killed)
        patched.setattr("llama_retrieval_ext.knowledge_base.write.Writer.settle", lambda _: None)
        with pytest.raises(Killed):
            kb.add([Document(id_="d", text="leave")], show_progress=False)
    with pytest.raises(StoreUnavailableError, match="is being written to by another process"):
        KnowledgeBase.remove(url)
    assert open_kb().get("a") != []
    monkeypatch.setattr(storage, "_PATIENCE_S", 0.0)
    KnowledgeBase.remove(url)
    with pytest.raises(ConfigurationError, match="there is no knowledge base"):
        open_kb(must_exist=True)
