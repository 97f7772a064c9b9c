"""A long document in a file is the document: its nodes, version, source and principals."""

from io import BytesIO

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, Prepared
from llama_retrieval_ext.knowledge_base.ledger.spooled import SpooledDocument

KEY = DocumentKey("", "", "long")
NODES = [
    TextNode(id_=f"n{n}", text=f"text {n}", embedding=[float(n)], metadata={"file_path": "/long"})
    for n in range(5)
]


@pytest.fixture
def spooled() -> SpooledDocument:
    document = SpooledDocument(KEY, "digest", None, BytesIO())
    for some in (NODES[:2], [], NODES[2:]):
        document.append(Prepared(KEY, "digest", tuple(some), {each.node_id: "{}" for each in some}))
    return document


def test_the_parts_of_a_spooled_document_have_its_nodes_each_time(spooled: SpooledDocument) -> None:
    for _ in range(2):
        parts = list(spooled.parts())
        assert [part.node_ids for part in parts] == [["n0", "n1"], ["n2", "n3", "n4"]]
        assert [node for part in parts for node in part.nodes] == NODES
        assert [part.rows.keys() for part in parts] == [{"n0", "n1"}, {"n2", "n3", "n4"}]


def test_a_spooled_document_says_the_same_as_one_in_memory(spooled: SpooledDocument) -> None:
    whole = Prepared(KEY, "digest", tuple(NODES))
    for name in ("key", "digest", "source", "allowed", "node_ids", "dimensions", "size_bytes"):
        assert getattr(spooled, name) == getattr(whole, name), name
    assert (whole.n_parts, spooled.n_parts) == (1, 2)


def test_a_shared_spooled_document_is_the_shared_document(spooled: SpooledDocument) -> None:
    shared, whole = spooled.shared(["ann"]), Prepared(KEY, "digest", tuple(NODES)).shared(["ann"])
    assert (shared.digest, shared.allowed) == (whole.digest, whole.allowed)
    assert tuple(node for part in shared.parts() for node in part.nodes) == whole.nodes
    assert spooled.shared(["ann"]).shared([]).digest == spooled.digest


def test_the_first_node_of_another_dimension_is_named() -> None:
    document = SpooledDocument(KEY, "digest", None, BytesIO())
    lengths = {"a": 2, "b": 3, "c": 2, "d": 3}
    nodes = [TextNode(id_=id_, text="x", embedding=[0.0] * n) for id_, n in lengths.items()]
    for node in nodes:
        document.append(Prepared(KEY, "digest", (node,)))
    for each in (document, Prepared(KEY, "digest", tuple(nodes))):
        assert list(each.dimensions.items()) == [(2, "a"), (3, "b")]
