"""A large embedded store: `bench_million.py [NODES [VECTORS [INDEX [TENANTS [DIM]]]]]`.

By default 100000 float16 hnsw 1000 384. Clustered embeddings, texts of 60 words. The tenant that is
searched has 1000 nodes, whatever the number of the others. With 1000000 it takes 8 GB of disk and
some 45 minutes of processor time, nearly all of it for the index.
"""

import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core.schema import TextNode

from llama_retrieval_ext import HybridRetriever, Query, Scope, VectorRetriever
from llama_retrieval_ext.stores.embedded.files import bytes_on_disk
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore

_WORDS = 60
_OWN_NODES = 1000
_RNG = np.random.default_rng(1)
_VOCABULARY = np.array([f"w{number}" for number in range(20_000)])
_COMMON = 1 / np.arange(1, len(_VOCABULARY) + 1)
_COMMON /= _COMMON.sum()


def texts(n: int) -> list[str]:
    words = _RNG.choice(_VOCABULARY, size=(n, _WORDS), p=_COMMON)
    return [" ".join(row) for row in words]


class Corpus:
    def __init__(self, n: int, tenants: int = 1000, dim: int = 384) -> None:
        self.n, self.tenants, self.dim = n, tenants, dim
        self.centres = _RNG.normal(size=(max(1, n // 100), dim))

    def embeddings(self, n: int) -> "np.ndarray[Any, Any]":
        near = self.centres[_RNG.integers(0, len(self.centres), n)]
        return near + 0.6 * _RNG.normal(size=(n, self.dim))

    def tenant(self, at: int) -> str:
        is_own = at % max(1, self.n // _OWN_NODES) == 0
        return "own" if is_own else f"t{at % self.tenants}"

    def batches(self, size: int = 5000) -> Iterator[list[TextNode]]:
        for first in range(0, self.n, size):
            n = min(size, self.n - first)
            rows = zip(texts(n), self.embeddings(n).tolist(), strict=True)
            yield [
                TextNode(
                    id_=f"n{first + at}",
                    text=text,
                    embedding=embedding,
                    metadata={"tenant_id": self.tenant(first + at)},
                )
                for at, (text, embedding) in enumerate(rows)
            ]


def median_ms(run: Callable[[Query], object], queries: list[Query]) -> str:
    """Return the medians for queries whose pages may not be mapped yet, and for the same again."""
    first, again = (_medians(run, queries) for _ in range(2))
    return f"{first}; again {again}"


def _medians(run: Callable[[Query], object], queries: list[Query]) -> str:
    seconds, cpu = [], []
    for query in queries:
        start, start_cpu = time.perf_counter(), time.process_time()
        run(query)
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    middle, processor = (1000 * statistics.median(each) for each in (seconds, cpu))
    return f"{middle:.2f} ms, CPU {processor:.2f} ms"


def resident_gb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**30


def say(what: str, value: object) -> None:
    print(f"{what:>28}: {value}", flush=True)


def searches(store: EmbeddedVectorStore, corpus: Corpus, when: str) -> None:
    vector, hybrid = VectorRetriever(store, top_k=10), HybridRetriever(store, top_k=10)
    words = [" ".join(text.split()[:6]) for text in texts(60)]
    queries = [
        Query(text, embedding=embedding)
        for text, embedding in zip(words, corpus.embeddings(60).tolist(), strict=True)
    ]
    exact = [Query(query.query_str, embedding=query.embedding, exact=True) for query in queries]
    tenant = Scope("own")
    for name, retriever in (("vector", vector), ("hybrid", hybrid)):
        say(f"{when}, {name}", median_ms(retriever.retrieve, queries))
        if name == "vector":
            say(f"{when}, vector, exact=True", median_ms(retriever.retrieve, exact))
        scoped = retriever.for_scope(tenant)
        say(f"{when}, {name}, one tenant", median_ms(scoped.retrieve, queries))


def main(
    n: int = 100_000,
    vectors: Any = "float16",
    index: Any = "hnsw",
    tenants: int = 1000,
    dim: int = 384,
) -> None:
    corpus = Corpus(n, tenants, dim)
    with tempfile.TemporaryDirectory() as folder:
        spent = spent_cpu = 0.0
        with EmbeddedVectorStore(f"{folder}/s", vectors=vectors, index="exact") as store:
            for batch in corpus.batches():
                start, start_cpu = time.perf_counter(), time.process_time()
                store.add(batch)
                spent += time.perf_counter() - start
                spent_cpu += time.process_time() - start_cpu
            say("add, a node", f"{spent / n * 1e6:.0f} µs, CPU {spent_cpu / n * 1e6:.0f} µs")
            searches(store, corpus, "before")
        with EmbeddedVectorStore(f"{folder}/s", index=index) as store:
            start, start_cpu = time.perf_counter(), time.process_time()
            store.build_index()
            spent, own = time.perf_counter() - start, time.process_time() - start_cpu
            engine = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            say("index", f"{spent:.0f} s; {store.index_info()}")
            say("CPU, all / engine", f"{own + engine:.0f} / {engine:.0f} s")
            searches(store, corpus, "after")
            say("recall@10", f"{store.check_recall(100):.3f}")
            say("on disk", f"{bytes_on_disk(Path(folder)) / 2**30:.2f} GB")
        start = time.perf_counter()
        with EmbeddedVectorStore(f"{folder}/s") as store:
            say("reopening", f"{time.perf_counter() - start:.2f} s")
            searches(store, corpus, "reopened")
            say("resident", f"{resident_gb():.2f} GB")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(*(int(argument) if argument.isdigit() else argument for argument in arguments))
