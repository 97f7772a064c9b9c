"""Quality and speed: ``python -m tests.benchmarks.bench_graph [quality|speed|add [GRAPH_URL]]``.

Quality is that of hybrid search and of a walk seeded by it, on the sets in ``../shared/data``, with
the embeddings there, no LLM, and one configuration for all. A set that is not there is skipped.
"""

import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import Document, NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext.embeddings.local import LocalEmbedding
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.formulas.pagerank import personalised_pagerank, transition_matrix
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.expansion import expand
from llama_retrieval_ext.graph.passage_graphs import PassageGraphs
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from llama_retrieval_ext.ingest.knowledge_base import KnowledgeBase
from llama_retrieval_ext.retrievers.graph import GraphRetriever
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.testing.fakes import FakeEmbedding

DATA: Final = Path(__file__).parents[3] / "shared" / "data"
SETS: Final = ("2wikimultihop", "musique_train100", "codebase_ctx", "cosqa")
# A batch as `KnowledgeBase.add` writes it.
_BATCH: Final = 500


class TestSet(NamedTuple):
    """A corpus with embeddings, and questions with what answers them."""

    nodes: list[TextNode]
    queries: list[tuple[str, QueryBundle]]
    relevant: dict[str, dict[str, float]]


def load(name: str) -> TestSet:
    """Return a set of the shared data."""
    folder = DATA / name
    vectors = np.load(folder / "corpus.minilm.npy").astype(float).tolist()
    nodes = [
        TextNode(
            id_=row["_id"],
            text=f"{row['title']}\n{row['text']}".strip(),
            metadata={"title": row["title"]},
            excluded_embed_metadata_keys=["title"],
            embedding=vector,
        )
        for row, vector in zip(_rows(folder / "corpus.jsonl"), vectors, strict=True)
    ]
    asked = np.load(folder / "queries.minilm.npy").astype(float).tolist()
    queries = [
        (row["_id"], QueryBundle(row["text"], embedding=vector))
        for row, vector in zip(_rows(folder / "queries.jsonl"), asked, strict=True)
    ]
    relevant: dict[str, dict[str, float]] = defaultdict(dict)
    for line in (folder / "qrels.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        relevant[query][document] = float(grade)
    return TestSet(nodes, [each for each in queries if each[0] in relevant], dict(relevant))


def _rows(file: Path) -> Iterator[dict[str, str]]:
    with file.open() as lines:
        yield from map(json.loads, lines)


def recall(found: Sequence[str], relevant: dict[str, float], k: int) -> float:
    """Return which part of what is relevant is among the first k."""
    return len(relevant.keys() & set(found[:k])) / len(relevant)


def ndcg(found: Sequence[str], relevant: dict[str, float], k: int = 10) -> float:
    """Return the normalised discounted cumulative gain of the first k."""

    def gain(grades: Sequence[float]) -> float:
        return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades[:k], start=1))

    best = sorted(relevant.values(), reverse=True)
    return gain([relevant.get(id_, 0.0) for id_ in found]) / gain(best)


def quality() -> None:
    """Print recall and nDCG of hybrid search and of the walk."""
    print(f"{'set':18}{'retriever':10}{'R@2':>7}{'R@5':>7}{'nDCG@10':>9}{'ms':>7}")
    for name in SETS:
        if not (DATA / name).is_dir():
            print(f"{name:18}skipped: {DATA / name} is not there")
            continue
        test = load(name)
        store, graph = EmbeddedVectorStore(":memory:"), EmbeddedGraph(":memory:")
        with store, graph:
            plain, linked = _written(test, store, graph)
            hybrid = HybridRetriever(store)
            walk = GraphRetriever(store, graph=PassageGraphs(graph), seed=hybrid)
            for label, retriever in (("hybrid", hybrid), ("graph", walk)):
                retriever.retrieve(test.queries[0][1])  # derives the links
                _print_quality(name, label, test, retriever.retrieve)
            print(f"{name:18}add {plain:.2f} s, with the graph {(plain + linked) / plain:.2f} x")


def _written(
    test: TestSet, store: EmbeddedVectorStore, graph: EmbeddedGraph
) -> tuple[float, float]:
    """Write a corpus as `KnowledgeBase.add` does; return seconds for the store and the graph."""
    seconds = [0.0, 0.0]
    for start in range(0, len(test.nodes), _BATCH):
        batch = test.nodes[start : start + _BATCH]
        begun = time.perf_counter()
        store.add(list(batch))
        between = time.perf_counter()
        graph.upsert(*passage_rows(batch, PassageLinks()), source="corpus").function()
        seconds[0] += between - begun
        seconds[1] += time.perf_counter() - between
    return seconds[0], seconds[1]


def _print_quality(
    name: str, label: str, test: TestSet, retrieve: Callable[[QueryBundle], list[NodeWithScore]]
) -> None:
    rows, milliseconds = [], []
    for id_, query in test.queries:
        begun = time.perf_counter()
        found = [hit.node.node_id for hit in retrieve(query)]
        milliseconds.append(1000 * (time.perf_counter() - begun))
        own = test.relevant[id_]
        rows.append((recall(found, own, 2), recall(found, own, 5), ndcg(found, own)))
    two, five, gain = map(fmean, zip(*rows, strict=True))
    print(f"{name:18}{label:10}{two:7.3f}{five:7.3f}{gain:9.3f}{median(milliseconds):7.1f}")


def speed() -> None:
    """Print the time of a walk and of hops."""
    for edges in (100_000, 1_000_000):
        random = np.random.default_rng(7)
        size = edges // 5
        sources = random.integers(size, size=edges)
        targets = (random.pareto(1.2, edges) * size / 50).astype(int) % size
        matrix = transition_matrix(
            np.concatenate([sources, targets]), np.concatenate([targets, sources]), size=size
        )
        restart = np.zeros(size)
        restart[random.integers(size, size=100)] = 1.0
        walk = _fastest(lambda m=matrix, r=restart: personalised_pagerank(m, r))  # type: ignore[misc]
        print(f"PageRank, {edges:,} edges in both directions: {walk:.1f} ms")
    with EmbeddedGraph(":memory:") as graph:
        pairs = random.integers(20_000, size=(100_000, 2))
        edges_ = [Edge(f"n{a}", "LINKS", f"n{b}") for a, b in pairs]
        graph.upsert([GraphNode(f"n{place}") for place in range(20_000)], edges_).function()
        for hops in (1, 2, 3):

            def reach(hops: int = hops) -> None:
                expansion = run(expand(graph, ["n7"], max_hops=hops))
                for id_ in expansion:
                    expansion.path(id_)

            print(f"{hops} hops with paths, 100,000 edges: {_fastest(reach):.3f} ms")


def add(graph: str | None = None) -> None:
    """Print what `KnowledgeBase.add` takes with a graph and without, for 2,000 documents.

    Args:
        graph: URL of a graph that may be cleared; None for an embedded one.
    """
    rows = list(islice(_rows(DATA / "2wikimultihop" / "corpus.jsonl"), 2_000))
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


def _fastest(function: Callable[[], object], rounds: int = 10) -> float:
    milliseconds = []
    for _ in range(rounds):
        begun = time.perf_counter()
        function()
        milliseconds.append(1000 * (time.perf_counter() - begun))
    return min(milliseconds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["add"]:
        add(*sys.argv[2:])
    else:
        for part in sys.argv[1:] or ["speed", "quality"]:
            {"speed": speed, "quality": quality}[part]()
