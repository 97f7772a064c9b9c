"""The default hybrid by the script of the question: ``python -m tests.benchmarks.bench_scripts``.

nDCG@10 with `LocalEmbedding` on each set of ``../shared/data`` and on the sample of regulations: of
keyword search, of hybrid search with equal weights for every question, and of the default, which
weighs vectors less in scripts that the model does not know.
"""

from typing import Final

from llama_retrieval_ext import HybridRetriever, KeywordRetriever, LocalEmbedding
from llama_retrieval_ext.evaluation import Experiment, Judgements
from llama_retrieval_ext.stores import EmbeddedVectorStore
from tests.benchmarks.bench_graph import TestSet, laws, load

SETS: Final = (
    *("cmrc2018", "zh_construction_safety_laws"),
    *("codebase_ctx", "cosqa", "2wikimultihop", "musique_train100"),
)


def measure(name: str, test: TestSet) -> None:
    """Print nDCG@10 of the three retrievers on a set."""
    model = LocalEmbedding()
    vectors = model.get_text_embedding_batch([node.text for node in test.nodes])
    with EmbeddedVectorStore(":memory:") as store:
        store.add(
            [
                node.model_copy(update={"embedding": vector})
                for node, vector in zip(test.nodes, vectors, strict=True)
            ]
        )
        queries = {query_id: query.query_str for query_id, query in test.queries}
        relevant = {
            query_id: {doc: int(grade) for doc, grade in test.relevant[query_id].items()}
            for query_id in queries
        }
        retrievers = {
            "keyword": KeywordRetriever(store),
            "equal": HybridRetriever(store, embed_model=model, languages=[]),
            "default": HybridRetriever(store, embed_model=model),
        }
        judged = Judgements(queries, relevant)
        found = Experiment(retrievers, judged, measures=["nDCG@10"]).run(progress=False).results
        values = dict(zip(found["retriever"], found["nDCG@10"], strict=True))
    print(
        f"{name:30}",
        *(f"{retriever} {values[retriever]:.4f} " for retriever in retrievers),
        len(queries),
    )


def main() -> None:
    """Print a line a set."""
    for name in SETS:
        measure(name, load(name))
    measure("regulations, known item", laws())


if __name__ == "__main__":
    main()
