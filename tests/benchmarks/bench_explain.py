"""What `explain` costs over `retrieve`, and how large the views of ten hits are.

``python -m tests.benchmarks.bench_explain [NODES]``: sentences of the sample laws, by default 10,000,
with vectors of `LocalEmbedding`, on the embedded engine.
"""

import sys
from itertools import cycle, islice

from llama_index.core.schema import TextNode

from llama_retrieval_ext import EmbeddedVectorStore, HybridRetriever, LocalEmbedding, RuleRerank, Top
from llama_retrieval_ext.samples.regulations import zh_safety_laws
from tests.benchmarks.ratio import compare

QUESTIONS = ("安全生产许可证的有效期是多久？", "施工单位的安全责任", "火灾报警", "劳动防护用品")
ROUNDS = 150


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
        compare(
            f"{name}, {count} nodes",
            {
                "explain": lambda n, each=retriever: each.explain(QUESTIONS[n % 4]),
                "retrieve": lambda n, each=retriever: each.retrieve(QUESTIONS[n % 4]),
            },
            rounds=ROUNDS,
            goal="<= 1.15",
        )
        explanation = retriever.explain(QUESTIONS[0])
        sizes = {
            "result": retriever.search(QUESTIONS[0])._repr_html_(),  # noqa: SLF001 - Jupyter's name
            "explanation": explanation._repr_html_(),  # noqa: SLF001
        }
        for what, html in sizes.items():
            print(f"  HTML of the {what}, {len(explanation)} hits: {len(html.encode()) / 1e3:.1f} kB")


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
