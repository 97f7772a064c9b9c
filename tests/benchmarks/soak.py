"""Endurance: adds, deletes, searches, tenants and compaction at once, on several engines.

Run: ``python -m tests.benchmarks.soak SECONDS [embedded] [milvus] [elasticsearch]``. All engines
run in one process, so that what leaks shows; a single one by its name. It ends with 1 where
something was lost, crossed between tenants, failed, or kept growing.
"""

import asyncio
import contextlib
import gc
import os
import random
import re
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from llama_index.core.schema import Document

from llama_retrieval_ext import KnowledgeBase, Scope, SearchResult
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.knowledge_base.engines import remove
from tests.servers import elasticsearch
from tests.servers.given import collection_url, given_server

ENGINES = ("embedded", "milvus", "elasticsearch")
TENANTS = 6
WRITERS = 2
SEARCHERS = 2
DOCUMENTS = 60  # of a tenant, about
# No digits: what looks like an identifier is also found by its parts.
LETTERS = str.maketrans("0123456789", "bcfghjkmnp")
FILLER = [f"word{number}" for number in range(400)]
MAINTENANCE_S = 10.0
PAUSE_S = 0.005
REPORT_S = 60.0
# What a flat line may rise by, from the second quarter of the time to the last.
MORE_MIB = 48.0
MORE_MIB_AT_FIRST = 160.0  # a short run on a quiet machine fills the engines' caches by 103 MiB
SHORT_S = 120.0
MORE_HANDLES = 8
MORE_HANDLES_AT_FIRST = 24  # a short run also fills the clients' pools of connections


class Sample(NamedTuple):
    """What the process holds."""

    mib: float
    descriptors: float
    threads: float


