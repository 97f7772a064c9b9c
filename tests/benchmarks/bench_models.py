"""Embedding models in this process: ``python -m tests.benchmarks.bench_models [SET]``.

MiniLM-L6 with int8 weights in fastembed, against the saved vectors of the original and against
``LocalEmbedding``: quality of vector search over all passages of a set, processor time and memory.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode
from numpy.typing import NDArray

from llama_retrieval_ext.embeddings.local import FastEmbedding, LocalEmbedding
from tests.benchmarks.bench_graph import TestSet, load
from tests.onnx_models import minilm


def vectors_of(model: BaseEmbedding, test: TestSet) -> tuple[NDArray[np.float64], ...]:
    """Embed passages and questions, and print what it took."""
    texts = [node.get_content(MetadataMode.NONE) for node in test.nodes]
    started = time.process_time()
    passages = np.array(model.get_text_embedding_batch(texts))
    passage_ms = (time.process_time() - started) / len(texts) * 1e3
    started = time.process_time()
    questions = np.array([model.get_query_embedding(q.query_str) for _, q in test.queries])
    question_ms = (time.process_time() - started) / len(questions) * 1e3
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{model.class_name()}: processor time {passage_ms:.2f} ms a passage of "
        f"{fmean(len(text) for text in texts):.0f} characters, {question_ms:.2f} ms a question; "
        f"most memory {memory_mb:.0f} MB"
    )
    return passages, questions


def ndcg(passages: NDArray[np.float64], questions: NDArray[np.float64], test: TestSet) -> float:
    """nDCG@10 of exact vector search."""
    ids = [node.node_id for node in test.nodes]
    values = []
    for (query_id, _), scores in zip(test.queries, questions @ passages.T, strict=True):
        gains = [test.relevant[query_id].get(ids[i], 0) for i in np.argsort(-scores)[:10]]
        best = sorted(test.relevant[query_id].values(), reverse=True)[:10]
        values.append(_dcg(gains) / _dcg(best))
    return fmean(values)


def _dcg(gains: list[float]) -> float:
    return sum(gain / np.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def main(name: str) -> None:
    test = load(name)
    saved = (
        np.array([node.embedding for node in test.nodes]),
        np.array([query.embedding for _, query in test.queries]),
    )
    print(f"{name}: saved vectors nDCG@10 {ndcg(*saved, test):.3f}")
    with tempfile.TemporaryDirectory() as folder:
        for model in (LocalEmbedding(), FastEmbedding(str(minilm(Path(folder) / "minilm")))):
            model.get_text_embedding("load it")
            print(f"nDCG@10 {ndcg(*vectors_of(model, test), test):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["musique_train100"])
