from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from llama_index.core import MockEmbedding
from llama_index.core.schema import Document, TextNode

from llama_retrieval_ext import KnowledgeBase, open_store
from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.urls import Location
from tests.knowledge_base.engines import EMBEDDED, LEDGERS

Open = Callable[..., KnowledgeBase]


def store_at(url: str) -> Any:
    return open_store(url)


@pytest.fixture
def directory(url: str) -> Path:
    return Path(url.partition(":")[2])


@pytest.mark.slow
def test_added_documents_are_found_after_reopening(open_kb: Open) -> None:
    with open_kb() as kb:
        kb.add([Document(id_="d", text="annual leave")])
    again = open_kb()
    assert again.count() == 1
    for kind in ("vector", "keyword", "hybrid"):
        assert again.retriever(kind).retrieve("leave")[0].node.ref_doc_id == "d"


@LEDGERS
def test_a_new_knowledge_base_needs_an_embedding_model(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"needs embed_model=.*'local'"):
        KnowledgeBase.open(url)
    with pytest.raises(ConfigurationError, match="there is no knowledge base at"):
        KnowledgeBase.open(url, must_exist=True)
    path = Location.of(url).path
    assert path is None or not path.exists() or not url.startswith("embedded")


@pytest.mark.slow
@LEDGERS
def test_without_a_model_it_opens_with_the_recorded_one(open_kb: Open, url: str) -> None:
    with open_kb(embed_model="local") as kb:
        kb.add([Document(id_="d", text="annual leave")], show_progress=False)
    with KnowledgeBase.open(url) as again:
        assert again.retriever("vector").retrieve("leave")[0].node.ref_doc_id == "d"
        assert again.add([Document(text="sick leave")], show_progress=False).added == 1
        assert "'LocalEmbedding:" in repr(again)
    assert open_kb(embed_model="local").count() == 2


@pytest.mark.slow
@LEDGERS
def test_without_its_model_everything_works_that_embeds_nothing(open_kb: Open, url: str) -> None:
    with open_kb() as kb:
        kb.add([Document(id_=ref, text=f"{ref} leave") for ref in "abc"], show_progress=False)
    with KnowledgeBase.open(url, must_exist=True) as kb:
        assert kb.info().embed_model == "PickyEmbedding"
        assert [document.document_id for document in kb.documents()] == ["a", "b", "c"]
        assert kb.delete("a") == 1
        assert len(kb.retriever("keyword").retrieve("leave")) == 2
        for kind in ("vector", "hybrid"):
            with pytest.raises(ConfigurationError, match=r"'PickyEmbedding'.*embed_model="):
                kb.retriever(kind).retrieve("leave")
        report = kb.add([Document(id_="d", text="leave")], show_progress=False)
        assert "embed_model=" in str(report.failures["d"])


@pytest.mark.slow
@EMBEDDED
def test_a_copy_to_read_needs_no_embedding_model(open_kb: Open, url: str) -> None:
    with open_kb(embed_model="local") as kb:
        kb.add([Document(id_="d", text="annual leave")], show_progress=False)
    with KnowledgeBase.open(url, read_only=True) as reader:
        assert len(reader.search("leave").hits) == 1


@pytest.mark.slow
def test_a_store_that_was_filled_without_a_knowledge_base_is_refused(
    open_kb: Open, url: str
) -> None:
    with closing(store_at(url)) as store:
        store.add([TextNode(id_="n", text="x", embedding=[1.0, 0.0])])
    with pytest.raises(StoreFormatError, match=r"1 node not added.*VectorRetriever"):
        open_kb()
    with closing(store_at(url)) as store:
        assert store.count() == 1


@EMBEDDED
def test_an_empty_store_becomes_a_knowledge_base(open_kb: Open, directory: Path) -> None:
    EmbeddedVectorStore(directory).close()
    assert open_kb().add([Document(text="leave")]).added == 1


