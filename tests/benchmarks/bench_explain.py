"""What `explain` costs over `retrieve` and `search`, and how large the views of ten hits are.

``python -m tests.benchmarks.bench_explain [NODES]``: articles of the sample laws, by default
10,000, with vectors of `LocalEmbedding`, on the embedded engine.
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from itertools import cycle, islice

from llama_index.core.schema import TextNode

from llama_retrieval_ext import (
    EmbeddedVectorStore,
    HybridRetriever,
    LocalEmbedding,
    RuleRerank,
    Top,
)
from llama_retrieval_ext.samples.regulations import zh_safety_laws

QUESTIONS = ("安全生产许可证的有效期", "施工单位的安全责任", "火灾报警", "劳动防护用品")
ROUNDS = 150


def cpu_times(calls: Mapping[str, Callable[[str], object]]) -> dict[str, list[float]]:
    """Milliseconds of CPU of each call, round by round; who begins changes from round to round."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for number in range(ROUNDS):
        order.append(order.pop(0))
        for name in order:
            begun = time.process_time()
            calls[name](QUESTIONS[number % len(QUESTIONS)])
            times[name].append((time.process_time() - begun) * 1e3)
    return times


def run(count: int) -> None:
    """The times of both, of a hybrid retriever and with stages behind it, and the sizes."""
    model, store = LocalEmbedding(), EmbeddedVectorStore(":memory:")
    laws = zh_safety_laws()
    vectors = model.get_text_embedding_batch([law.text for law in laws])
    nodes = [
        TextNode(id_=f"{law.doc_id}/{n}", text=law.text, metadata=law.metadata, embedding=vector)
        for n, (law, vector) in enumerate(islice(cycle(zip(laws, vectors, strict=True)), count))
    ]
    store.add(nodes)
    hybrid = HybridRetriever(store, embed_model=model, top_k=10)
    long = HybridRetriever(store, embed_model=model, top_k=50) >> RuleRerank() >> Top(10)
    for name, retriever in {"hybrid": hybrid, "hybrid, rerank, top": long}.items():
        calls = {each: getattr(retriever, each) for each in ("explain", "retrieve", "search")}
        times = cpu_times(calls)
        explain, *others = (statistics.median(own) for own in times.values())
        ratios = ", ".join(f"{explain / each:.2f}" for each in others)
        print(
            f"{name}, {count} nodes: explain {explain:.1f} ms CPU; over retrieve, search: {ratios}"
        )
        explanation = retriever.explain(QUESTIONS[0])
        sizes = {
            "result": retriever.search(QUESTIONS[0])._repr_html_(),
            "explanation": explanation._repr_html_(),
        }
        for what, html in sizes.items():
            print(
                f"  HTML of the {what}, {len(explanation)} hits: {len(html.encode()) / 1e3:.1f} kB"
            )


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
