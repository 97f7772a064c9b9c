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
from pathlib import Path
from random import Random
from typing import TypeAlias
from uuid import uuid4

from llama_index.core.schema import Document

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding
from tests import leaks
from tests.knowledge_base.engines import ENGINES
from tests.leaks import OTHER_PRINCIPAL, OTHER_TENANT, STORE_MODES, Rate, World
from tests.servers import elasticsearch, neo4j, qdrant

DOCUMENTS, INJECTIONS, PIVOT_DOCUMENTS, PIVOT_QUERIES = 100, 30, 250, 500
WRITERS, CHANGES = 8, 25
OPEN_QUERIES = 100  # of the published pipeline, which leaks
HIDDEN, PAIRS = 10_000, 600

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
        for principals in (False, True):
            areas = [a for name, a in self.auroc.items() if ("principals" in name) == principals]
            yield f"{max(areas):.3f}" if areas else ""
        yield f"{self.processor:.2f}"


HEAD = (
    *("engine", "probes, no scope", "probes, scope", "walks, scope in vectors alone"),
    *("walks, scope", "after a revocation", "side channels"),
    *("times, other tenant (AUROC)", "times, other group", "CPU, scope / none"),
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
        _listened(row, place, replace(world, compares_scores=compares), timed=every == 1)
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


def _listened(row: Row, place: Place, world: World, *, timed: bool) -> None:
    """Compare all answers with those of a knowledge base without the secrets, and time them."""
    with place("") as clean, place("") as kb:
        world.fill(clean, secretly=False)
        world.fill(kb, secretly=True)
        for channel, rate in leaks.side_channels(clean, kb, world).items():
            row.channels += rate
            _log(row.engine, channel, _share(rate), *rate.examples[:2])
        for name, auroc in _timed(kb, world) if timed else ():
            row.auroc[f"{world.scope} {name}"] = auroc
            _log(row.engine, world.scope, name, f"AUROC {auroc:.3f}")


def _timed(kb: KnowledgeBase, world: World) -> Iterator[tuple[str, float]]:
    """Yield the accuracy of guesses from times, among ten thousand hidden documents."""
    random = Random(7)

    def word() -> str:
        return "".join(random.choices("bcdfghklmnprstvz", k=9))

    rare, absent, frequent = ([word() for _ in range(PAIRS)] for _ in range(3))
    texts = [
        f"{rare[n % PAIRS]} {' '.join(random.sample(frequent[:20], 10))}" for n in range(HIDDEN)
    ]
    secret = [Document(id_=f"bulk{n}", text=text) for n, text in enumerate(texts)]
    report = kb.add(secret, scope=world.hidden, allowed=world.allowed, show_progress=False)
    report.raise_for_failures()
    for mode in ("keyword", "hybrid"):
        yield f"{mode}, a word of ten", leaks.timing_attack(kb, world, rare, absent, mode)
        often = [frequent[n % 20] for n in range(PAIRS)]
        yield f"{mode}, a word of half", leaks.timing_attack(kb, world, often, absent, mode)


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
