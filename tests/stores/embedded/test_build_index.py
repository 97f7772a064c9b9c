"""The index that a process of its own builds: exact results, and the reason of a failure."""

import pytest

from llama_retrieval_ext import Query, VectorRetriever
from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.stores.embedded import index
from llama_retrieval_ext.stores.embedded.files import IndexKind, VectorType
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from tests.stores.embedded.test_index import embedding, nearest, nodes, small_graphs

__all__ = ["small_graphs"]


@pytest.mark.parametrize(
    ("vectors", "kind"), [("float16", "auto"), ("int8", "exact"), ("int8", "hnsw")]
)
@pytest.mark.slow
@pytest.mark.usefixtures("small_graphs")
def test_an_index_finds_what_an_exact_search_finds_and_the_trace_says_which_was_used(
    vectors: VectorType, kind: IndexKind
) -> None:
    with EmbeddedVectorStore(":memory:", vectors=vectors, index=kind) as store:
        store.add(nodes(0, 600))
        retriever = VectorRetriever(store, top_k=5)
        before = retriever.search(Query("leave", embedding=embedding(7)))
        assert store.build_index()
        store.add(nodes(600, 610))
        after = retriever.explain(Query("leave", embedding=embedding(7)))
        exact = retriever.explain(Query("leave", embedding=embedding(7), exact=True))
        assert store.check_recall(50) >= 0.98
        assert nearest(store, 605)[0] == "n605"
        store.delete_nodes(["n605", "n7"])
        assert "n605" not in nearest(store, 605)
        assert "n7" not in nearest(store, 7)
    assert [hit.node_id for hit in after.hits] == [hit.node_id for hit in before.hits]
    assert [hit.score for hit in after.hits] == pytest.approx([hit.score for hit in before.hits])
    assert [hit.node_id for hit in exact.hits] == [hit.node_id for hit in after.hits]
    assert "600 of 610 nodes" in str(after.to_dict())
    assert "600 of 610" not in str(exact.to_dict())


def test_a_failed_build_changes_nothing_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "DATATYPES", {"float32": "Float128"})
    with EmbeddedVectorStore(":memory:") as store:
        store.add(nodes(0, 50))
        with pytest.raises(StoreUnavailableError, match=r"(?s)could not be built.*Float128"):
            store.build_index()
        assert (store.count(), store.index_info().indexed) == (50, 0)
