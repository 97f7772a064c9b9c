"""Building the index of the embedded engine, and searches meanwhile.

``python -m tests.benchmarks.bench_index [NODES]``

Processor time of the process that only indexes (the engine's own), and of this process, which
copies the files and computes the keyword weights; vector searches before the build, and during
another one.
"""

import resource
import statistics
import sys
import tempfile
import time
from threading import Thread

from llama_index.core.schema import QueryBundle

from llama_retrieval_ext import EmbeddedVectorStore, VectorRetriever
from tests.benchmarks.bench_embedded import WORDS, vectors
from tests.benchmarks.instant_store import make_nodes

_SEARCHES = 100


def main(count: int) -> None:
    """Print the processor times, and the medians of searches."""
    nodes = make_nodes(count)
    for number, (node, row) in enumerate(zip(nodes, vectors(count), strict=True)):
        node.embedding = row.tolist()
        node.set_content(" ".join(WORDS[(number * i) % len(WORDS)] for i in range(70)))
    questions = vectors(_SEARCHES, seed=7).tolist()
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedVectorStore(folder, index="auto") as store,
    ):
        store.add(nodes)
        retriever = VectorRetriever(store)

        def search(number: int) -> tuple[float, float]:
            clock, processor = time.perf_counter(), time.thread_time()
            retriever.retrieve(QueryBundle("q", embedding=questions[number % _SEARCHES]))
            return time.perf_counter() - clock, time.thread_time() - processor

        own, start = time.process_time(), time.perf_counter()
        store.build_index()
        own, seconds = time.process_time() - own, time.perf_counter() - start
        engine = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        before = [search(number) for number in range(_SEARCHES)]
        build = Thread(target=store.build_index)
        build.start()
        during: list[tuple[float, float]] = []
        while build.is_alive():
            during.append(search(len(during)))
            time.sleep(0.02)
    print(
        f"{count} nodes: index in {seconds:.0f} s; processor time of the engine {engine:.1f} s, "
        f"of copy and weights {own:.1f} s; all / engine = {(engine + own) / engine:.2f}"
    )
    for title, place in (("by the clock", 0), ("processor time", 1)):
        old, new = (statistics.median(row[place] for row in rows) for rows in (before, during))
        worst = max(each[place] for each in during)
        print(
            f"search {title}: before {old * 1e3:.2f} ms, during {new * 1e3:.2f} ms "
            f"({len(during)} searches, worst {worst * 1e3:.0f} ms); ratio {new / old:.2f}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:] or ["20000"]))
