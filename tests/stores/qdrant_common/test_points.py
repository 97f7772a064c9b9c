"""What is filtered by gets an index, as far as that pays."""

from pathlib import Path

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from qdrant_edge import EdgeShard, PayloadSchemaType

from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.qdrant_common.points import MOST_FIELDS


def node(node_id: str, **metadata: object) -> TextNode:
    return TextNode(id_=node_id, embedding=[1.0, 0.0], metadata=metadata)


def indexes(store: EmbeddedVectorStore) -> dict[str, PayloadSchemaType]:
    shard = store.client
    assert isinstance(shard, EdgeShard)
    found = {name: about.data_type for name, about in shard.info().payload_schema.items()}
    del found["allowed"]  # every store has it
    return found


def test_each_field_gets_the_index_for_the_type_it_has_first(store: EmbeddedVectorStore) -> None:
    store.add([node("a", text="t", number=1, share=0.5, tags=["x"], tenant_id="acme")])
    store.add([node("b", text=3, late="new", **{"a.b": "dotted"})])
    keyword, number = PayloadSchemaType.Keyword, PayloadSchemaType.Float
    assert indexes(store) == {
        "meta.text": keyword,
        "meta.number": number,
        "meta.share": number,
        "list.tags": keyword,
        "meta.tenant_id": keyword,
        "meta.late": keyword,
        'meta."a.b"': keyword,
    }


def test_documents_get_an_index_with_their_first_node(store: EmbeddedVectorStore) -> None:
    related = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc")}
    store.add([TextNode(id_="a", embedding=[1.0], relationships=related)])
    assert indexes(store) == {"doc": PayloadSchemaType.Keyword}


def test_a_field_that_no_filter_can_use_gets_no_index(store: EmbeddedVectorStore) -> None:
    odd = {"dict": {"k": 1}, "none": None, "yes": True, 'a"b': "x", "a\\b": "x"}
    store.add([node("a", window="a long text " * 100, **odd)])
    assert indexes(store) == {}


@pytest.mark.slow
def test_the_number_of_indexes_is_limited_and_filters_work_beyond_it(
    store: EmbeddedVectorStore,
) -> None:
    many = {f"field{number}": str(number) for number in range(MOST_FIELDS + 10)}
    store.add([node("a", **many)])
    assert len(indexes(store)) == MOST_FIELDS - 1
    last = MetadataFilter(key=f"field{MOST_FIELDS + 9}", value=str(MOST_FIELDS + 9))
    assert store.count(MetadataFilters(filters=[last])) == 1


@pytest.mark.slow
def test_a_reopened_store_keeps_its_indexes(tmp_path: Path) -> None:
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add([node("a", k="text", **{"a.b": 1})])
        before = indexes(store)
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add([node("b", k=3, **{"a.b": "text"})])
        assert indexes(store) == before
