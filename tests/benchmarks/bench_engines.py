"""Engines against their raw clients, and hybrid search against its slower leg, on 10,000 nodes.

Run: ``python -m tests.benchmarks.bench_engines [embedded] [qdrant] [milvus] [elasticsearch]``
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from llama_index.core.schema import TextNode

from llama_retrieval_ext import RRF, HybridRetriever, Query, Scope, WeightedSum
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.pipeline import Fusion
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.stores.engine.pushdown import LEGS
from llama_retrieval_ext.stores.open import backend_for
from tests.benchmarks.ratio import compare

NODES = 10_000
DIM = 384
TOP_K = 10
ROUNDS = 40
WORDS = [f"word{number}" for number in range(5_000)]
Raw = Callable[[list[float]], object]
Opened = tuple[Backend, Raw]


def unit_vectors(number: int, seed: int) -> np.ndarray:
    """Random vectors of length 1, (number, 384)."""
    rows = np.random.default_rng(seed).standard_normal((number, DIM))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def texts(number: int, words: int, seed: int) -> list[str]:
    """Texts of words that are as unevenly common as those of a language."""
    picks = (np.random.default_rng(seed).zipf(1.3, size=(number, words)) - 1) % len(WORDS)
    return [" ".join(WORDS[pick] for pick in row) for row in picks]


def nodes() -> list[TextNode]:
    """Nodes of some 500 characters, of ten tenants."""
    rows, words = unit_vectors(NODES, 0), texts(NODES, 70, 1)
    return [
        TextNode(
            id_=f"n{place}",
            text=text,
            embedding=row.tolist(),
            metadata={"tenant_id": f"t{place % 10}"},
        )
        for place, (row, text) in enumerate(zip(rows, words, strict=True))
    ]


@contextmanager
def embedded() -> Iterator[Opened]:
    """The embedded engine, and its own search."""
    import qdrant_edge as edge  # noqa: PLC0415 - each engine's packages, if it is asked for

    from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore  # noqa: PLC0415

    with EmbeddedVectorStore(":memory:") as store:
        store.add(nodes())
        shard = store.client
        assert shard is not None

        def raw(vector: list[float]) -> object:
            query = edge.Query.Nearest(vector, using="dense")
            return shard.query(edge.QueryRequest(limit=TOP_K, query=query, with_payload=True))

        yield backend_for(store), raw


@contextmanager
def qdrant() -> Iterator[Opened]:
    """Qdrant's local mode, and its client."""
    from llama_retrieval_ext.stores.qdrant.store import QdrantStore  # noqa: PLC0415

    with QdrantStore("qdrant::memory:") as store:
        store.add(nodes())
        client, name = store.client, str(store.describe()["collection"])

        def raw(vector: list[float]) -> object:
            return client.query_points(
                name, query=vector, using="dense", limit=TOP_K, with_payload=["node"]
            )

        yield backend_for(store), raw


@contextmanager
def milvus() -> Iterator[Opened]:
    """Milvus Lite in a file, and its client."""
    from llama_retrieval_ext.stores.milvus.schema import DENSE  # noqa: PLC0415
    from llama_retrieval_ext.stores.milvus.store import open_milvus  # noqa: PLC0415

    with (
        tempfile.TemporaryDirectory() as folder,
        open_milvus(f"milvus:{Path(folder) / 'kb.db'}") as store,
    ):
        store.add(nodes())
        client, (name,) = store.client, store.client.list_collections()

        def raw(vector: list[float]) -> object:
            return client.search(
                name,
                data=[vector],
                anns_field=DENSE,
                limit=TOP_K,
                output_fields=["node"],
                search_params={"metric_type": "COSINE"},
            )

        yield backend_for(store), raw


