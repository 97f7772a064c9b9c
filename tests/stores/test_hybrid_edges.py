"""Hybrid searches at their edges find the same on every engine, whoever fuses and however asked."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.testing.corpus import ACME, sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.fusion_agreement import sample_fusions
from tests.servers.elasticsearch import elasticsearch_url
from tests.servers.milvus import milvus_url
from tests.stores.engines import filled

__all__ = ["elasticsearch_url", "milvus_url"]

MODEL: Final = FakeEmbedding()
ALL: Final = {node.node_id for node in sample_nodes()}
VECTOR: Final = MODEL.get_query_embedding("leave")
ENGINES: Final = ["embedded", "qdrant", "milvus", "milvus server", "elasticsearch"]


@pytest.fixture(scope="module", params=ENGINES)
def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    engine = request.param
    params = {"store_params": {"number_of_replicas": 0}} if engine == "elasticsearch" else {}
    folder = tmp_path_factory.mktemp("edges")
    with filled(engine, sample_nodes(MODEL), request=request, folder=folder, **params) as made:
        yield made


def hybrid(backend: Backend, *, pushdown: bool, **options: Any) -> HybridRetriever:
    return HybridRetriever(
        backend, embed_model=MODEL, fusion=_native(backend), pushdown=pushdown, **options
    )


def _native(backend: Backend) -> Fusion:
    return next(sample_fusions(backend.features.fusions[0], candidates=5)).fusion


@pytest.mark.parametrize(
    ("query", "candidates", "expected"),
    [
        (Query("?!", top_k=50), 50, ALL),  # no terms
        (Query("", top_k=50, embedding=VECTOR), 50, ALL),
        (Query("leave", top_k=50), 2, ALL),  # more than there are candidates
        (Query("leave", top_k=50, embedding=[0.0] * len(VECTOR)), 50, ALL),  # near to nothing
        (Query("leave", top_k=50, scope=Scope("nobody")), 50, set()),
        (Query("?!", top_k=50, scope=Scope("nobody")), 50, set()),
        (Query("leave", top_k=50), 12_000, ALL),  # more than a server returns at once
    ],
    ids=lambda value: repr(value) if isinstance(value, int) else None,
)
@pytest.mark.parametrize("pushdown", [False, True], ids=["fused here", "pushdown"])
def test_a_search_at_the_edge_finds_all_there_is(
    backend: Backend, query: Query, candidates: int, expected: set[str], *, pushdown: bool
) -> None:
    retriever = hybrid(backend, pushdown=pushdown, candidates=candidates)
    assert set(node_ids(retriever.retrieve(query))) == expected


@pytest.mark.parametrize("pushdown", [False, True], ids=["fused here", "pushdown"])
def test_many_queries_of_many_scopes_get_what_each_gets_alone(
    backend: Backend, *, pushdown: bool
) -> None:
    retriever = hybrid(backend, pushdown=pushdown)
    scopes = [None, ACME, Scope("globex"), Scope("nobody"), Scope("acme", ["handbook"])]
    queries: list[Query | str] = [
        Query(text, top_k=3, scope=scope) for text in ("leave", "年假", "?!") for scope in scopes
    ]
    queries += ["", Query("leave", timeout_s=30)]
    alone = [node_ids(retriever.retrieve(query)) for query in queries]
    assert [node_ids(hits) for hits in retriever.retrieve_many(queries, at_once=6)] == alone
