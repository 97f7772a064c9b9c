"""Tuning and the default hybrid on labelled sets: ``python -m tests.benchmarks.bench_tuning``.

For each set in ``../shared/data`` with saved MiniLM embeddings, our keyword and vector search give
100 hits each, once. Tuned on labelled questions from a random half, and measured on the other half,
200 times. ``quality`` instead of that compares the untuned default with LlamaIndex's fusions of the
same legs. A set that is not there is skipped.
"""

import sys
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms.mock import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from pydantic import PrivateAttr

from llama_retrieval_ext import HybridRetriever, KeywordRetriever, VectorRetriever
from llama_retrieval_ext.evaluation import Experiment, Judgements
from llama_retrieval_ext.evaluation.trial import Trial
from llama_retrieval_ext.evaluation.tunable import FusedPipeline
from llama_retrieval_ext.evaluation.tuning import LEAST_LABELS
from llama_retrieval_ext.stores import EmbeddedVectorStore
from tests.benchmarks.bench_graph import DATA, load

SETS: Final = ("codebase_ctx", "cosqa", "2wikimultihop", "musique_train100")
LABELS: Final = (50, 20, 19)
_HALVES: Final = 200
_CANDIDATES: Final = 100


class SavedEmbedding(BaseEmbedding):
    """Embeddings of questions that were saved beside them."""

    _vectors: Mapping[str, list[float]] = PrivateAttr()

    def __init__(self, vectors: Mapping[str, list[float]]) -> None:
        super().__init__(model_name="saved")
        self._vectors = vectors

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._vectors[query]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._vectors[query]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._vectors[text]


def prepared(name: str, store: EmbeddedVectorStore) -> tuple[SavedEmbedding, Judgements]:
    """Fill a store with a set; return the embeddings of its questions, and what is relevant."""
    test = load(name)
    store.add(list(test.nodes))
    vectors = {query.query_str: query.embedding or [] for _, query in test.queries}
    queries = {query_id: query.query_str for query_id, query in test.queries}
    relevant = {id_: {doc: int(g) for doc, g in own.items()} for id_, own in test.relevant.items()}
    return SavedEmbedding(vectors), Judgements(queries, relevant)


def gains(trial: Trial, labels: int, seed: int = 0) -> list[float]:
    """Return what tuning gains on the other half, for each random division into halves."""
    random, found = np.random.default_rng(seed), []
    default = trial.values(trial.pipeline.default)
    for _ in range(_HALVES):
        order = random.permutation(len(default))
        half, others = order[: len(order) // 2], order[len(order) // 2 :]
        chosen = trial.pipeline.default
        if labels >= LEAST_LABELS:
            chosen, _ = trial.choose(half[:labels])
        found.append(float((trial.values(chosen) - default)[others].mean()))
    return found


def tuning() -> None:
    """Print the mean gain in nDCG@10 for each set and number of labels."""
    print(f"{'set':18}" + "".join(f"{count:>3} labels" + " " * 3 for count in LABELS))
    means: dict[int, list[float]] = {count: [] for count in LABELS}
    for name in _present():
        with EmbeddedVectorStore(":memory:") as store:
            model, judged = prepared(name, store)
            hybrid = HybridRetriever(store, embed_model=model, candidates=_CANDIDATES)
            trial = Trial(FusedPipeline(hybrid), judged, "nDCG@10")
            trial.collect(None, progress=False)
            for count in LABELS:
                means[count].append(fmean(gains(trial, count)))
        print(f"{name:18}" + "".join(f"{means[count][-1]:+10.4f}   " for count in LABELS))
    print(f"{'mean':18}" + "".join(f"{fmean(means[count]):+10.4f}   " for count in LABELS))


def quality() -> None:
    """Print nDCG@10 of the untuned default, of its legs, and of LlamaIndex's fusions of them."""
    for name in _present():
        with EmbeddedVectorStore(":memory:") as store:
            model, judged = prepared(name, store)
            vector = VectorRetriever(store, embed_model=model, top_k=_CANDIDATES)
            keyword = KeywordRetriever(store, top_k=_CANDIDATES)
            retrievers = {
                "hybrid": HybridRetriever(store, embed_model=model, top_k=_CANDIDATES),
                "keyword": keyword,
                "vector": vector,
                "LlamaIndex RRF": _stock([vector, keyword], "reciprocal_rerank"),
                "LlamaIndex relative score": _stock([vector, keyword], "relative_score"),
            }
            found = Experiment(retrievers, judged, measures=["nDCG@10"]).run(progress=False)
            print(name)
            print(found.significance.drop(columns=["measure", "baseline", "questions"]).to_string())
            print(found.results[["retriever", "nDCG@10", "p50_ms"]].to_string(), "\n")


def _stock(legs: Sequence[VectorRetriever | KeywordRetriever], mode: str) -> QueryFusionRetriever:
    return QueryFusionRetriever(
        list(legs),
        llm=MockLLM(),
        mode=mode,
        num_queries=1,
        similarity_top_k=_CANDIDATES,
        use_async=False,
    )


def _present() -> list[str]:
    for name in SETS:
        if not (DATA / name).is_dir():
            print(f"{name:18}skipped: {DATA / name} is not there")
    return [name for name in SETS if (DATA / name).is_dir()]


if __name__ == "__main__":
    quality() if "quality" in sys.argv[1:] else tuning()
