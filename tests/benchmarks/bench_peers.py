"""Hybrid search by five libraries on the same texts and vectors: processor time, and memory.

In an environment of its own::

    python3 -m venv peers
    peers/bin/pip install . llama-index-retrievers-bm25 langchain-community langchain-classic \\
        faiss-cpu rank-bm25 haystack-ai lancedb
    peers/bin/python -m tests.benchmarks.bench_peers 10000

Each library runs in a process of its own: adding all nodes, 30 hybrid searches for ten hits by
reciprocal rank fusion, and the same within a tenant that has a hundredth of the nodes, where the
library can filter both searches. Times are of the processor, of all threads, because machines are
shared; embedding takes none, since vectors are looked up.
"""

# ruff: noqa: PLC0415 - each library is imported in a process of its own

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

DIM, WORDS, TOP_K, QUERIES, TENANTS = 384, 60, 10, 30, 100
TENANT = "t7"
Search = Callable[[str], object]
Searches = tuple[Search, Search | None]  # of all, and of one tenant


class Corpus:
    """Texts of words as frequent as those of a language, clustered vectors, and questions."""

    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(1)
        vocabulary = np.array([f"w{number}" for number in range(20_000)])
        frequency = 1 / np.arange(1, len(vocabulary) + 1)
        words = rng.choice(vocabulary, size=(count, WORDS), p=frequency / frequency.sum())
        centres = rng.normal(size=(max(1, count // 100), DIM))
        near = centres[rng.integers(0, len(centres), count + QUERIES)]
        rows = near + 0.6 * rng.normal(size=near.shape)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        self.texts = [" ".join(row) for row in words]
        self.vectors = rows[:count].astype(np.float32)
        self.tenants = [f"t{number % TENANTS}" for number in range(count)]
        picks = rng.integers(0, count, QUERIES)
        self.queries = [" ".join(self.texts[pick].split()[:6]) for pick in picks]
        asked = zip(self.queries, rows[count:].tolist(), strict=True)
        self.by_text = dict(zip(self.texts, self.vectors.tolist(), strict=True)) | dict(asked)


def ours(corpus: Corpus, folder: str) -> Searches:
    from llama_index.core.schema import TextNode

    from llama_retrieval_ext import RRF, HybridRetriever, Query, Scope
    from llama_retrieval_ext.stores import EmbeddedVectorStore

    store = EmbeddedVectorStore(f"{folder}/kb")
    parts = zip(corpus.texts, corpus.vectors.tolist(), corpus.tenants, strict=True)
    nodes = [
        TextNode(id_=f"n{n}", text=text, embedding=vector, metadata={"tenant_id": tenant})
        for n, (text, vector, tenant) in enumerate(parts)
    ]
    for start in range(0, len(nodes), 5_000):
        store.add(nodes[start : start + 5_000])
    while store.index_info().is_building:  # in another process, at low priority
        time.sleep(1)
    print(store.index_info(), f"recall {store.check_recall():.3f}", file=sys.stderr)
    hybrid = HybridRetriever(store, top_k=TOP_K, fusion=RRF())
    scope = Scope(TENANT)
    return (
        lambda text: hybrid.retrieve(Query(text, embedding=corpus.by_text[text])),
        lambda text: hybrid.retrieve(Query(text, embedding=corpus.by_text[text], scope=scope)),
    )


def llama_index(corpus: Corpus, folder: str) -> Searches:
    from llama_index.core import VectorStoreIndex
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.llms import MockLLM
    from llama_index.core.retrievers import QueryFusionRetriever
    from llama_index.core.schema import TextNode
    from llama_index.retrievers.bm25 import BM25Retriever

    class LookedUp(BaseEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            return corpus.by_text[query]

        _get_text_embedding = _get_query_embedding

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return corpus.by_text[query]

    parts = zip(corpus.texts, corpus.vectors.tolist(), strict=True)
    nodes = [TextNode(text=text, embedding=vector) for text, vector in parts]
    index = VectorStoreIndex(nodes, embed_model=LookedUp())
    legs = [
        index.as_retriever(similarity_top_k=TOP_K),
        BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=TOP_K),
    ]
    fused = QueryFusionRetriever(
        legs, llm=MockLLM(), num_queries=1, similarity_top_k=TOP_K, use_async=False,
        mode="reciprocal_rerank",
    )  # fmt: skip
    return fused.retrieve, None  # its BM25 has no filters


def langchain(corpus: Corpus, folder: str) -> Searches:
    from langchain_classic.retrievers import EnsembleRetriever
    from langchain_community.retrievers import BM25Retriever
    from langchain_community.vectorstores import FAISS
    from langchain_core.embeddings import Embeddings

    class LookedUp(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [corpus.by_text[text] for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return corpus.by_text[text]

    store = FAISS.from_texts(corpus.texts, LookedUp())
    words = BM25Retriever.from_texts(corpus.texts)
    words.k = TOP_K
    vectors = store.as_retriever(search_kwargs={"k": TOP_K})
    fused = EnsembleRetriever(retrievers=[vectors, words], weights=[0.5, 0.5])
    return fused.invoke, None  # its BM25 has no filters


def haystack(corpus: Corpus, folder: str) -> Searches:
    from haystack import Document
    from haystack.components.joiners import DocumentJoiner
    from haystack.components.retrievers.in_memory import (
        InMemoryBM25Retriever,
        InMemoryEmbeddingRetriever,
    )
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    store = InMemoryDocumentStore()
    parts = zip(corpus.texts, corpus.vectors.tolist(), corpus.tenants, strict=True)
    store.write_documents(
        [Document(content=t, embedding=v, meta={"tenant": tenant}) for t, v, tenant in parts]
    )
    words = InMemoryBM25Retriever(store, top_k=TOP_K)
    vectors = InMemoryEmbeddingRetriever(store, top_k=TOP_K)
    joiner = DocumentJoiner(join_mode="reciprocal_rank_fusion", top_k=TOP_K)

    def searched(filters: dict[str, Any] | None) -> Search:
        return lambda text: joiner.run(
            [
                words.run(query=text, filters=filters)["documents"],
                vectors.run(corpus.by_text[text], filters=filters)["documents"],
            ]
        )

    return searched(None), searched({"field": "meta.tenant", "operator": "==", "value": TENANT})


def lancedb_indexed(corpus: Corpus, folder: str) -> Searches:
    return lancedb(corpus, folder, index=True)


def lancedb(corpus: Corpus, folder: str, *, index: bool = False) -> Searches:
    import lancedb as lance
    from lancedb.rerankers import RRFReranker

    parts = zip(corpus.texts, corpus.vectors, corpus.tenants, strict=True)
    rows = [{"text": text, "vector": vector, "tenant": tenant} for text, vector, tenant in parts]
    table = lance.connect(folder).create_table("nodes", rows)
    table.create_fts_index("text")
    table.create_scalar_index("tenant")
    if index:
        table.create_index(vector_column_name="vector")
    reranker = RRFReranker()

    def searched(where: str | None) -> Search:
        def search(text: str) -> object:
            query = table.search(query_type="hybrid").vector(corpus.by_text[text]).text(text)
            return (query.where(where) if where else query).rerank(reranker).limit(TOP_K).to_list()

        return search

    return searched(None), searched(f"tenant = '{TENANT}'")


LIBRARIES = (ours, lancedb, lancedb_indexed, langchain, llama_index, haystack)


def measured(name: str, count: int) -> dict[str, float | None]:
    """Return processor milliseconds, and megabytes, of a library in this process."""
    corpus = Corpus(count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        begun = _processor_s()
        searches = next(each for each in LIBRARIES if each.__name__ == name)(corpus, folder)
        result: dict[str, float | None] = {"adding, s": _processor_s() - begun}
        for what, search in zip(("hybrid", "a hundredth"), searches, strict=True):
            times = None if search is None else _times(search, corpus.queries)
            result[f"{what}, ms"] = times and statistics.median(times) * 1e3
            result[f"{what}, p95"] = times and float(np.percentile(times, 95)) * 1e3
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result["memory, MB"] = (peak - before) / 1024
    return result


def _processor_s() -> float:
    """Return the time of this process and of those that ended, as that which builds our index."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _times(search: Search, queries: Sequence[str]) -> list[float]:
    search(queries[0])
    times = []
    for query in queries:
        begun = time.process_time()
        search(query)
        times.append(time.process_time() - begun)
    return times


def main(counts: Sequence[int]) -> None:
    """Print a table for each number of nodes."""
    for count in counts:
        print(f"{count:,} nodes, processor time")
        for number, library in enumerate(LIBRARIES):
            command = [sys.executable, "-m", __spec__.name, library.__name__, str(count)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            row = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
            if not number:
                print("|", " | ".join(["library", *row]), "|\n|" + "---|" * (len(row) + 1))
            cells = ["" if value is None else f"{value:.3g}" for value in row.values()]
            print("|", " | ".join([library.__name__, *cells]), "|", flush=True)
            print(done.stderr[-800:] if not row else done.stderr.splitlines()[-1:], file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        main([int(argument) for argument in sys.argv[1:]])
    else:
        print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
