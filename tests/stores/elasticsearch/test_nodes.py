"""Writing nodes to an index, and the terms that it indexes: those of the tokenizer as they are."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.elasticsearch.client import HttpRequest, Json
from llama_retrieval_ext.stores.elasticsearch.nodes import indexed_text, query_text
from llama_retrieval_ext.stores.elasticsearch.store import ElasticsearchVectorStore
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.engine.config import StoreConfig
from llama_retrieval_ext.stores.engine.engine_backend import CollectionBackend
from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.stores.elasticsearch.msearch import Opener
from tests.stores.store_contract import node

pytestmark = pytest.mark.slow

CONFIG = StoreConfig(Tokenizer())
EVERY = "".join(map(chr, range(sys.maxunicode + 1)))


@given(text=st.text())
def test_the_whitespace_of_the_engine_parts_the_tokenizers_terms(text: str) -> None:
    joined = indexed_text(TextNode(text=text), CONFIG)
    assert len(joined.split()) == len(CONFIG.tokenizer.tokens(text))
    terms = query_text(text, CONFIG)
    assert terms == " ".join(terms.split())


@pytest.mark.parametrize("text", ["x" * 10_000, "中" * 1000, EVERY])
def test_no_term_is_longer_than_the_engine_takes(text: str) -> None:
    assert max(map(len, indexed_text(TextNode(text=text), CONFIG).split(" "))) <= 255


def test_the_engine_parts_the_terms_as_python_does(store: ElasticsearchVectorStore) -> None:
    terms = indexed_text(TextNode(text=EVERY), CONFIG).split(" ")
    store.add([TextNode(text="a", embedding=[1.0])])
    for start in range(0, min(len(terms), 60_000), 9_000):  # the engine shows 10,000 at a time
        some = terms[start : start + 9_000]
        body = {"field": "text", "text": " ".join(some)}
        response = store.client.indices.analyze(index=store.index, body=body)
        assert [each["token"] for each in response["tokens"]] == some


def test_a_long_query_is_cut_to_its_first_1024_terms() -> None:
    text = " ".join(f"word{n % 5000}" for n in range(10_000))
    assert len(query_text(text, CONFIG).split()) == 1024


def test_a_node_that_moves_to_another_tenant_is_there_once(open_store: Opener) -> None:
    store = open_store(store_params={"number_of_shards": 3, "routing": True})
    for tenant in ("acme", "globex", "initech", "umbrella"):
        store.add([node("a", tenant_id=tenant), node(f"of-{tenant}", tenant_id=tenant)])
    assert store.count() == 5
    for tenant in ("acme", "globex", "initech", "umbrella"):
        scope = Scope(tenant)
        search = Search(10, scope.condition, scope)
        found = CollectionBackend(store).keyword("leave", search).function()
        expected = {f"of-{tenant}"} | ({"a"} if tenant == "umbrella" else set())
        assert {each.node_id for each in found} == expected
    store.delete_nodes(["a", "of-acme"])
    assert store.count() == 3


def test_a_node_replaced_during_a_deletion_by_filter_is_compared_again(
    store: ElasticsearchVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add([TextNode(id_="a", text="word", embedding=[1.0, 0.0])])
    send = store.transport.perform

    def replacing(request: HttpRequest) -> Json:
        if request.path.endswith("_bulk"):
            monkeypatch.undo()
            other = TextNode(id_="a", text="word", embedding=[1.0, 0.0], metadata={"kept": "yes"})
            store.add([other])
        return send(request)

    empty = MetadataFilter(key="kept", value=None, operator=FilterOperator.IS_EMPTY)
    monkeypatch.setattr(store.transport, "perform", replacing)
    store.delete_nodes(filters=MetadataFilters(filters=[empty]))
    assert store.count() == 1