def sample() -> Sample:
    """What it holds now, native threads included."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    mib = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    tasks, descriptors = (len([*Path("/proc/self", each).iterdir()]) for each in ("task", "fd"))
    return Sample(mib, descriptors, tasks)


@dataclass
class Tenant:
    """The documents that a tenant must have: the version of each, by id. One writer changes it."""

    name: str
    versions: dict[str, int] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    next_number: int = 0

    @property
    def scope(self) -> Scope:
        return Scope(tenant_id=self.name)

    def marker(self, id_: str) -> str:
        """A word that only the present version of a document has."""
        return f"{self.name}{id_}v{self.versions[id_]}".translate(LETTERS)

    def document(self, id_: str) -> Document:
        words = random.choices(FILLER, k=900 if random.random() < 0.05 else 30)
        return Document(id_=id_, text=f"{self.marker(id_)} {self.name} {' '.join(words)}")


@dataclass
class Soak:
    """The load on one knowledge base."""

    engine: str
    kb: KnowledgeBase
    stop: threading.Event
    maintenance_s: float
    tenants: list[Tenant] = field(default_factory=lambda: [Tenant(f"t{n}") for n in range(TENANTS)])
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def threads(self) -> list[threading.Thread]:
        steps: list[Callable[[], None]] = [self._maintain]
        steps += [Writer(self, self.tenants[number::WRITERS]).step for number in range(WRITERS)]
        steps += [self._search] * SEARCHERS
        return [threading.Thread(target=self._repeat, args=(step,)) for step in steps]

    def expect(self, holds: bool, message: str) -> None:
        if not holds:
            self.faults.append(f"{self.engine}: {message}")

    def verify(self) -> None:
        """Each document is there in its last version, and nothing else is."""
        for tenant in self.tenants:
            stored = {document.document_id for document in self.kb.documents(scope=tenant.scope)}
            lost, extra = tenant.versions.keys() - stored, stored - tenant.versions.keys()
            self.expect(not lost, f"{tenant.name} lost {sorted(lost)}")
            self.expect(not extra, f"{tenant.name} still has {sorted(extra)}")
            for id_ in tenant.versions:
                self.find(tenant, id_)
            for marker in tenant.gone:
                hits = self.kb.search(marker, "keyword", scope=tenant.scope, correct=False)
                self.expect(not hits, f"{tenant.name} still finds {marker}")

    def find(self, tenant: Tenant, id_: str) -> None:
        """The present version of a document is what keyword search finds."""
        hits = self.kb.search(tenant.marker(id_), "keyword", scope=tenant.scope)
        found = [hit.node.ref_doc_id for hit in hits]
        self.expect(found == [id_], f"{tenant.marker(id_)} finds {found}")

    def _repeat(self, step: Callable[[], None]) -> None:
        while not self.stop.wait(PAUSE_S):
            try:
                step()
            except Exception:  # noqa: BLE001 - whatever it is, it is reported, and the load goes on
                self.faults.append(f"{self.engine}: {traceback.format_exc(limit=-4)}")

    def _search(self) -> None:
        tenant, other = random.sample(self.tenants, 2)
        mode = random.choice(("vector", "keyword", "hybrid"))
        query = f"{other.name} {random.choice(FILLER)}"
        if random.random() < 0.2:  # an event loop of its own each time
            result = asyncio.run(self.kb.asearch(query, mode, scope=tenant.scope))
        else:
            result = self.kb.search(query, mode, scope=tenant.scope)
        self._check(result, tenant)
        self.counts[f"{mode} searches"] += 1

    def _check(self, result: SearchResult, tenant: Tenant) -> None:
        self.expect(not result.degraded, f"degraded: {result.degraded}")
        owners = {hit.node.metadata["tenant_id"] for hit in result}
        self.expect(owners <= {tenant.name}, f"{tenant.name} sees {owners}")

    def _maintain(self) -> None:
        if self.stop.wait(self.maintenance_s):
            return
        self.kb.compact()
        if self.kb.url.startswith("embedded:"):
            self.kb.index()
        self.kb.info()
        self.counts["compactions"] += 1


@dataclass
class Writer:
    """Writes the documents of some tenants, which nobody else does."""

    soak: Soak
    tenants: Sequence[Tenant]

    def step(self) -> None:
        tenant = random.choice(self.tenants)
        full = len(tenant.versions) >= DOCUMENTS
        if tenant.versions and random.random() < (0.7 if full else 0.3):
            self._delete(tenant)
        else:
            self._add(tenant)
        if tenant.versions:
            self.soak.find(tenant, random.choice([*tenant.versions]))

    def _add(self, tenant: Tenant) -> None:
        changed = random.sample([*tenant.versions], min(len(tenant.versions), random.randint(0, 3)))
        new = [f"d{tenant.next_number + number}" for number in range(random.randint(1, 4))]
        tenant.next_number += len(new)
        for id_ in (*changed, *new):
            tenant.versions[id_] = tenant.versions.get(id_, 0) + 1
        documents = [tenant.document(id_) for id_ in (*changed, *new)]
        report = self.soak.kb.add(documents, scope=tenant.scope, show_progress=False)
        report.raise_for_failures()
        self.soak.expect((report.added, report.updated) == (len(new), len(changed)), f"{report!r}")
        self.soak.counts["documents written"] += len(documents)

    def _delete(self, tenant: Tenant) -> None:
        id_ = random.choice([*tenant.versions])
        self.soak.expect(self.soak.kb.delete(id_, scope=tenant.scope) == 1, f"{id_} was not there")
        tenant.gone = [*tenant.gone[-20:], tenant.marker(id_)]
        del tenant.versions[id_]
        self.soak.counts["documents deleted"] += 1


@contextlib.contextmanager
def place(engine: str) -> Iterator[str]:
    """The URL of a new knowledge base, which is removed afterwards."""
    if engine != "elasticsearch":
        with tempfile.TemporaryDirectory() as folder:
            yield {"embedded": f"embedded:{folder}/kb", "milvus": f"milvus:{folder}/kb.db"}[engine]
        return
    base = given_server(elasticsearch.URL_VARIABLE, "elasticsearch")
    with contextlib.ExitStack() as stack:
        if not base:
            server = elasticsearch.start()
            stack.callback(server.stop)
            base = server.url.replace("http", "elasticsearch", 1)
        url = collection_url(base, f"soak-{uuid4().hex}")
        yield url
        remove(url)


def watch(seconds: float, model: FakeEmbedding) -> list[Sample]:
    """One sample a second or so, until the time is over."""
    samples = []
    reported = time.monotonic()
    deadline = reported + seconds
    while time.monotonic() < deadline:
        time.sleep(1)
        model.calls.clear()  # it records what it is asked
        gc.collect()
        samples.append(sample())
        if time.monotonic() >= reported + REPORT_S:
            reported = time.monotonic()
            print(f"{seconds - deadline + reported:.0f} s: {samples[-1]}", flush=True)
    return samples


def growth(samples: Sequence[Sample]) -> tuple[Sample, Sample]:
    """Medians over the second and the last quarter: what starts up has done so by then."""
    quarter = max(1, len(samples) // 4)
    parts = (samples[quarter : 2 * quarter] or samples, samples[-quarter:])
    early, late = (
        Sample(*(statistics.median(each) for each in zip(*part, strict=True))) for part in parts
    )
    return early, late


def soak(seconds: float, engines: Sequence[str]) -> list[str]:
    """Run the load, print what was done and held, and return what is wrong."""
    stop = threading.Event()
    maintenance_s = min(MAINTENANCE_S, seconds / 4)
    model = FakeEmbedding(dim=64)
    with contextlib.ExitStack() as stack:
        urls = {engine: stack.enter_context(place(engine)) for engine in engines}
        soaks = [
            Soak(engine, KnowledgeBase.open(url, embed_model=model), stop, maintenance_s)
            for engine, url in urls.items()
        ]
        threads = [thread for each in soaks for thread in each.threads()]
        for thread in threads:
            thread.start()
        try:
            samples = watch(seconds, model)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        for each in soaks:
            each.verify()
            each.kb.close()
            with KnowledgeBase.open(urls[each.engine], embed_model=model) as each.kb:
                each.verify()
            print(f"{each.engine}: " + ", ".join(f"{n} {what}" for what, n in each.counts.items()))
    early, late = growth(samples)
    print(f"second quarter: {early}\nlast quarter: {late}")
    faults = [fault for each in soaks for fault in each.faults]
    if late.mib - early.mib > (MORE_MIB if seconds >= SHORT_S else MORE_MIB_AT_FIRST):
        faults.append(f"memory grew by {late.mib - early.mib:.0f} MiB")
    more = MORE_HANDLES if seconds >= SHORT_S else MORE_HANDLES_AT_FIRST
    faults += [
        f"{what} grew by {getattr(late, what) - getattr(early, what):.0f}"
        for what in ("descriptors", "threads")
        if getattr(late, what) - getattr(early, what) > more
    ]
    return faults


def _kind(fault: str) -> str:
    """The engine, and the error or what it says, without ids."""
    errors = [line for line in fault.splitlines() if line.startswith("llama_retrieval_ext.errors")]
    return (
        f"{fault.partition(':')[0]}: {errors[-1]}" if errors else re.sub(r"\d+", "N", fault)[:150]
    )


def main() -> None:
    seconds, *engines = sys.argv[1:] or ["1200"]
    faults = soak(float(seconds), engines or ENGINES)
    print(*faults[:5], sep="\n")
    for kind, count in Counter(map(_kind, faults)).most_common():
        print(f"{count} x {kind}")
    print(f"{len(faults)} faults in {seconds} s")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