@contextmanager
def elasticsearch() -> Iterator[Opened]:
    """A real Elasticsearch, and its client."""
    from elasticsearch import Elasticsearch  # noqa: PLC0415

    from llama_retrieval_ext.stores.elasticsearch.store import open_elasticsearch  # noqa: PLC0415
    from tests.servers.elasticsearch import URL_VARIABLE, start  # noqa: PLC0415

    given = os.environ.get(URL_VARIABLE)
    server = None if given else start()
    url = given or (server.url if server is not None else "")
    name = f"lre-{os.getpid()}"
    params = {"number_of_replicas": 0}
    try:
        with (
            Elasticsearch(url) as client,
            open_elasticsearch(
                f"{url.replace('http', 'elasticsearch', 1)}/{name}", store_params=params
            ) as store,
        ):
            store.add(nodes())
            patient = client.options(request_timeout=300)
            patient.indices.forcemerge(index=name, max_num_segments=1)

            def raw(vector: list[float]) -> object:
                knn = {"field": "vector", "query_vector": vector, "k": TOP_K, "num_candidates": 200}
                return client.search(index=name, knn=knn, size=TOP_K, source={"includes": ["node"]})

            yield backend_for(store), raw
            store.clear()
    finally:
        if server is not None:
            server.stop()


ENGINES = {"embedded": embedded, "qdrant": qdrant, "milvus": milvus, "elasticsearch": elasticsearch}


def native_fusion(backend: Backend) -> Fusion:
    """The fusion by rank if the engine has it, else the one by scores that it has."""
    native = backend.features.fusions
    if any(each.is_as(RRF(), (1.0, 1.0)) for each in native):
        return RRF()
    scales = native[0].scales or (Normalisation.NONE, Normalisation.NONE)
    return WeightedSum(normalise=dict(zip(LEGS, scales, strict=True)))


def run(engine: str) -> None:
    """Every comparison on one engine."""
    with ENGINES[engine]() as (backend, raw):
        rows = unit_vectors(ROUNDS, 2).tolist()
        asked = [
            Query(text, embedding=row) for text, row in zip(texts(ROUNDS, 5, 3), rows, strict=True)
        ]
        fusion = native_fusion(backend)
        vector, keyword = VectorRetriever(backend), KeywordRetriever(backend)
        deep = VectorRetriever(backend, top_k=100), KeywordRetriever(backend, top_k=100)
        ours = HybridRetriever(backend, fusion=fusion)
        pushed = HybridRetriever(backend, fusion=fusion, pushdown=True)
        print(f"--- {engine}: {NODES} nodes, top {TOP_K}; {fusion!r}, 100 candidates")
        compare(
            "vector",
            {"ours": lambda n: vector.retrieve(asked[n]), "raw client": lambda n: raw(rows[n])},
            rounds=ROUNDS,
            goal="<= 1.15",
        )
        for title, scope in (("all", None), ("a tenth", Scope("t3"))):
            legs: dict[str, Callable[[int], object]] = {
                "hybrid, pushdown": _asking(pushed, asked, scope),
                "hybrid, our fusion": _asking(ours, asked, scope),
                "vector, top 10": _asking(vector, asked, scope),
                "keyword, top 10": _asking(keyword, asked, scope),
                "vector, top 100": _asking(deep[0], asked, scope),
                "keyword, top 100": _asking(deep[1], asked, scope),
            }
            row = compare(f"hybrid, {title}", legs, rounds=ROUNDS).medians_ms
            best, fused, *single = row.values()
            print(
                f"    pushdown / slower leg: {best / max(single[:2]):.2f} of top 10, "
                f"{best / max(single[2:]):.2f} of top 100 (goal <= 1.15, embedded <= 1.1); "
                f"our fusion / slower leg: {fused / max(single[:2]):.2f}, "
                f"{fused / max(single[2:]):.2f}"
            )


def _asking(
    retriever: VectorRetriever | KeywordRetriever | HybridRetriever,
    asked: list[Query],
    scope: Scope | None,
) -> Callable[[int], object]:
    scoped = retriever if scope is None else retriever.for_scope(scope)
    return lambda number: scoped.retrieve(asked[number])


if __name__ == "__main__":
    for each in sys.argv[1:] or list(ENGINES):
        run(each)
