"""What a graph costs `KnowledgeBase.add`: ``python -m tests.benchmarks.bench_graph_add [URL]``."""

import json
import sys
import time
from itertools import islice
from tempfile import TemporaryDirectory

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import Document

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding
from llama_retrieval_ext.testing import FakeEmbedding
from tests.benchmarks.bench_graph import DATA


def add(graph: str | None = None) -> None:
    """Print what `KnowledgeBase.add` takes with a graph and without, for 2,000 documents.

    Args:
        graph: URL of a graph that may be cleared; None for an embedded one.
    """
    with (DATA / "2wikimultihop" / "corpus.jsonl").open() as lines:
        rows = [json.loads(line) for line in islice(lines, 2_000)]
    documents = [
        Document(id_=row["_id"], text=row["text"], metadata={"title": row["title"]}) for row in rows
    ]
    models: list[BaseEmbedding] = [FakeEmbedding(dim=384), LocalEmbedding()]
    for model in models:
        place = graph or "graph:{}/graph"
        runs = [(*_added(documents, model), *_added(documents, model, place)) for _ in range(3)]
        plain, plain_cpu, linked, linked_cpu = map(min, zip(*runs, strict=True))
        print(
            f"add {len(documents):,} documents, {type(model).__name__}: {plain:.2f} s, "
            f"with the graph {linked:.2f} s, {linked / plain:.2f} x "
            f"(of this process's CPU {linked_cpu / plain_cpu:.2f} x)"
        )


def _added(
    documents: list[Document], model: BaseEmbedding, graph: str | None = None
) -> tuple[float, float]:
    with TemporaryDirectory() as folder:
        url = None if graph is None else graph.format(folder)
        with KnowledgeBase.open(f"embedded:{folder}/kb", embed_model=model, graph=url) as kb:
            begun, cpu = time.perf_counter(), time.process_time()
            kb.add(documents, show_progress=False).raise_for_failures()
            seconds = time.perf_counter() - begun, time.process_time() - cpu
            kb.clear()
            return seconds


if __name__ == "__main__":
    add(*sys.argv[1:])
