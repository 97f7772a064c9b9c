"""Adding documents one by one while another thread searches, on the embedded engine.

``python -m tests.benchmarks.bench_add_search [DOCUMENTS]`` prints what an addition takes, by the
clock and in processor time, and how many searches end meanwhile.
"""

import statistics
import sys
import tempfile
import time
from threading import Event, Thread

from llama_index.core.schema import Document

from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.testing.fakes import FakeEmbedding


def main(count: int) -> None:
    """Print the medians of additions, and the searches beside them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        KnowledgeBase.open(f"embedded:{folder}/kb", embed_model=FakeEmbedding(dim=64)) as kb,
    ):
        text = "annual leave {} in words of the handbook " * 8
        kb.add([Document(id_=f"d{n}", text=text.format(*[n] * 8)) for n in range(500)])
        done, searches, additions = Event(), list[float](), list[tuple[float, float]]()

        def search() -> None:
            while not done.wait(0.002):
                start = time.perf_counter()
                kb.search("leave handbook")
                searches.append(time.perf_counter() - start)

        searching, begun = Thread(target=search), time.perf_counter()
        searching.start()
        for number in range(count):
            clock, processor = time.perf_counter(), time.thread_time()
            kb.add([Document(id_=f"x{number}", text=f"annual leave, new words {number}")])
            additions.append((time.perf_counter() - clock, time.thread_time() - processor))
        seconds = time.perf_counter() - begun
        done.set()
        searching.join()
    clock, processor = (statistics.median(column) * 1e3 for column in zip(*additions, strict=True))
    cuts = statistics.quantiles(searches, n=100)
    print(
        f"addition {clock:.1f} ms, processor time {processor:.1f} ms; meanwhile "
        f"{len(searches) / seconds:.0f} searches/s, p50 {cuts[49] * 1e3:.1f}, "
        f"p95 {cuts[94] * 1e3:.1f}, p99 {cuts[98] * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 120)
