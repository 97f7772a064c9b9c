"""Nodes, values and vectors come back as they went in."""

import datetime
import math
from operator import ge, gt, le, lt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import VectorStoreQuery
from pydantic import AnyUrl

from llama_retrieval_ext import Query, VectorRetriever
from llama_retrieval_ext.dates import instant
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.stores.encoding.values import date_bound, number_term
from tests.cases import cases

EMBEDDING = [0.6, 0.8]
METADATA = {
    "title": "T",
    "n": 3,
    "x": 3.0,
    "none": None,
    "yes": True,
    "list": ["a", 1, [2.5]],
    "nested": {"k": {"l": [None]}},
    "huge": 2**80,
    "inf": math.inf,
    'quote"back\\slash': "line\nbreak \u0000 中文 🙂",
    "": "empty key",
}
OWN = RelatedNodeInfo(node_id="doc", metadata=METADATA, node_type=ObjectType.DOCUMENT, hash="h")
NODES: dict[str, BaseNode] = {
    "bare": TextNode(text="text"),
    "full": TextNode(
        text="text",
        metadata=METADATA,
        relationships={
            NodeRelationship.SOURCE: OWN,
            NodeRelationship.NEXT: RelatedNodeInfo(node_id="n", metadata={"n": 3.0}),
            NodeRelationship.CHILD: [OWN, RelatedNodeInfo(node_id="c", node_type="custom")],
        },
        excluded_embed_metadata_keys=["title"],
        excluded_llm_metadata_keys=["n"],
        start_char_idx=0,
        end_char_idx=4,
        mimetype="text/html",
        metadata_template="{key}={value}",
        metadata_separator=";",
        text_template="{content}",
    ),
    "no children": TextNode(relationships={NodeRelationship.CHILD: []}),
    "one kind of number": TextNode(
        metadata={"n": 1},
        relationships={
            NodeRelationship.NEXT: RelatedNodeInfo(node_id="n", metadata={"n": True}),
            NodeRelationship.PREVIOUS: RelatedNodeInfo(node_id="p", metadata={"n": 1.0}),
        },
    ),
    "index": IndexNode(text="text", index_id="i"),
    "index of a node": IndexNode(index_id="i", obj=TextNode(text="inner", metadata=METADATA)),
    "index of data": IndexNode(index_id="i", obj={"k": [1, "a"]}),
    "image": ImageNode(text="t", image="YWJj", image_path="a.png", text_embedding=[0.5]),
    "document": Document(text="text", metadata=METADATA),
    "image document": ImageDocument(image=b"\x89PNG\r\n\x1a\n"),
    "multimodal": Node(
        text_resource=MediaResource(text="t", embeddings={"dense": [0.5]}),
        image_resource=MediaResource(data=b"\x89PNG\r\n\x1a\n", path=Path("a/b.png")),
        audio_resource=MediaResource(url=AnyUrl("http://example.org/a.mp3"), mimetype="audio/mpeg"),
    ),
}


def nearest(store: EmbeddedVectorStore) -> BaseNode:
    result = store.query(VectorStoreQuery(query_embedding=EMBEDDING))
    assert result.nodes is not None
    return result.nodes[0]


@pytest.mark.parametrize("name", NODES)
def test_a_node_comes_back_as_it_went_in(store: EmbeddedVectorStore, name: str) -> None:
    node = NODES[name].model_copy(update={"embedding": EMBEDDING})
    before = node.model_copy(deep=True)
    store.add([node])
    assert node == before
    back = nearest(store)
    assert back == NODES[name]
    assert type(back) is type(node)
    assert back.hash == node.hash
    assert back.model_dump(mode="python") == NODES[name].model_dump(mode="python")
    assert list(back.metadata) == list(node.metadata)
    assert repr(back.metadata) == repr(node.metadata)
    assert repr(back.relationships) == repr(node.relationships)


def test_changing_a_returned_node_does_not_change_the_store(store: EmbeddedVectorStore) -> None:
    store.add([NODES["full"].model_copy(update={"embedding": EMBEDDING})])
    changed = nearest(store)
    changed.metadata["title"] = "changed"
    assert changed.relationships[NodeRelationship.SOURCE] == OWN
    changed.relationships.clear()
    changed.excluded_llm_metadata_keys.append("more")
    changed.embedding = [1.0]
    assert nearest(store) == NODES["full"]
    assert nearest(store) != changed