@pytest.mark.slow
def test_a_store_that_lost_nodes_is_reported_and_can_be_filled_again(
    open_kb: Open, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    documents = [Document(id_=f"d{number}", text="leave") for number in range(3)]
    with open_kb() as kb:
        kb.add(documents)
    with closing(store_at(url)) as store:
        store.delete("d1")
    kb = open_kb()
    assert "holds 2 nodes, and 3 were added" in caplog.text
    assert kb.add(documents).updated == 3
    assert len(kb.retriever("keyword").retrieve("leave")) == 3


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Free bytes that the system reports; more than the engine needs, less than adding does."""
    free = {"free": 10 * 2**20}
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(**free))
    return free


@pytest.fixture
def full(open_kb: Open, disk: dict[str, int]) -> KnowledgeBase:
    """A knowledge base of two documents on a disk that is nearly full."""
    room, disk["free"] = disk["free"], 2**40
    kb = open_kb()
    kb.add([Document(id_="d", text="annual leave"), Document(id_="e", text="sick leave")])
    disk["free"] = room
    return kb


CHECK = "llama_retrieval_ext.stores.embedded.store.check_room"


def found(kb: KnowledgeBase) -> set[str]:
    return {hit.text for hit in kb.retriever("keyword").retrieve("leave")}


@pytest.mark.slow
@EMBEDDED
def test_an_update_refused_for_lack_of_room_leaves_nothing_unfinished(
    full: KnowledgeBase, open_kb: Open, disk: dict[str, int]
) -> None:
    changes = [Document(id_="d", text="parental leave"), Document(id_="f", text="unpaid leave")]
    with pytest.raises(StoreUnavailableError, match=r"store_params=\{'min_free_bytes'"):
        full.add(changes)
    assert full._ledger.n_nodes_at_rest() == 2
    assert found(full) == {"annual leave", "sick leave"}
    assert full.delete("e") == 1
    full.close()
    again = open_kb()
    assert found(again) == {"annual leave"}
    disk["free"] = 2**40
    assert again.add(changes).updated == 1
    assert found(again) == {"parental leave", "unpaid leave"}


@EMBEDDED
def test_a_deletion_refused_for_lack_of_room_leaves_nothing_unfinished(
    full: KnowledgeBase, disk: dict[str, int]
) -> None:
    disk["free"] = 2**20
    with pytest.raises(StoreUnavailableError, match="1 MB are free"):
        full.delete("e")
    assert full._ledger.n_nodes_at_rest() == 2


@pytest.mark.slow
@EMBEDDED
@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_update_for_which_room_ran_out_is_undone_and_blocks_neither_deleting_nor_opening(
    full: KnowledgeBase,
    open_kb: Open,
    disk: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    is_deleted: bool,
) -> None:
    with monkeypatch.context() as patched:  # the disk fills up after the check
        patched.setattr(CHECK, lambda *_, **__: None)
        with pytest.raises(StoreUnavailableError, match="10 MB are free"):
            full.add([Document(id_="d", text="parental leave")])
    full.close()
    with open_kb() as again:
        assert found(again) == {"annual leave", "sick leave"}
        assert again.delete("e") == 1
        if is_deleted:
            assert again.delete("d") == 1
    disk["free"] = 2**40
    with open_kb() as again:
        assert found(again) == (set() if is_deleted else {"annual leave"})
        assert again.add([Document(id_="d", text="unpaid leave")]).added == is_deleted


@EMBEDDED
@pytest.mark.usefixtures("full")
def test_the_room_that_adding_leaves_is_a_store_param(open_kb: Open) -> None:
    with open_kb(store_params={"min_free_bytes": 2**20}) as kb:
        assert kb.add([Document(id_="f", text="unpaid leave")]).added == 1
    with pytest.raises(ConfigurationError, match="min_free_bytes must be a whole number"):
        open_kb(store_params={"min_free_bytes": -1})


def test_constructing_a_knowledge_base_says_to_open_it() -> None:
    with pytest.raises(ConfigurationError, match=r"KnowledgeBase\.open"):
        KnowledgeBase("embedded:./kb", embed_model=MockEmbedding(8))
