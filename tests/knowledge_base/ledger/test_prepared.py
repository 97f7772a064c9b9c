"""The identity of documents, and their stored form, from which the same document is read again."""

import pickle
from io import BytesIO

import pytest
from llama_index.core.schema import Document, NodeRelationship, RelatedNodeInfo, TextNode

from llama_retrieval_ext.errors import ScopeError
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    Prepared,
    SpooledDocument,
    content_of,
    key_of_node,
    ref_of,
    unpacked,
    with_allowed,
)

KEY = DocumentKey("acme", "", "d")
SOURCE = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d")}


def node(id_: str, **fields: object) -> TextNode:
    return TextNode(id_=id_, text=f"leave {id_}", embedding=[0.1, 1e-30], **fields)


PREPARED = Prepared(
    KEY,
    "digest",
    (node("a", metadata={"file_path": "/f", "allowed": ["ann"]}, relationships=SOURCE), node("b")),
    {"a": "[[], []]"},
    keeps_allowed=True,
)


def test_a_document_is_the_same_after_packing_and_pickling() -> None:
    assert unpacked(KEY, "digest", PREPARED.packed(), keeps_allowed=True) == PREPARED
    assert pickle.loads(pickle.dumps(PREPARED)) == PREPARED


def test_a_shared_document_is_another_version_of_the_same_content() -> None:
    shared = PREPARED.shared(["bob", "ann"])
    assert shared.digest == PREPARED.shared(["ann", "bob"]).digest != PREPARED.digest
    assert content_of(shared.digest) == PREPARED.digest == shared.shared([]).digest
    assert {tuple(each.metadata["allowed"]) for each in shared.nodes} == {("bob", "ann")}
    assert all("allowed" not in each.metadata for each in shared.shared([]).nodes)


def test_principals_are_neither_embedded_nor_shown_to_an_llm() -> None:
    shared = with_allowed(with_allowed(node("a"), ["ann"]), ["bob"])
    assert shared.excluded_embed_metadata_keys == ["allowed"] == shared.excluded_llm_metadata_keys
    plain = node("a")
    assert with_allowed(plain, []) is plain


def test_a_node_belongs_to_its_source_and_scope() -> None:
    assert ref_of(Document(id_="whole", text="x", relationships=SOURCE)) == "whole"
    assert (ref_of(node("a", relationships=SOURCE)), ref_of(node("a"))) == ("d", "a")
    mine = node("a", metadata={"tenant_id": "acme", "kb_id": 3}, relationships=SOURCE)
    assert key_of_node(mine) == KEY
    assert key_of_node(mine, {"tenant_id": "acme"}) == KEY
    with pytest.raises(ScopeError, match="has tenant_id='acme' in its metadata"):
        key_of_node(mine, {"tenant_id": "globex"})


LONG_NODES = [
    TextNode(id_=f"n{n}", text=f"text {n}", embedding=[float(n)], metadata={"file_path": "/long"})
    for n in range(5)
]


@pytest.fixture
def spooled() -> SpooledDocument:
    document = SpooledDocument(KEY, "digest", None, BytesIO())
    for some in (LONG_NODES[:2], [], LONG_NODES[2:]):
        document.append(Prepared(KEY, "digest", tuple(some), {each.node_id: "{}" for each in some}))
    return document


def test_a_spooled_document_says_the_same_as_one_in_memory(spooled: SpooledDocument) -> None:
    whole = Prepared(KEY, "digest", tuple(LONG_NODES))
    for name in ("key", "digest", "source", "allowed", "node_ids", "dimensions", "size_bytes"):
        assert getattr(spooled, name) == getattr(whole, name), name


def test_the_first_node_of_another_dimension_is_named() -> None:
    document = SpooledDocument(KEY, "digest", None, BytesIO())
    lengths = {"a": 2, "b": 3, "c": 2, "d": 3}
    nodes = [TextNode(id_=id_, text="x", embedding=[0.0] * n) for id_, n in lengths.items()]
    for node in nodes:
        document.append(Prepared(KEY, "digest", (node,)))
    for each in (document, Prepared(KEY, "digest", tuple(nodes))):
        assert list(each.dimensions.items()) == [(2, "a"), (3, "b")]
