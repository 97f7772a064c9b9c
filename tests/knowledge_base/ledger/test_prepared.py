"""The identity of documents, and their stored form, from which the same document is read again."""

import pickle

import pytest
from llama_index.core.schema import Document, NodeRelationship, RelatedNodeInfo, TextNode

from llama_retrieval_ext.errors import ScopeError
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    Prepared,
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


def test_a_document_in_memory_is_its_only_part() -> None:
    assert list(PREPARED.parts()) == [PREPARED]
    assert (PREPARED.node_ids, PREPARED.source, PREPARED.allowed) == (["a", "b"], "/f", ("ann",))
    assert PREPARED.dimensions == {2: "a"}
    assert PREPARED.size_bytes > 2000


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
