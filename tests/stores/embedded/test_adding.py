"""What goes in, what is refused before anything is written, and what goes out again."""

import math

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DimensionMismatchError,
    InvalidFilterError,
)
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore


def node(node_id: str, *embedding: float, doc: str | None = None, **metadata: object) -> TextNode:
    related = {} if doc is None else {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=doc)}
    return TextNode(
        id_=node_id,
        text=f"text of {node_id}",
        embedding=list(embedding) or [1.0, 0.0],
        metadata=metadata,
        relationships=related,
    )


def where(key: str, value: str | int | list[str]) -> MetadataFilters:
    operator = FilterOperator.IN if isinstance(value, list) else FilterOperator.EQ
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])


def ids(store: EmbeddedVectorStore) -> list[str]:
    return [each.node_id for each in store.get_nodes()]


def test_add_returns_an_id_for_each_node(store: EmbeddedVectorStore) -> None:
    assert store.add([node("b"), node("a"), node("b")]) == ["b", "a", "b"]
    assert ids(store) == ["a", "b"]


def test_of_nodes_with_the_same_id_the_last_counts(store: EmbeddedVectorStore) -> None:
    store.add([node("a", k=1), node("a", k=2)])
    assert [each.metadata for each in store.get_nodes()] == [{"k": 2}]
    store.add([node("a", k=3)])
    assert [each.metadata for each in store.get_nodes()] == [{"k": 3}]


def test_adding_nothing_changes_nothing(store: EmbeddedVectorStore) -> None:
    assert store.add([]) == []
    assert store.count() == 0
    assert store.dimension is None


@pytest.mark.parametrize("node_id", ["", "a/b c", "中文", "9" * 5000, "\ud800", "n\x00"])
def test_any_string_can_be_an_id(store: EmbeddedVectorStore, node_id: str) -> None:
    store.add([node(node_id), node("other")])
    assert [each.node_id for each in store.get_nodes([node_id])] == [node_id]
    store.delete_nodes([node_id])
    assert ids(store) == ["other"]


@pytest.mark.parametrize(
    ("embedding", "reason"),
    [
        (None, "'bad' has no embedding"),
        ([], "'bad' has no embedding"),
        ([math.nan, 1.0], "'bad' has a value that is not finite"),
        ([1.0, math.inf], "'bad' has a value that is not finite"),
        ([1.7e308, 1.7e308], "'bad' has a value that is not finite, or is too long"),
    ],
)
def test_a_broken_embedding_is_refused_by_name_before_anything_is_written(
    store: EmbeddedVectorStore, embedding: list[float] | None, reason: str
) -> None:
    bad = TextNode(id_="bad", text="text", embedding=embedding)
    many = [node(f"n{number}") for number in range(600)]
    with pytest.raises(ConfigurationError, match=reason):
        store.add([*many, bad])
    assert store.count() == 0


def test_a_wrong_dimension_is_refused_with_node_and_both_dimensions(
    store: EmbeddedVectorStore,
) -> None:
    store.add([node("a", 1.0, 0.0)])
    with pytest.raises(DimensionMismatchError, match=r"'b' .* dimension 3, .* takes 2"):
        store.add([node("c", 0.0, 1.0), node("b", 1.0, 0.0, 0.0)])
    assert ids(store) == ["a"]


def test_one_call_cannot_mix_dimensions(store: EmbeddedVectorStore) -> None:
    with pytest.raises(DimensionMismatchError, match=r"'b' .* dimension 1, .* takes 2"):
        store.add([node("a", 1.0, 0.0), node("b", 1.0)])
    assert store.dimension is None


def test_a_zero_embedding_is_similar_to_nothing(store: EmbeddedVectorStore) -> None:
    store.add([node("zero", 0.0, 0.0), node("away", -1.0, 0.0), node("near", 1.0, 0.0)])
    result = store.query(VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=3))
    assert result.ids == ["near", "zero", "away"]
    assert result.similarities == pytest.approx([1.0, 0.0, -1.0])


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e-5, 1.0, 1e12, 1e30, 1e100, 1e307])
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


