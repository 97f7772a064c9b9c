"""The ledger beside the store in an engine, and the settings that it records."""

from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core import MockEmbedding
from llama_index.core.schema import Document, NodeRelationship, RelatedNodeInfo, TextNode

from llama_retrieval_ext import KnowledgeBase, Scope, open_store
from llama_retrieval_ext.errors import (
    ConfigurationError,
    ModelMismatchError,
    StoreClosedError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.knowledge_base import storage
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
from llama_retrieval_ext.testing import FakeEmbedding
from tests.knowledge_base.engines import BESIDE

pytestmark = pytest.mark.slow

# For tests of the ledger, which is the same beside each store.
ONE = pytest.mark.parametrize("engine", ["qdrant"], indirect=True)

Open = Callable[..., KnowledgeBase]


def store_at(url: str) -> Any:
    return open_store(url)


def ledger_of(store: Any) -> Any:
    return store.beside("__ledger")


@BESIDE
def test_opening_creates_the_ledger_and_no_collection_of_nodes(open_kb: Open, url: str) -> None:
    with open_kb() as kb:
        assert kb.documents() == []
        assert kb.retriever("hybrid").retrieve("leave") == []
    store = store_at(url)
    assert store.dimension is None
    assert ledger_of(store).count() == 1
    store.close()


@BESIDE
def test_writing_after_the_ledger_was_deleted_fails_and_writes_nothing(
    open_kb: Open, url: str
) -> None:
    kb = open_kb()
    kb.add([Document(id_="d", text="leave")])
    store = store_at(url)
    ledger_of(store).clear()
    with pytest.raises(StoreClosedError, match="was removed since it was opened"):
        kb.delete("d")
    with pytest.raises(StoreFormatError, match="1 node not added"):
        kb.add([Document(id_="e", text="leave")])
    assert store.count() == 1
    store.close()
    with pytest.raises(StoreFormatError, match="1 node not added"):
        open_kb()


@ONE
def test_a_store_that_lost_nodes_opens_without_write_permission(
    open_kb: Open, url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_kb() as kb:
        kb.add([Document(id_=name, text="leave") for name in "ab"])
    store = store_at(url)
    store.delete("a")
    store.close()

    class ReadOnly(Ledger):
        def __init__(self, records: Any, **options: Any) -> None:
            super().__init__(records, **options)
            records.replace = forbidden

    def forbidden(*_: object, **__: object) -> None:
        raise StoreUnavailableError("the key may only read")

    monkeypatch.setattr(storage, "Ledger", ReadOnly)
    kb = open_kb()
    assert "the key may only read" in caplog.text
    assert len(kb.documents()) == 2
    assert [hit.node.ref_doc_id for hit in kb.retriever("keyword").retrieve("leave")] == ["b"]


@ONE
def test_a_knowledge_base_recreated_with_another_model_refuses_old_writers(
    open_kb: Open, url: str
) -> None:
    old = open_kb()
    store = store_at(url)
    ledger_of(store).clear()
    store.close()
    new = open_kb(embed_model=MockEmbedding(16))
    for _ in range(2):
        with pytest.raises(ModelMismatchError, match=r"MockEmbedding.*PickyEmbedding"):
            old.add([Document(id_="e", text="annual leave")])
    assert new.count() == 0


@BESIDE
def test_the_ledger_keeps_documents_with_many_nodes(open_kb: Open) -> None:
    nodes = [TextNode(id_=f"{number:04} {'n' * 200}", text="leave") for number in range(300)]
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="book")}
    book = [node.model_copy(update={"relationships": source}) for node in nodes]
    with open_kb() as kb:
        assert kb.add(book).added == 1
    with open_kb() as kb:
        assert kb.documents()[0].n_nodes == 300
        assert kb.add(book).unchanged == 1
        assert kb.add(book[:200]).updated == 1
        assert kb.count() == 200
    assert open_kb().delete("book") == 1


@BESIDE
@pytest.mark.parametrize("many_tenants", [False, True])
def test_tenants_are_separate_with_and_without_grouping_by_the_engine(
    open_kb: Open, many_tenants: bool
) -> None:
    acme, globex = Scope("acme"), Scope("globex")
    with open_kb(many_tenants=many_tenants) as kb:
        for scope in (acme, globex):
            kb.add([Document(id_="d", text=f"leave at {scope.tenant_id}")], scope=scope)
        kb.add([Document(id_="d", text="leave at acme, again")], scope=acme)
    kb = open_kb()
    for kind in ("vector", "keyword", "hybrid"):
        hits = kb.retriever(kind, scope=acme).retrieve("leave")
        assert [hit.text for hit in hits] == ["leave at acme, again"]
    assert kb.delete("d", scope=acme) == 1
    assert kb.count() == kb.count(scope=globex) == 1


PARAMS: dict[str, dict[str, object]] = {
    "qdrant": {"hnsw_config": {"m": 32}},
    "milvus": {"index_params": {"index_type": "HNSW"}},
    "elasticsearch": {"number_of_shards": 2},
}


@BESIDE
def test_settings_are_remembered_until_the_collection_is_made_with_them(
    open_kb: Open, engine: str
) -> None:
    open_kb(store_params=PARAMS[engine]).close()
    with open_kb() as kb:
        kb.add([Document(id_="d", text="leave")])
    with open_kb(store_params=PARAMS[engine]) as kb:
        assert kb.count() == 1
    ((name, _),) = PARAMS[engine].items()
    other = {"hnsw_config": {"m": 8}, "index_params": {"index_type": "FLAT"}, "number_of_shards": 3}
    with pytest.raises(ConfigurationError, match=f"was made with {name}="):
        open_kb(store_params={name: other[name]})


@ONE
def test_settings_can_be_changed_until_a_document_is_added(open_kb: Open, engine: str) -> None:
    open_kb(store_params=PARAMS[engine]).close()
    with open_kb(many_tenants=False, store_params={}) as kb:
        kb.add([Document(id_="d", text="leave")])
    with pytest.raises(ConfigurationError, match="was made without"):
        open_kb(store_params=PARAMS[engine])


@ONE
@pytest.mark.parametrize("first", ["store_params", "many_tenants"])
def test_recorded_settings_stay_if_only_others_are_passed_again(
    open_kb: Open, engine: str, first: str
) -> None:
    both: dict[str, object] = {"store_params": PARAMS[engine], "many_tenants": True}
    open_kb(**{first: both.pop(first)}).close()
    with open_kb(**both) as kb:
        kb.add([Document(id_="d", text="leave")])
    with open_kb(store_params=PARAMS[engine], many_tenants=True) as kb:
        assert kb.count() == 1


@ONE
def test_the_url_of_a_ledger_is_refused(url: str, model: FakeEmbedding) -> None:
    separator = "?collection=kb" if "//" not in url else ""
    with pytest.raises(ConfigurationError, match="names the ledger"):
        KnowledgeBase.open(f"{url}{separator}__ledger", embed_model=model)


@ONE
def test_settings_unknown_to_the_engine_are_refused(open_kb: Open) -> None:
    with pytest.raises(ConfigurationError, match="sharks"):
        open_kb(store_params={"sharks": 3})
