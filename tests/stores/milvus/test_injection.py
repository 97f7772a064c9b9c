"""Nothing in a value, a key, an id or a delete target can mean more than itself."""

import random
import uuid
from collections.abc import Callable, Iterator

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)

from llama_retrieval_ext.errors import InvalidFilterError
from llama_retrieval_ext.filters import AllOf, Compare, Condition, Not
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.engine.query_modes import Target
from llama_retrieval_ext.stores.milvus.filters import compile_condition, compile_target
from llama_retrieval_ext.stores.milvus.store import MilvusBackend, MilvusStore, open_milvus
from tests.servers.given import collection_url

pytestmark = pytest.mark.slow

EQ = FilterOperator.EQ
PIECES = [
    '"', "'", "\\", "%", "_", ")", "(", "]", "[", " or ", " and ", " not ", "==", "!=", "in",
    "tenant", "id", "doc", "s_k", "exists", "like", "true", "1==1", "\n", "\r", "\t", "\x00",
    "{x}", "$meta", "globex", "secret", "n2", "x.md", ",", "//", "--", ";", "é", "界", "\ue000",
    "\ue041", "\ud800", "*", "`", '\\"', "\\'", '" or id != "', "' or 1==1 or '",
]  # fmt: skip
KNOWN = [
    "Hello' or tenant == 'b' or s like 'q",
    'doc0"] or tenant == "b" or doc_id in ["x',
    'nope"] or doc_id not in ["zz',
    '") or (id != "',
    '\\" or id != \\"',
    "\\",
    "%",
    "_",
]
ACME = Scope("acme")


@pytest.fixture(scope="module", params=["file", "server"])
def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MilvusBackend]:
    url = f"milvus:{tmp_path_factory.mktemp('lite')}/kb.db"
    if request.param == "server":
        url = collection_url(request.getfixturevalue("milvus_url"), f"t{uuid.uuid4().hex}")
    with open_milvus(url) as store:
        store.clear()
        store.add([_node("n1", "acme", "public"), _node("n2", "globex", "secret")])
        yield MilvusBackend(store)
        store.clear()


def _node(node_id: str, tenant: str, value: str) -> TextNode:
    return TextNode(
        id_=node_id,
        text="leave",
        metadata={"tenant_id": tenant, "k": value, "tags": [value]},
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"{tenant}.md")},
        embedding=[1.0, 0.0],
    )


def hostile(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return rng.choice(KNOWN)
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 7)))


CONDITIONS: list[Callable[[str], Condition]] = [
    lambda text: Compare("k", EQ, text),
    lambda text: Compare("k", FilterOperator.IN, (text, text + "x")),
    lambda text: Compare("k", FilterOperator.TEXT_MATCH, text),
    lambda text: Compare("k", FilterOperator.TEXT_MATCH_INSENSITIVE, text),
    lambda text: Compare("tags", FilterOperator.CONTAINS, text),
    lambda text: Compare("tags", FilterOperator.ANY, (text,)),
    lambda text: Compare(text, EQ, "secret"),
    lambda text: Not(Compare("k", FilterOperator.NE, text)),
    lambda text: Compare("tenant_id", EQ, text + "'"),
    lambda text: Compare("tenant_id", FilterOperator.NIN, (text,)),
]


def test_no_value_or_key_shows_a_foreign_row(backend: MilvusBackend) -> None:
    rng = random.Random(5)
    for attempt in range(1000):
        own = CONDITIONS[attempt % len(CONDITIONS)](hostile(rng))
        search = Search(10, AllOf((ACME.condition, own)), ACME)
        found = backend.dense([1.0, 0.0], search).function()
        assert {each.node_id for each in found} <= {"n1"}


def test_no_id_or_document_selects_or_deletes_what_it_does_not_name(backend: MilvusBackend) -> None:
    rng = random.Random(6)
    store = backend.store
    # A server looks for what to delete until it has seen all writes before: some 0.2 s.
    for _ in range(350 if store.is_lite else 50):
        texts = [text for text in (hostile(rng), hostile(rng)) if text not in ("n1", "n2")]
        assert store.get_nodes(texts) == []
        query = VectorStoreQuery(query_embedding=[1.0, 0.0], doc_ids=texts, similarity_top_k=5)
        assert store.query(query).ids == []
        for text in texts:
            store.delete(text)
        store.delete_nodes(texts)
    assert store.count() == 2


