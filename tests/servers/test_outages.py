"""Servers that go down in the middle of load, and come back with what they had written."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Self
from urllib.parse import urlsplit

import pytest
from llama_index.core.schema import Document

from llama_retrieval_ext.errors import DeadlineExceededError, StoreUnavailableError
from llama_retrieval_ext.graph.elements import Edge
from llama_retrieval_ext.graph.open import open_graph
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.kg_rule import KGRetriever
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.servers import elasticsearch, qdrant
from tests.servers.artifact import missing_tools
from tests.servers.forwarder import Forwarder
from tests.servers.given import collection_url
from tests.servers.neo4j import neo4j_url
from tests.servers.process import Server, free_port

__all__ = ["neo4j_url"]

pytestmark = pytest.mark.slow
ON_JAVA = pytest.mark.skipif(bool(missing_tools()), reason="starts servers by Java and Maven")

TIMEOUT_S = 3.0
GRACE_S = 5.0  # the machine is shared
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


@ON_JAVA
def test_elasticsearch_is_killed_under_load_and_comes_back() -> None:
    port = free_port()
    url = f"elasticsearch://127.0.0.1:{port}/outage?timeout_s={TIMEOUT_S}"
    survive_a_kill(elasticsearch.start(port=port), elasticsearch.start_again, url)


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_qdrant_is_killed_under_load_and_comes_back(kind: str) -> None:
    qdrant.require_binary()
    server = qdrant.start()
    base = server.url if kind == "grpc" else qdrant.by_http(server.url)
    url = collection_url(base, "outage")
    timeout = f"{'&' if '?' in url else '?'}timeout_s={TIMEOUT_S:.0f}"
    survive_a_kill(server, qdrant.start_again, url + timeout)


def survive_a_kill(server: Server, start_again: Callable[[Server], Server], url: str) -> None:
    """Kill a server under searches and writes, and start it again; nothing written is lost."""
    written: list[str] = []
    with ExitStack() as stack:
        servers = [server]
        stack.callback(lambda: servers[-1].stop())  # noqa: PLW0108 - the last one by then
        kb = stack.enter_context(KnowledgeBase.open(url, embed_model=FakeEmbedding(dim=16)))
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
        survive(Load(calls), servers[0].kill, lambda: servers.append(start_again(servers[0])))
        stored = {document.document_id for document in kb.documents()}
        assert stored >= {"d", *written}
        assert len(kb.retriever("keyword", top_k=1000).retrieve("sick")) >= len(written)


@ON_JAVA
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
