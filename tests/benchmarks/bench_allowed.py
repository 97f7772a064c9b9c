"""Permissions by document: wrong answers, and what they cost.

``python -m tests.benchmarks.bench_allowed fuzz 20000 [URL [GRAPH]]`` compares answers with an
oracle, while documents are shared, revoked and deleted. ``... speed 100000`` times the top 10 of
100,000 nodes for 10,000 groups and users in 200 of them, in processor time, in turns with queries
without principals, and compares the nearest of the visible with all of them: on the embedded engine
without an index, with one (``speed 100000 hnsw [FOLDER]``; the folder keeps the store for the next
run), or on the store of a URL, which it clears.
"""

import sys
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import Random

import numpy as np
from llama_index.core.schema import TextNode

from llama_retrieval_ext import HybridRetriever, Query, Scope, open_store
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.testing import FakeEmbedding
from tests.knowledge_base.permissions import Fuzzer, opened

GROUPS, OF_USER, DIM, RUNS, RECALLS = 10_000, 200, 384, 200, 200


def fuzz(queries: str, url: str = "embedded::memory:", graph: str | None = None) -> None:
    """Print the number of wrong answers."""
    if url == "embedded::memory:" and graph is None:
        graph = "graph::memory:"
    begun = time.perf_counter()
    with opened(url, graph) as kb:
        kb.clear()
        fuzzer = Fuzzer(kb, Random(1))
        for part in range(1, 11):
            fuzzer.run(int(queries) * part // 10, changes=3, users=5)
            print(f"{url}, {graph}: {len(fuzzer.wrong)} wrong of {fuzzer.queries:,}", flush=True)
        kb.clear()
    print(f"{time.perf_counter() - begun:.0f} s", *fuzzer.wrong[:5], sep="\n")


def speed(nodes: str, kind: str = "exact", folder: str = "") -> None:
    """Print the times of both searches, and the recall of the visible."""
    random, numbers = Random(0), np.random.default_rng(0)
    # Texts of different lengths, with frequent words and rare ones: scores seldom tie.
    words = [f"w{n}" for n in range(20_000)]
    weights = list(accumulate(1 / (n + 10) for n in range(20_000)))
    centres = numbers.standard_normal((200, DIM))

    def text(least: int, most: int) -> str:
        return " ".join(random.choices(words, cum_weights=weights, k=random.randint(least, most)))

    def embedding() -> list[float]:
        return (centres[random.randrange(200)] + 0.7 * numbers.standard_normal(DIM)).tolist()

    filled = _nodes(int(nodes), random, lambda: (text(20, 80), embedding()))
    store = _opened(kind, folder or ":memory:", filled)
    random, numbers = Random(1), np.random.default_rng(1)  # the same queries for a kept store
    model = FakeEmbedding(dim=DIM)
    vector = VectorRetriever(store, embed_model=model, top_k=10)
    hybrid = HybridRetriever(store, embed_model=model, top_k=10)
    keyword = KeywordRetriever(store, top_k=10)

    def scope() -> Scope:
        return Scope(principals=_groups(random, OF_USER))

    searches: dict[str, Callable[[Scope | None], object]] = {
        "vector": lambda of: vector.retrieve(Query("q", embedding=embedding(), scope=of)),
        "keyword": lambda of: keyword.retrieve(Query(text(4, 4), scope=of)),
        "hybrid": lambda of: hybrid.retrieve(Query(text(4, 4), embedding=embedding(), scope=of)),
    }
    for name, search in searches.items():
        _compare(name, search, scope)
    found = []
    for _ in range(RECALLS):
        wanted, of = embedding(), scope()
        hits = {hit.node_id for hit in vector.retrieve(Query("q", embedding=wanted, scope=of))}
        found.append(len(hits & _nearest_visible(filled, wanted, of)) / 10)
    print(f"recall of what is visible: {np.mean(found):.4f}, least {min(found):.1f}")
    if not folder:
        store.clear()


def _nearest_visible(nodes: Sequence[TextNode], embedding: list[float], scope: Scope) -> set[str]:
    """Return the ids of the ten nearest nodes in scope, by comparing all of them."""
    visible = [node for node in nodes if matches(scope.condition, node.metadata)]
    rows = np.array([node.embedding for node in visible])
    scores = rows @ np.array(embedding) / np.linalg.norm(rows, axis=1)
    return {visible[place].node_id for place in np.argsort(-scores)[:10]}


def _groups(random: Random, count: int) -> list[str]:
    return [f"group:{number}" for number in random.sample(range(GROUPS), count)]


def _opened(kind: str, place: str, nodes: Sequence[TextNode]) -> EngineStore:
    """Return a store with the nodes."""
    store: EngineStore
    if kind in {"exact", "hnsw"}:
        store = EmbeddedVectorStore(place, index="hnsw" if kind == "hnsw" else "exact")
    else:
        params = {"number_of_replicas": 0} if kind.startswith("elasticsearch") else None
        store = open_store(kind, store_params=params)
    if not store.count():
        for start in range(0, len(nodes), 2_000):
            store.add(nodes[start : start + 2_000])
    if isinstance(store, EmbeddedVectorStore) and kind == "hnsw" and not store.index_info().indexed:
        store.build_index()
    return store


def _nodes(
    count: int, random: Random, content: Callable[[], tuple[str, list[float]]]
) -> list[TextNode]:
    """Return nodes; a tenth is for everyone, the others for some groups."""
    made = []
    for number in range(count):
        text, embedding = content()
        allowed = _groups(random, random.randint(1, 4)) if random.random() < 0.9 else None
        metadata = {} if allowed is None else {"allowed": allowed}
        made.append(TextNode(id_=str(number), text=text, metadata=metadata, embedding=embedding))
    return made


def _compare(
    name: str, search: Callable[[Scope | None], object], scope: Callable[[], Scope]
) -> None:
    times: tuple[list[float], list[float]] = ([], [])
    for run in range(RUNS + 10):
        for kept, principals in zip(times, (None, scope()), strict=True):
            begun = time.process_time()
            search(principals)
            if run >= 10:
                kept.append(time.process_time() - begun)
    every, some = (_percentiles(each) for each in times)
    print(
        f"{name}: without principals {every[0]:.2f} ms, p95 {every[1]:.2f}; with {OF_USER} "
        f"{some[0]:.2f} ms, p95 {some[1]:.2f}: {some[0] / every[0]:.2f} x, p95 "
        f"{some[1] / every[1]:.2f} x",
        flush=True,
    )


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    return float(np.median(seconds)) * 1000, float(np.percentile(seconds, 95)) * 1000


if __name__ == "__main__":
    {"fuzz": fuzz, "speed": speed}[sys.argv[1]](*sys.argv[2:])