def test_an_unknown_option_is_refused(store: EmbeddedVectorStore) -> None:
    with pytest.raises(ConfigurationError, match="add has no options batch_size"):
        store.add([node("a")], batch_size=3)


def test_delete_removes_the_nodes_of_a_document(store: EmbeddedVectorStore) -> None:
    store.add([node("a", doc="d1"), node("b", doc="d2"), node("c"), node("d", doc="d1")])
    store.delete("d1")
    assert ids(store) == ["b", "c"]
    store.delete("nowhere")
    assert ids(store) == ["b", "c"]


def test_delete_without_a_document_is_refused(store: EmbeddedVectorStore) -> None:
    store.add([node("a")])
    with pytest.raises(ConfigurationError, match="needs the id of a document"):
        store.delete("")
    assert store.count() == 1


def test_delete_nodes_takes_what_has_the_id_and_satisfies_the_filters(
    store: EmbeddedVectorStore,
) -> None:
    store.add([node("a", k=1), node("b", k=2), node("c", k=1)])
    store.delete_nodes(["a", "b"], where("k", 1))
    assert ids(store) == ["b", "c"]
    store.delete_nodes(filters=where("k", 2))
    assert ids(store) == ["c"]
    either = MetadataFilters(filters=[where("k", 1), where("k", 2)], condition=FilterCondition.OR)
    store.delete_nodes(["nowhere"], either)
    assert ids(store) == ["c"]


def test_delete_nodes_without_a_target_is_refused(store: EmbeddedVectorStore) -> None:
    store.add([node("a")])
    with pytest.raises(ConfigurationError, match=r"to empty the store call clear\(\)"):
        store.delete_nodes()
    with pytest.raises(InvalidFilterError, match="empty group"):
        store.delete_nodes(filters=MetadataFilters(filters=[]))
    store.delete_nodes([])
    assert ids(store) == ["a"]


def test_get_nodes_keeps_the_order_of_the_ids(store: EmbeddedVectorStore) -> None:
    store.add([node(name) for name in "abcd"])
    assert [each.node_id for each in store.get_nodes(["d", "gone", "a", "d"])] == ["d", "a"]
    assert store.get_nodes([]) == []


def test_get_nodes_has_no_hidden_limit(store: EmbeddedVectorStore) -> None:
    store.add([node(f"{number:05}", even=number % 2) for number in range(2500)])
    assert ids(store) == [f"{number:05}" for number in range(2500)]
    assert len(store.get_nodes(filters=where("even", 0))) == 1250
    assert store.count(where("even", 1)) == 1250
    assert store.count() == 2500


def test_get_nodes_takes_ids_and_filters_together(store: EmbeddedVectorStore) -> None:
    store.add([node("a", k=1), node("b", k=2)])
    assert [each.node_id for each in store.get_nodes(["b", "a"], where("k", 1))] == ["a"]


def test_clear_empties_the_store_and_lets_another_dimension_in(store: EmbeddedVectorStore) -> None:
    dimensions = []
    for embedding in ([1.0, 0.0], [1.0, 0.0, 0.0]):
        store.add([node("a", *embedding)])
        assert ids(store) == ["a"]
        dimensions.append(store.dimension)
        store.clear()
        assert store.count() == 0
        assert ids(store) == []
        dimensions.append(store.dimension)
    assert dimensions == [2, None, 3, None]
    store.add([node("b", 1.0)])
    store.clear()
    store.clear()
    assert ids(store) == []


async def test_the_async_methods_do_the_same(store: EmbeddedVectorStore) -> None:
    assert await store.async_add([node("a", doc="d"), node("b"), node("c")]) == ["a", "b", "c"]
    await store.adelete("d")
    await store.adelete_nodes(["b"])
    assert [each.node_id for each in await store.aget_nodes()] == ["c"]
    result = await store.aquery(VectorStoreQuery(query_embedding=[1.0, 0.0]))
    assert result.ids == ["c"]
    await store.aclear()
    assert store.count() == 0
