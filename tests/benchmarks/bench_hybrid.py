"""Hybrid search on the embedded engine against the sum of its legs' first ten, in processor time.

``python -m tests.benchmarks.bench_hybrid [VOCABULARY ...]``: 10,000 records of 40 words, drawn
evenly from a vocabulary of this size, so that many scores are equal; 0 for texts of 70 words that
are as unevenly common as those of a language.
"""

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import qdrant_edge as edge
from llama_index.core.schema import TextNode

from llama_retrieval_ext import (
    EmbeddedVectorStore,
    HybridRetriever,
    KeywordRetriever,
    Query,
    VectorRetriever,
)
from tests.benchmarks.bench_engines import NODES, texts, unit_vectors

QUERIES = 60
ROUNDS = 8


def even_texts(number: int, words: int, vocabulary: int, seed: int) -> list[str]:
    """Texts of words that are equally common."""
    picks = np.random.default_rng(seed).integers(vocabulary, size=(number, words))
    return [" ".join(f"w{pick}" for pick in row) for row in picks]


def run(vocabulary: int) -> None:
    """Print the medians, and their ratios."""
    if vocabulary:
        stored = even_texts(NODES, 40, vocabulary, 1)
        asked = even_texts(QUERIES, 4, vocabulary, 2)
    else:
        stored, asked = texts(NODES, 70, 1), texts(QUERIES, 5, 3)
    rows = unit_vectors(NODES, 0).tolist()
    queries = [
        Query(text, embedding=row)
        for text, row in zip(asked, unit_vectors(QUERIES, 7).tolist(), strict=True)
    ]
    with EmbeddedVectorStore(":memory:") as store:
        store.add(
            [
                TextNode(id_=f"n{place}", text=text, embedding=row)
                for place, (text, row) in enumerate(zip(stored, rows, strict=True))
            ]
        )
        shard = store.client
        assert shard is not None

        def raw(query: Query) -> object:
            nearest = edge.Query.Nearest(query.embedding or [], using="dense")
            return shard.query(edge.QueryRequest(limit=10, query=nearest, with_payload=["node"]))

        calls: dict[str, Callable[[Query], object]] = {
            "hybrid": HybridRetriever(store).retrieve,
            "vector": VectorRetriever(store).retrieve,
            "keyword": KeywordRetriever(store).retrieve,
            "raw vector": raw,
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for query in queries:
                for name, call in calls.items():
                    start = time.process_time()
                    call(query)
                    times[name].append(1e3 * (time.process_time() - start))
    medians = {name: statistics.median(each) for name, each in times.items()}
    print(f"vocabulary {vocabulary}:", {name: round(each, 2) for name, each in medians.items()})
    legs = medians["vector"] + medians["keyword"]
    above = medians["vector"] - medians["raw vector"]
    print(f"  hybrid / legs {medians['hybrid'] / legs:.2f} (goal 1.2); vector - raw {above:.2f} ms")


if __name__ == "__main__":
    for each in sys.argv[1:] or ["0", "3000", "300"]:
        run(int(each))
