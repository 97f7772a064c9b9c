"""Nodes of every class come back as they went in."""

import datetime
import math
from pathlib import Path

import pytest
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

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore

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