def test_an_expression_holds_no_character_of_a_value_that_means_something() -> None:
    rng = random.Random(7)
    harmless = compile_condition(Compare("k", EQ, "a"))
    for _ in range(2000):
        text = hostile(rng)
        written = compile_condition(Compare("k", EQ, text))
        assert isinstance(written, str)
        assert isinstance(harmless, str)
        assert written.count('"') == harmless.count('"') == 2
        assert written.split('"')[0::2] == harmless.split('"')[0::2]
        assert not set(written.split('"')[1]) & set("'\\%_{}\n\r\t\x00")
        written.encode()


def test_hostile_ids_are_stored_and_found_as_themselves(store: MilvusStore) -> None:
    rng = random.Random(8)
    texts = sorted({hostile(rng) for _ in range(200)})
    store.add([TextNode(id_=text, text="a", embedding=[1.0, 0.0]) for text in texts])
    assert [each.node_id for each in store.get_nodes(texts)] == texts
    store.delete_nodes(texts[:1])
    assert sorted(each.node_id for each in store.get_nodes()) == texts[1:]


# What LlamaIndex's own store does with each of these stands in the facts on backends.


def _found(
    store: MilvusStore, *parts: MetadataFilter | MetadataFilters, **group: object
) -> set[str]:
    filters = MetadataFilters(filters=list(parts), **group)  # type: ignore[arg-type]
    query = VectorStoreQuery(query_embedding=[1.0, 0.0], filters=filters, similarity_top_k=9)
    return set(store.query(query).ids or [])


def test_not_of_one_filter_is_not_the_filter(backend: MilvusBackend) -> None:
    one = MetadataFilter(key="tenant_id", value="acme")
    assert _found(backend.store, one, condition=FilterCondition.NOT) == {"n2"}


def test_not_of_two_filters_is_neither(backend: MilvusBackend) -> None:
    parts = [MetadataFilter(key="k", value=value) for value in ("public", "none")]
    assert _found(backend.store, *parts, condition=FilterCondition.NOT) == {"n2"}


def test_a_filter_without_a_value_is_refused_and_not_dropped(backend: MilvusBackend) -> None:
    with pytest.raises(InvalidFilterError):
        _found(backend.store, MetadataFilter(key="tenant_id", value=None))


def test_a_group_without_a_condition_or_without_filters_is_refused(backend: MilvusBackend) -> None:
    with pytest.raises(InvalidFilterError):
        _found(backend.store, MetadataFilter(key="k", value="x"), condition=None)
    with pytest.raises(InvalidFilterError):
        _found(backend.store, MetadataFilters(filters=[]))


def test_a_backslash_is_a_character(backend: MilvusBackend) -> None:
    assert _found(backend.store, MetadataFilter(key="k", value="\\")) == set()


def test_text_match_finds_the_middle_of_a_word_and_takes_no_wildcard(
    backend: MilvusBackend,
) -> None:
    def match(text: str) -> set[str]:
        operator = FilterOperator.TEXT_MATCH
        return _found(backend.store, MetadataFilter(key="k", operator=operator, value=text))

    assert match("ecre") == {"n2"}
    assert match("%") == match("s%t") == match("_ecret") == set()


@pytest.mark.parametrize("key", ["a.b", "a-b", "a b", "a/b"])
def test_keys_with_separators_are_keys(store: MilvusStore, key: str) -> None:
    store.add([TextNode(id_="n", embedding=[1.0, 0.0], metadata={key: "x"})])
    assert _found(store, MetadataFilter(key=key, value="x")) == {"n"}
    assert _found(store, MetadataFilter(key=key, value="y")) == set()


def test_a_key_that_is_an_expression_is_refused(backend: MilvusBackend) -> None:
    with pytest.raises(InvalidFilterError):
        _found(backend.store, MetadataFilter(key="tenant == 'b' or tenant", value="x"))


def test_ids_and_documents_are_quoted() -> None:
    assert (
        compile_target(Target(node_ids=['"] or ["']))
        == '(id == "\ue000\ue001\ue021] or [\ue000\ue001\ue021")'
    )
    assert compile_target(Target(node_ids=[])) is False
    assert compile_target(Target()) is True
