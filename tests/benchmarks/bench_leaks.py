"""What leaks: two published protocols, revocation, side channels and times, on every engine.

``python -m tests.benchmarks.bench_leaks [EVERY] [ENGINE ...]`` starts each engine and both graphs
in turn, and prints one table; `tests/leaks.py` has the attacks. Embeddings are those of
`LocalEmbedding`. With EVERY, a number such as 5, it asks each fifth question, and times nothing.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from random import Random
from typing import TypeAlias
from uuid import uuid4

from llama_index.core.schema import Document

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding, Scope
from tests import leaks
from tests.knowledge_base.engines import ENGINES
from tests.leaks import OTHER_PRINCIPAL, OTHER_TENANT, STORE_MODES, Rate, World
from tests.servers import elasticsearch, neo4j, qdrant

DOCUMENTS, INJECTIONS, PIVOT_DOCUMENTS, PIVOT_QUERIES = 100, 30, 250, 500
WRITERS, CHANGES = 8, 25
OPEN_QUERIES = 100  # of the published pipeline, which leaks
HIDDEN, PAIRS, FREQUENT = 10_000, 600, 20
SEEN = 3_000  # so many that the engine walks the lists of passages by word

Place: TypeAlias = Callable[[str], KnowledgeBase]


@dataclass
class Row:
    """The results on one engine."""

    engine: str
    probes: dict[str, Rate] = field(default_factory=dict)  # by mode, and "without" a scope
    recall: dict[str, float] = field(default_factory=dict)
    pivots: dict[str, Rate] = field(default_factory=dict)  # by graph and guard
    revoked: Rate = field(default_factory=Rate)
    channels: Rate = field(default_factory=Rate)
    auroc: dict[str, float] = field(default_factory=dict)
    processor: float = 0.0  # time with a scope by that without

    def cells(self) -> Iterator[str]:
        """Yield the cells of the table."""
        without = sum((rate for name, rate in self.probes.items() if "without" in name), Rate())
        scoped = sum((rate for name, rate in self.probes.items() if "without" not in name), Rate())
        walks = sum((rate for name, rate in self.pivots.items() if "scope" in name), Rate())
        open_walks = sum(
            (rate for name, rate in self.pivots.items() if "scope" not in name), Rate()
        )
        yield self.engine
        yield _share(without)
        yield _share(scoped)
        yield _share(open_walks)
        yield _share(walks)
        yield _share(self.revoked)
        yield _share(self.channels)
        for seen in SIZES:
            for kind in KINDS:
                areas = [area for name, area in self.auroc.items() if f"{seen}, {kind}," in name]
                yield f"{max(areas):.3f}" if areas else ""
        yield f"{self.processor:.2f}"


SIZES = ("few", "many")
KINDS = ("other tenant", "other group", "other knowledge base", "no one")
HEAD = (
    *("engine", "probes, no scope", "probes, scope", "walks, scope in vectors alone"),
    *("walks, scope", "after a revocation", "side channels"),
    *(f"AUROC of times, {seen} seen, {kind}" for seen in SIZES for kind in KINDS),
    "CPU, scope / none",
)


def main(engines: list[str]) -> None:
    """Attack the engines, and print the table."""
    every = next((int(engine) for engine in engines if engine.isdecimal()), 1)
    engines = [engine for engine in engines if not engine.isdecimal()] or ENGINES
    rows = []
    with ExitStack() as stack:
        bolt = neo4j.start()
        stack.callback(bolt.stop)
        for engine in engines:
            with _places(engine) as place:
                rows.append(_attacked(engine, place, bolt.url, every))
    print("|", " | ".join(HEAD), "|")
    print("|" + "---|" * len(HEAD))
    for row in rows:
        print("|", " | ".join(row.cells()), "|")


def _attacked(engine: str, place: Place, bolt: str, every: int) -> Row:
    row = Row(engine)
    _probed(row, place, every)
    for name, graph in (("embedded", ""), ("neo4j", bolt)):
        _walked(row, place, (name, graph), every)
    for world in (OTHER_TENANT, OTHER_PRINCIPAL):
        # Scores there count the words of all tenants, as the page of the stores says.
        compares = world.compares_scores and engine not in {"milvus", "elasticsearch"}
        _listened(row, place, replace(world, compares_scores=compares))
    if every == 1:
        _timed(row, place)
    return row


def _probed(row: Row, place: Place, every: int) -> None:
    """Send the probes of the first protocol, with a scope and without."""
    documents = list(leaks.departments(DOCUMENTS))
    asked = list(leaks.probes(documents, INJECTIONS))[::every]
    times = {True: 0.0, False: 0.0}
    with place("") as kb:
        leaks.fill(kb, documents)
        for mode in (*STORE_MODES, "graph"):
            row.recall[mode] = leaks.recall(kb, documents[::every], mode)
            for scoped in (False, True):
                begun = time.process_time()
                rate = leaks.cross_tenant(kb, asked, mode, scoped=scoped)
                times[scoped] += time.process_time() - begun
                row.probes[mode if scoped else f"{mode} without"] = rate
                _log(row.engine, mode, scoped, _share(rate), f"recall {row.recall[mode]:.3f}")
    row.processor = times[True] / times[False]


def _walked(row: Row, place: Place, named: tuple[str, str], every: int) -> None:
    """Walk from vectors into a graph, and revoke under writers."""
    documents, (name, graph) = list(leaks.departments(PIVOT_DOCUMENTS, leaks.TENANTS)), named
    with place(graph) as kb:
        leaks.fill(kb, documents)
        for guard, count in (("vectors", OPEN_QUERIES), ("scope", PIVOT_QUERIES)):
            rate = leaks.pivots(kb, documents, count // every, guard)
            row.pivots[f"{name} {guard}"] = rate
            _log(row.engine, name, guard, _share(rate), *rate.examples[: guard == "scope"])
        kb.clear()
    with place(graph) as kb:
        modes = (*STORE_MODES, "graph")
        rate = leaks.revocations(kb, modes, writers=WRITERS, changes=CHANGES)
        row.revoked += rate
        kb.clear()
    _log(row.engine, name, "revocations", _share(rate), *rate.examples[:2])


def _listened(row: Row, place: Place, world: World) -> None:
    """Compare all answers with those of a knowledge base without the secrets."""
    with place("") as clean, place("") as kb:
        world.fill(clean, secretly=False)
        world.fill(kb, secretly=True)
        for channel, rate in leaks.side_channels(clean, kb, world).items():
            row.channels += rate
            _log(row.engine, channel, _share(rate), *rate.examples[:2])


def _timed(row: Row, place: Place) -> None:
    """Guess from times which words ten thousand hidden documents have, and whose they are."""
    for seen, kind in product(SIZES, KINDS):
        with place("") as kb, place("") as apart:
            world = OTHER_PRINCIPAL if kind == "other group" else OTHER_TENANT
            random = Random(7)
            visible, rare, absent, frequent = (_words(random) for _ in range(4))
            if seen == "many":
                texts = [" ".join(random.sample(visible, 10)) for _ in range(SEEN)]
                _add(kb, texts, Scope("acme"))
            texts = [
                f"{rare[n % PAIRS]} {' '.join(random.sample(frequent[:FREQUENT], 10))}"
                for n in range(HIDDEN)
            ]
            world.fill(kb, secretly=False)
            if kind != "no one":  # what the measurement itself makes of nothing
                hiding = apart if kind == "other knowledge base" else kb
                _add(hiding, texts, world.hidden, world.allowed)
            for mode, (name, count, words) in product(
                ("keyword", "hybrid"), (("ten", PAIRS, rare), ("half", FREQUENT, frequent))
            ):
                present, others = ([w[n % count] for n in range(PAIRS)] for w in (words, absent))
                area = leaks.timing_attack(kb, world, present, others, mode)
                row.auroc[f"{seen}, {kind}, {mode}, a word of {name}"] = area
                _log(row.engine, seen, kind, mode, name, f"AUROC {area:.3f}")


def _words(random: Random) -> list[str]:
    return ["".join(random.choices("bcdfghklmnprstvz", k=9)) for _ in range(PAIRS)]


def _add(
    kb: KnowledgeBase, texts: list[str], scope: Scope, allowed: list[str] | None = None
) -> None:
    documents = [Document(id_=f"bulk {text}", text=text) for text in texts]
    kb.add(documents, scope=scope, allowed=allowed, show_progress=False).raise_for_failures()


@contextmanager
def _places(engine: str) -> Iterator[Place]:
    """Start an engine, and make knowledge bases on it, with an embedded graph or another."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        base = f"{engine}:{folder}/"
        if engine in {"qdrant", "elasticsearch"}:
            server = (qdrant if engine == "qdrant" else elasticsearch).start()
            stack.callback(server.stop)
            base = qdrant.by_http(server.url).replace("http:", f"{engine}:", 1) + "/"

        def opened(graph: str) -> KnowledgeBase:
            name = f"kb{uuid4().hex}"
            return KnowledgeBase.open(
                f"{base}{name}{'.db' if engine == 'milvus' else ''}",
                embed_model=LocalEmbedding(),
                graph=graph or f"graph:{folder}/graph-{name}",
                links=leaks.LINKS,
                schema=leaks.SCHEMA,
            )

        yield opened


def _share(rate: Rate) -> str:
    return f"{rate.leaked:,} of {rate.tried:,}"


def _log(*facts: object) -> None:
    print(time.strftime("%H:%M:%S"), *facts, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
