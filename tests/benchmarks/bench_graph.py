"""Quality and speed of graph retrieval: ``python -m tests.benchmarks.bench_graph [PART...]``.

The parts are quality (and the sets, where not all are to be measured), links, walk, hops, rules,
opening and linking.

Quality is that of hybrid search and of a walk seeded by it, on the sets in ``../shared/data``, with
the embeddings there, no LLM, and one configuration for all. A set that is not there is skipped.
"""

import json
import math
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext import HybridRetriever, KeywordRetriever
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.formulas.pagerank import personalised_pagerank, transition_matrix
from llama_retrieval_ext.graph import Edge, GraphNode, PassageGraphs
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.expansion import expand
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from llama_retrieval_ext.graph.rules.inference import infer
from llama_retrieval_ext.graph.rules.matching import find_matches
from llama_retrieval_ext.graph.rules.rule import Pattern, Rule, Step
from llama_retrieval_ext.graph.rules.rule_set import RuleSet
from llama_retrieval_ext.retrievers import GraphRetriever
from llama_retrieval_ext.samples.regulations import zh_safety_laws
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.text.gazetteer import Gazetteer

DATA: Final = Path(__file__).parents[3] / "shared" / "data"
SETS: Final = (
    *("2wikimultihop", "musique_train100", "codebase_ctx", "cosqa", "cmrc2018"),
    "zh_construction_safety_laws",
)
# Of a set with more questions than this some are left out, evenly.
_QUESTIONS: Final = 1_000
# A store takes no node without.
_NO_EMBEDDING: Final = [1.0]
# A batch as `KnowledgeBase.add` writes it.
_BATCH: Final = 500


class TestSet(NamedTuple):
    """A corpus, with embeddings or without, and questions with what answers them."""

    nodes: list[TextNode]
    queries: list[tuple[str, QueryBundle]]
    relevant: dict[str, dict[str, float]]


