import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.single_search import VectorRetriever
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore


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