def test_a_subclass_comes_back_as_the_class_it_derives_from(store: EmbeddedVectorStore) -> None:
    class Note(TextNode):
        colour: str = "yellow"

    store.add([Note(id_="n", text="text", embedding=EMBEDDING)])
    assert nearest(store) == TextNode(id_="n", text="text")


def test_a_date_comes_back_as_text_and_can_be_filtered(store: EmbeddedVectorStore) -> None:
    day = datetime.date(2024, 1, 31)
    store.add([TextNode(id_="n", embedding=EMBEDDING, metadata={"day": day, "tags": {"a"}})])
    assert nearest(store).metadata == {"day": "2024-01-31", "tags": ["a"]}


@pytest.mark.parametrize(
    "node",
    [
        TextNode(id_="odd", metadata={"k": object()}, embedding=EMBEDDING),
        IndexNode(id_="odd", index_id="i", obj=object(), embedding=EMBEDDING),
    ],
)
def test_a_value_without_a_json_form_is_refused_with_the_node_id(
    store: EmbeddedVectorStore, node: TextNode
) -> None:
    with pytest.raises(ConfigurationError, match="'odd' cannot be stored"):
        store.add([TextNode(id_="good", embedding=EMBEDDING), node])
    assert store.count() == 0


DATES = ["2024-01-31", "1969-12-31T23:59:59.999999999Z", "2024-01-31T00:00:00.0000005"]
floats = st.floats(allow_nan=False)
numbers = st.one_of(floats, st.integers(-(2**53), 2**53), st.integers(-20, 20))


@given(first=numbers, second=numbers)
def test_terms_compare_as_numbers_do(first: float, second: float) -> None:
    assert (number_term(first) < number_term(second)) is (first < second)
    assert (number_term(first) == number_term(second)) is (first == second)


@given(moment=st.integers(-(2**60), 2**60), value=st.sampled_from(DATES))
def test_a_date_as_a_bound_compares_with_whole_microseconds(moment: int, value: str) -> None:
    exact = instant(value) or 0
    for bound, compare in (("gt", gt), ("gte", ge), ("lt", lt), ("lte", le)):
        assert compare(moment, date_bound(value, bound)) is compare(moment * 1000, exact)


def node(name: str, *embedding: float) -> TextNode:
    return TextNode(id_=name, text=f"text of {name}", embedding=list(embedding))


def test_an_embedding_that_is_too_long_is_refused(store: EmbeddedVectorStore) -> None:
    with pytest.raises(ConfigurationError, match=r"'bad' has a value .* or is too long"):
        store.add([node("a", 1.0, 0.0), node("bad", 1.7e308, 1.7e308)])
    assert (store.count(), store.dimension) == (0, None)


def test_a_query_embedding_of_other_values_than_numbers_is_refused(
    store: EmbeddedVectorStore,
) -> None:
    store.add([node("a", 1.0, 0.0)])
    query = Query("leave", embedding=[1.0, None])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="of the query has a value that is not finite"):
        VectorRetriever(store).retrieve(query)


@cases("size", [1e-300, 1e-30, 1e-5, 1.0, 1e12, 1e30, 1e100, 1e307])
def test_cosine_does_not_depend_on_length(store: EmbeddedVectorStore, size: float) -> None:
    store.add([node("a", 3 * size, 4 * size), node("b", 1.0, 0.0)])
    for length in (size, 1.0):
        result = store.query(VectorStoreQuery(query_embedding=[length, 0.0], similarity_top_k=2))
        assert result.ids == ["b", "a"]
        assert result.similarities == pytest.approx([1.0, 0.6])


def test_with_other_distances_a_vector_must_fit_single_precision() -> None:
    with EmbeddedVectorStore(":memory:", distance="dot") as store:
        with pytest.raises(ConfigurationError, match="'long' has a value that is not finite"):
            store.add([node("long", 1e20, 0.0)])
        store.add([node("a", 1e14, 0.0)])
        result = store.query(VectorStoreQuery(query_embedding=[1e14, 0.0]))
        assert result.similarities == pytest.approx([1e28])
