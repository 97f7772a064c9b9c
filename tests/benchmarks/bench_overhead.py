"""What a retriever itself costs: ours and LlamaIndex's over a store that answers at once."""

from llama_index.core import VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever

from llama_retrieval_ext import RRF, GenericBackend, VectorRetriever
from tests.benchmarks.instant_store import InstantEmbedding, InstantStore
from tests.benchmarks.ratio import compare


def run(top_k: int) -> None:
    """A single vector search, and the fusion of two."""
    store, model = InstantStore(), InstantEmbedding()
    index = VectorStoreIndex.from_vector_store(store, embed_model=model)
    ours = [
        VectorRetriever(GenericBackend(store), embed_model=model, top_k=top_k, name=name)
        for name in "ab"
    ]
    stock = [index.as_retriever(similarity_top_k=top_k) for _ in "ab"]
    compare(
        f"vector, k={top_k}",
        {"ours": lambda _: ours[0].retrieve("q"), "stock": lambda _: stock[0].retrieve("q")},
        rounds=300,
        goal="<= 0.5",
    )
    fused = (ours[0] | ours[1]) >> RRF()
    options = {"llm": MockLLM(), "num_queries": 1, "mode": "reciprocal_rerank"}
    stock_fused = QueryFusionRetriever(stock, similarity_top_k=top_k, **options)
    stock_sync = QueryFusionRetriever(stock, similarity_top_k=top_k, use_async=False, **options)
    compare(
        f"RRF of two, k={top_k}",
        {
            "ours": lambda _: fused.retrieve("q"),
            "stock": lambda _: stock_fused.retrieve("q"),
            "stock, use_async=False": lambda _: stock_sync.retrieve("q"),
        },
        rounds=300,
        goal="<= 0.5",
    )


if __name__ == "__main__":
    for k in (10, 100):
        run(k)
