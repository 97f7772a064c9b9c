"""Servers that go down in the middle of load, and come back with what they had written."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Self
from urllib.parse import urlsplit

import pytest
from llama_index.core.schema import Document

from llama_retrieval_ext import KnowledgeBase, Query
from llama_retrieval_ext.errors import DeadlineExceededError, StoreUnavailableError
from llama_retrieval_ext.graph import Edge, open_graph
from llama_retrieval_ext.retrievers import KGRetriever
from llama_retrieval_ext.testing import FakeEmbedding
from tests.cases import cases
from tests.knowledge_base.engines import remove
from tests.quick import in_turn
from tests.servers import qdrant
from tests.servers.elasticsearch import elasticsearch_url
from tests.servers.forwarder import Forwarder
from tests.servers.given import collection_url
from tests.servers.neo4j import neo4j_url

__all__ = ["elasticsearch_url", "neo4j_url"]

pytestmark = pytest.mark.slow

TIMEOUT_S = 3.0
GRACE_S = 30.0  # the machine is shared
PATIENCE_S = 100.0


@dataclass
class Load:
    """Calls in loops, each in a thread of its own, until the block ends.

    Attributes:
        answers: How many calls have returned.
        errors: What the others raised, and after how many seconds.
    """

    calls: Sequence[Callable[[], object]]
    answers: int = 0
    errors: list[tuple[Exception, float]] = field(default_factory=list)
    _stop: Event = field(default_factory=Event)
    _threads: list[Thread] = field(default_factory=list)

    def more_answers(self) -> None:
        enough = self.answers + 4 * len(self.calls)
        self._wait(lambda: self.answers >= enough)

    def more_errors(self) -> None:
        enough = len(self.errors) + 2 * len(self.calls)
        self._wait(lambda: len(self.errors) >= enough)

    def _wait(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert reached(), (self.answers, self.errors[-5:])

    def _repeat(self, call: Callable[[], object]) -> None:
        while not self._stop.wait(0.05):
            started = time.monotonic()
            try:
                call()
            except Exception as error:  # noqa: BLE001 - the test looks at what it is
                self.errors.append((error, time.monotonic() - started))
            else:
                self.answers += 1

    def __enter__(self) -> Self:
        self._threads = [Thread(target=self._repeat, args=(call,)) for call in self.calls]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def survive(load: Load, go_down: Callable[[], object], come_back: Callable[[], object]) -> None:
    """Take a server from under a load and bring it back; nothing is reopened."""
    with load:
        load.more_answers()
        go_down()
        load.more_errors()
        come_back()
        load.more_answers()
    for error, seconds in load.errors:
        assert isinstance(error, StoreUnavailableError | DeadlineExceededError), repr(error)
        assert seconds < TIMEOUT_S + GRACE_S


def test_elasticsearch_goes_away_under_load_and_comes_back(elasticsearch_url: str) -> None:
    url = urlsplit(elasticsearch_url)
    if url.scheme != "http" or url.hostname != "127.0.0.1":
        pytest.skip("the server is not on this machine, or speaks TLS")
    with Forwarder(url.port or 0) as line:
        outage = f"elasticsearch://127.0.0.1:{line.port}/outage?timeout_s={TIMEOUT_S}"
        survive_an_outage(outage, line.down, line.up)
        remove(outage)


@cases("kind", in_turn("http", "grpc"))
def test_qdrant_is_killed_under_load_and_comes_back(kind: str) -> None:
    qdrant.require_binary()
    server = qdrant.start()
    base = server.url if kind == "grpc" else qdrant.by_http(server.url)
    url = collection_url(base, "outage")
    timeout = f"{'&' if '?' in url else '?'}timeout_s={TIMEOUT_S:.0f}"
    servers = [server]
    try:
        survive_an_outage(
            url + timeout, server.kill, lambda: servers.append(qdrant.start_again(server))
        )
    finally:
        servers[-1].stop()


def survive_an_outage(
    url: str, go_down: Callable[[], object], come_back: Callable[[], object]
) -> None:
    """Take a server away under searches and writes, and bring it back; nothing written is lost."""
    written: list[str] = []
    with KnowledgeBase.open(url, embed_model=FakeEmbedding(dim=16)) as kb:
        kb.add([Document(id_="d", text="annual leave")], show_progress=False)
        hybrid, keyword = (kb.retriever(kind, top_k=100) for kind in ("hybrid", "keyword"))
        query = Query("annual", timeout_s=TIMEOUT_S)

        def search() -> None:
            assert "d" in {hit.node.ref_doc_id for hit in hybrid.retrieve(query)}

        async def asearch() -> None:
            assert "d" in {hit.node.ref_doc_id for hit in await keyword.aretrieve(query)}

        def write() -> None:
            id_ = f"w{time.monotonic_ns()}"
            report = kb.add([Document(id_=id_, text=f"sick {id_}")], show_progress=False)
            report.raise_for_failures()
            written.append(id_)

        calls = [search, lambda: asyncio.run(asearch()), write]
        survive(Load(calls), go_down, come_back)
        stored = {document.document_id for document in kb.documents()}
        assert stored >= {"d", *written}
        assert len(kb.retriever("keyword", top_k=1000).retrieve("sick")) >= len(written)


def test_neo4j_goes_away_under_load_and_comes_back(neo4j_url: str) -> None:
    url = urlsplit(neo4j_url)
    if url.scheme != "bolt" or url.hostname != "127.0.0.1":
        pytest.skip("the server is not on this machine, or speaks TLS")
    with Forwarder(url.port or 0) as line, open_graph(f"bolt://127.0.0.1:{line.port}") as graph:
        graph.clear(scope=None)
        edges = [Edge("digging", "HAS_HAZARD", "collapse")]
        edges.append(Edge("collapse", "MITIGATED_BY", "bracing"))
        graph.upsert([], edges)
        retriever = KGRetriever(graph)
        assert retriever.retrieve("digging")  # the first statement compiles for seconds
        query = Query("What does digging require?", timeout_s=TIMEOUT_S)

        def search() -> None:
            assert "bracing" in retriever.retrieve(query)[0].text

        async def asearch() -> None:
            assert "bracing" in (await retriever.aretrieve(query))[0].text

        def write() -> None:
            graph.upsert([], [Edge(f"w{time.monotonic_ns()}", "HAS_HAZARD", "collapse")])

        survive(Load([search, lambda: asyncio.run(asearch()), write]), line.down, line.up)
        assert retriever.retrieve(Query("digging"))
        graph.clear(scope=None)
