"""Keyword searches among nodes of equal length, where a frequent term gives thousands of ties."""

import random
import time
from statistics import median, quantiles

from llama_index.core.schema import TextNode

from llama_retrieval_ext import KeywordRetriever, open_store

N_NODES, N_WORDS, LENGTH, TOP_K = 10_000, 2_000, 50, 100


def run() -> None:
    """Print the median and the 95th percentile over terms of every frequency."""
    rng = random.Random(1)
    words = [f"w{rank}" for rank in range(N_WORDS)]
    frequencies = [1 / (rank + 1) for rank in range(N_WORDS)]

    def text(length: int) -> str:
        return " ".join(rng.choices(words, frequencies, k=length))

    with open_store("embedded::memory:") as store:
        store.add(
            [TextNode(id_=f"{n}", text=text(LENGTH), embedding=[1.0]) for n in range(N_NODES)]
        )
        retriever = KeywordRetriever(store, top_k=TOP_K)
        queries = [*(text(rng.randint(1, 3)) for _ in range(300)), *words[:100]]
        for query in queries:
            retriever.retrieve(query)
        for clock in (time.process_time, time.perf_counter):
            times = []
            for query in queries:
                start = clock()
                retriever.retrieve(query)
                times.append(1e3 * (clock() - start))
            p95 = quantiles(times, n=20)[-1]
            print(f"{clock.__name__}: median {median(times):.2f} ms, p95 {p95:.2f} ms")


if __name__ == "__main__":
    run()