def load(name: str) -> TestSet:
    """Return a set of the shared data."""
    folder = DATA / name
    corpus, questions = [*_rows(folder / "corpus.jsonl")], [*_rows(folder / "queries.jsonl")]
    relevant: dict[str, dict[str, float]] = defaultdict(dict)
    for line in (folder / "qrels.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        relevant[query][document] = float(grade)
    nodes = [
        TextNode(
            id_=row["_id"],
            text=f"{row['title']}\n{row['text']}".strip(),
            metadata={"title": row["title"]},
            excluded_embed_metadata_keys=["title"],
            embedding=vector,
        )
        for row, vector in zip(corpus, _vectors(folder / "corpus.minilm.npy", corpus), strict=True)
    ]
    asked = [
        (
            row["_id"],
            QueryBundle(row["text"], embedding=None if vector == _NO_EMBEDDING else vector),
        )
        for row, vector in zip(
            questions, _vectors(folder / "queries.minilm.npy", questions), strict=True
        )
        if row["_id"] in relevant
    ]
    return TestSet(nodes, asked[:: 1 + len(asked) // _QUESTIONS], dict(relevant))


def _vectors(file: Path, rows: Sequence[object]) -> list[list[float]]:
    """Embeddings of rows; all alike where the set has none."""
    return np.load(file).astype(float).tolist() if file.exists() else [_NO_EMBEDDING] * len(rows)  # type: ignore[no-any-return]


def common_titles(name: str = "codebase_ctx") -> TestSet:
    """A single-hop set with worthless titles: common words of its texts, each of five passages."""
    test = load(name)
    counts = Counter(
        word for node in test.nodes for word in set(re.findall(r"[a-z]{4,}", node.text.lower()))
    )
    most = len(test.nodes) // 4
    common = [word.title() for word, n in sorted(counts.items()) if 5 < n < most]
    titles = np.random.default_rng(1).permutation(common)[: len(test.nodes) // 5 + 1].tolist()
    nodes = [_retitled(node, titles[at // 5]) for at, node in enumerate(test.nodes)]
    return test._replace(nodes=nodes)


def overview_titles(name: str = "codebase_ctx") -> TestSet:
    """The same with the titles of a documentation, and questions that name them."""
    test = load(name)
    titles = ("Overview", "Installation", "Usage", "Configuration", "Examples", "API Reference")
    generic = [f"{title} {n}".removesuffix(" 0") for n in range(25) for title in titles]
    nodes = [_retitled(node, generic[at % len(generic)]) for at, node in enumerate(test.nodes)]
    queries = [
        (id_, QueryBundle(f"Overview, usage: {query.query_str}", embedding=query.embedding))
        for id_, query in test.queries
    ]
    return test._replace(nodes=nodes, queries=queries)


def _retitled(node: TextNode, title: str) -> TextNode:
    changes = {"metadata": {"title": title}, "text": f"{title}\n{node.text}"}
    return TextNode(**{**node.model_dump(exclude={"text_resource", "class_name"}), **changes})


def laws() -> TestSet:
    """The package's sample of Chinese regulations; each question has a part of an article."""
    nodes: list[TextNode] = []
    for document in zh_safety_laws():
        own = {"title": f"{document.metadata['law']} {document.metadata['chapter']}"}
        nodes.append(
            TextNode(id_=document.doc_id, text=document.text, metadata=own, embedding=_NO_EMBEDDING)
        )
    queries, relevant = [], {}
    for node in nodes:
        sentences = [part for part in re.split("[。，；：]", node.text) if len(part) > 9]  # noqa: RUF001
        if sentences:
            part = sentences[len(sentences) // 2][:20]
            queries.append((node.node_id, QueryBundle(f"{part}有什么规定?")))
            relevant[node.node_id] = {node.node_id: 1.0}
    return TestSet(nodes, queries, relevant)


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


def quality(names: Sequence[str] = ()) -> None:
    """Print recall and nDCG of the seed and of the walk; keyword search where no embeddings are."""
    print(f"{'set':28}{'retriever':10}{'R@2':>7}{'R@5':>7}{'nDCG@10':>9}{'ms':>7}")
    sets = {**{name: partial(load, name) for name in SETS}, **MADE}
    for name in names or sets:
        make = sets[name]
        try:
            test = make()
        except FileNotFoundError as error:
            print(f"{name:28}skipped: {error}")
            continue
        store, graph = EmbeddedVectorStore(":memory:"), EmbeddedGraph(":memory:")
        with store, graph:
            plain, linked = _written(test, store, graph)
            is_dense = test.nodes[0].embedding != _NO_EMBEDDING
            seed = (HybridRetriever if is_dense else KeywordRetriever)(store)
            walk = GraphRetriever(store, graph=PassageGraphs(graph), seed=seed)
            for label, retriever in ((seed.name, seed), ("graph", walk)):
                retriever.retrieve(test.queries[0][1])  # derives the links
                _print_quality(name, label, test, retriever.retrieve)
            print(f"{name:28}add {plain:.2f} s, with the graph {(plain + linked) / plain:.2f} x")


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
        graph.upsert(*passage_rows(batch, PassageLinks()), source="corpus")
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
    print(f"{name:28}{label:10}{two:7.3f}{five:7.3f}{gain:9.3f}{median(milliseconds):7.1f}")


def links() -> None:
    """Print the time of links between passages: derived at first, and after passages are added."""
    nodes = load(SETS[0]).nodes if (DATA / SETS[0]).is_dir() else _prose(6_000)
    with EmbeddedGraph(":memory:") as graph:
        graphs, evidence = PassageGraphs(graph), PassageLinks()
        for start, stop, what in (
            (0, -101, "derived at first"),
            (-101, -100, "after 1 was added"),
            (-100, None, "after 100 were added"),
        ):
            graph.upsert(*passage_rows(nodes[start:stop], evidence), source=what)
            _print(f"links of {len(nodes):,} passages {what}", [_timed(graphs.of(None).function)])


def _prose(count: int) -> list[TextNode]:
    random = np.random.default_rng(5)
    vocabulary = [f"{chr(97 + n % 26)}word{n}" for n in range(5_000)]
    return [
        TextNode(
            id_=f"p{n}",
            text=" ".join(
                w.title() if n % 7 == 0 else w for w in random.choice(vocabulary, 80).tolist()
            ),
            metadata={"title": " ".join(random.choice(vocabulary, 2)).title()},
        )
        for n in range(count)
    ]


def walk() -> None:
    """Print the time of a personalised PageRank."""
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
        times = [_timed(partial(personalised_pagerank, matrix, restart)) for _ in range(20)]
        _print(f"PageRank, {edges:,} edges in both directions", times)


def hops() -> None:
    """Print the time of hops with paths from nodes that nobody visited before, and from one."""
    with EmbeddedGraph(":memory:") as graph:
        _fill(graph, 100_000)
        for count in (1, 2, 3):
            seeds = [f"n{1_000 * count + at}" for at in range(100)]
            first = [_timed(partial(_reach, graph, seed, count)) for seed in seeds]
            _print(f"{count} hops with paths, 100,000 edges, first visits", first)
            again = [_timed(partial(_reach, graph, seed, count)) for seed in seeds]
            _print(f"{count} hops with paths, 100,000 edges, again", again)


def _reach(graph: EmbeddedGraph, seed: str, count: int) -> None:
    expansion = expand(graph, [seed], max_hops=count)
    for id_ in expansion:
        expansion.path(id_)


def _fill(graph: EmbeddedGraph, edges: int) -> None:
    random = np.random.default_rng(7)
    pairs = random.integers(edges // 5, size=(edges, 2)).tolist()
    nodes = [GraphNode(f"n{place}", "Thing") for place in range(edges // 5)]
    types = ("USES", "HAS_HAZARD", "MITIGATED_BY")
    rows = [Edge(f"n{a}", types[at % 3], f"n{b}") for at, (a, b) in enumerate(pairs)]
    graph.upsert(nodes, rows)


def rules() -> None:
    """Print the time of a rule bound to a seed."""
    pattern = Pattern(
        "process",
        steps=(
            Step("process", ("HAS_HAZARD",), "hazard"),
            Step("hazard", ("MITIGATED_BY",), "measure", optional=True),
        ),
    )
    rule_set = RuleSet((Rule("measures", pattern, "{process} needs {measure} against {hazard}"),))
    with EmbeddedGraph(":memory:") as graph:
        _fill(graph, 100_000)
        seeds = [f"n{at}" for at in range(300)]
        matched, concluded = [], []
        for seed in seeds:
            request = find_matches(graph, pattern, seeds=[seed], context={}, scope=None)
            matched.append(_timed(request.function))
        for seed in seeds:
            plan = infer(graph, rule_set, seeds=[seed])
            concluded.append(_timed(partial(run, plan)))
        _print("a rule bound to a seed, 100,000 edges: matches", matched)
        _print("likewise, with sentences and proofs", concluded)


def opening() -> None:
    """Print time and memory of opening 1,000,000 edges, each round in a process of its own."""
    with TemporaryDirectory() as folder:
        with EmbeddedGraph(folder) as graph:
            _fill(graph, 1_000_000)
        for _ in range(3):
            command = [sys.executable, "-m", __spec__.name, "open", folder]
            subprocess.run(command, check=True)


def _open(folder: str) -> None:
    before = _memory("VmRSS")
    graphs: list[EmbeddedGraph] = []
    time_ = _timed(lambda: graphs.append(EmbeddedGraph(folder)))
    memory = _memory("VmHWM") - before
    _print(f"opening 1,000,000 edges, at most {memory / 1e6:.2f} GB", [time_])
    graphs[0].close()


def _memory(field: str) -> int:
    """A field of this process's status, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def linking() -> None:
    """Print the time of entity linking among 100,000 names, half of them Chinese."""
    random = np.random.default_rng(3)
    letters = [chr(0x4E00 + n) for n in range(3_000)]
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "an", "er")]
    names = ["".join(random.choice(letters, random.integers(3, 11))) for _ in range(50_000)]
    names += [
        " ".join("".join(random.choice(syllables, 3)) for _ in range(random.integers(1, 4)))
        for _ in range(50_000)
    ]
    pairs = [(name, f"e{at}") for at, name in enumerate(names)]
    built: list[Gazetteer] = []
    _print("building 100,000 names", [_timed(lambda: built.append(Gazetteer(pairs)))])
    texts = []
    for _ in range(500):
        first, second = random.choice(names, 2).tolist()
        texts.append(f"which measures does {first} require near {second} today?")
    gazetteer = built[0]
    gazetteer.find_similar(texts[0])
    exact = [_timed(partial(gazetteer.find, text)) for text in texts]
    _print("exact names in a question", exact)
    wrong = [text.replace("a", "aa", 1) for text in texts]
    fuzzy = [_timed(partial(gazetteer.find_similar, text)) for text in wrong]
    _print("similar names in a question", fuzzy)


class Time(NamedTuple):
    """Seconds by the clock, and of this process."""

    wall: float
    cpu: float


def _timed(function: Callable[[], object]) -> Time:
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return Time(time.perf_counter() - wall, time.process_time() - cpu)


def _print(what: str, times: Sequence[Time]) -> None:
    """Print medians in milliseconds; a busy machine adds to the clock's, hardly to the CPU's."""
    wall, cpu = (1000 * median(column) for column in zip(*times, strict=True))
    print(f"{what:60}{wall:10.3f} ms{cpu:10.3f} ms of CPU", flush=True)


MADE: Final[Mapping[str, Callable[[], TestSet]]] = {
    "codebase, common titles": common_titles,
    "codebase, 'Overview'": overview_titles,
    "regulations, known item": laws,
}
PARTS: Final[Mapping[str, Callable[[], None]]] = {
    "quality": quality,
    "links": links,
    "walk": walk,
    "hops": hops,
    "rules": rules,
    "opening": opening,
    "linking": linking,
}


def main(arguments: Sequence[str]) -> None:
    """Run the parts that are named, all of them where none is; quality for the sets named."""
    if arguments[:1] == ["open"]:
        _open(arguments[1])
    elif arguments[:1] == ["quality"]:
        quality(arguments[1:])
    else:
        for part in arguments or PARTS:
            PARTS[part]()


if __name__ == "__main__":
    main(sys.argv[1:])
