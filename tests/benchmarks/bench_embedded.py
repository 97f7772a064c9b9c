"""The embedded engine against its raw calls: search, filtered search, hybrid, insertion, memory."""

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import qdrant_edge as edge
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext import (
    EmbeddedVectorStore,
    HybridRetriever,
    KeywordRetriever,
    Query,
    VectorRetriever,
)
from tests.benchmarks.instant_store import make_nodes
from tests.benchmarks.ratio import compare

DIM = 384
WORDS = [f"word{i}" for i in range(20_000)]


def vectors(n: int, seed: int = 0) -> np.ndarray:
    """Random unit vectors, (n, 384) float32."""
    rows = np.random.default_rng(seed).standard_normal((n, DIM)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def filled(n: int) -> tuple[EmbeddedVectorStore, float]:
    """A store with n nodes of about 500 characters, and the processor time of adding them."""
    rng = np.random.default_rng(1)
    nodes = make_nodes(n)
    picks = (rng.zipf(1.3, size=(n, 70)) - 1) % len(WORDS)
    for node, row, words in zip(nodes, vectors(n), picks, strict=True):
        node.embedding = row.tolist()
        node.set_content(" ".join(WORDS[i] for i in words))
    store = EmbeddedVectorStore(":memory:")
    start = time.process_time()
    store.add(nodes)
    return store, time.process_time() - start


def raw_insertion(n: int, store: EmbeddedVectorStore) -> float:
    """Processor time of the engine for the same points, from the same vectors, in seconds."""
    shard = store.client
    assert shard is not None
    points, offset = [], None
    while True:
        records, offset = shard.scroll(
            edge.ScrollRequest(offset=offset, limit=1000, with_payload=True, with_vector=True)
        )
        points += [(record.id, record.payload, _sparse(record)) for record in records]
        if offset is None:
            break
    rows = vectors(n)
    config = edge.EdgeConfig(
        vectors={"dense": edge.EdgeVectorParams(DIM, edge.Distance.Cosine)},
        sparse_vectors={"bm25": edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)},
    )
    with tempfile.TemporaryDirectory() as folder:
        raw = edge.EdgeShard.create(str(Path(folder) / "shard"), config)
        start = time.process_time()
        for at in range(0, n, 256):
            raw.update(
                edge.UpdateOperation.upsert_points(
                    [
                        edge.Point(id_, {"dense": rows[(at + i) % n].tolist(), **sparse}, payload)
                        for i, (id_, payload, sparse) in enumerate(points[at : at + 256])
                    ]
                )
            )
        seconds = time.process_time() - start
        raw.close()
    return seconds


def _sparse(record: edge.Record) -> dict[str, object]:
    return {name: vector for name, vector in record.vector.items() if not isinstance(vector, list)}


def run(n: int) -> None:
    """Every comparison at one size."""
    store, seconds = filled(n)
    shard = store.client
    assert shard is not None
    resident_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"--- {n} nodes; resident at most {resident_mb:.0f} MB, the nodes themselves included")
    questions = vectors(100, seed=7)
    lists = [row.tolist() for row in questions]
    vector = VectorRetriever(store)
    condition = edge.Filter(
        must=[edge.FieldCondition('"meta"."group"', range=edge.RangeFloat(gte=3.0, lte=3.0))]
    )

    def raw(i: int, filter_: edge.Filter | None = None) -> object:
        query = edge.Query.Nearest(lists[i % 100], using="dense")
        request = edge.QueryRequest(limit=10, query=query, with_payload=True, filter=filter_)
        return shard.query(request)

    goal = "<= 1.4" if n <= 10_000 else "<= 1.1"
    compare(
        f"vector top 10 of {n}",
        {"ours": lambda i: vector.retrieve(QueryBundle("q", embedding=lists[i % 100])), "raw": raw},
        goal=goal,
    )
    narrow = MetadataFilters(filters=[MetadataFilter(key="group", value=3)])
    compare(
        f"vector top 10 of {n}, 10 % filter",
        {
            "ours": lambda i: vector.retrieve(Query("q", embedding=lists[i % 100], filters=narrow)),
            "raw": lambda i: raw(i, condition),
        },
        goal="<= 1.5",
    )
    keyword = KeywordRetriever(store)
    hybrid = HybridRetriever(store)
    text = [" ".join(WORDS[j] for j in range(i, i + 6)) for i in range(100)]
    wide = VectorRetriever(store, top_k=100)
    compare(
        f"hybrid top 10 of {n}",
        {
            "hybrid": lambda i: hybrid.retrieve(
                QueryBundle(text[i % 100], embedding=lists[i % 100])
            ),
            "vector leg": lambda i: wide.retrieve(QueryBundle("q", embedding=lists[i % 100])),
            "keyword": lambda i: keyword.retrieve(text[i % 100]),
        },
        goal="<= 1.1 of the slower leg",
    )
    raw_seconds = raw_insertion(n, store)
    print(
        f"insertion of {n}: ours {seconds:.1f} s, raw {raw_seconds:.1f} s; "
        f"ours/raw = {seconds / raw_seconds:.2f} (goal <= 1.5)"
    )
    store.close()


if __name__ == "__main__":
    for size in [int(each) for each in sys.argv[1:]] or [10_000, 100_000]:
        run(size)
