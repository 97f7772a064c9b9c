"""Addresses of Neo4j, and servers that cannot be reached."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from llama_retrieval_ext.errors import (
    DeadlineExceededError,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
)
from llama_retrieval_ext.execution.context import Context, entered
from llama_retrieval_ext.graph import GraphNode, open_graph
from llama_retrieval_ext.graph.neo4j import Neo4jGraph
from llama_retrieval_ext.graph.neo4j_connection import Neo4jAddress
from tests.patience import in_time, soon
from tests.servers.forwarder import Forwarder
from tests.servers.neo4j import neo4j_url

__all__ = ["neo4j_url"]

pytestmark = pytest.mark.slow  # its driver imports pandas


def test_credentials_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPH_USER", "me")
    monkeypatch.setenv("GRAPH_PASSWORD", "secret")
    query = "user_env=GRAPH_USER&password_env=GRAPH_PASSWORD&timeout_s=5"
    address = Neo4jAddress.parse(f"neo4js://db.example/safety?{query}")
    assert (address.uri, address.database) == ("neo4j+s://db.example:7687", "safety")
    assert address.auth() == ("me", "secret")
    assert "secret" not in repr(address)


def test_an_unreachable_neo4j_is_an_error_that_says_so() -> None:
    with (
        open_graph("bolt://127.0.0.1:1?timeout_s=1") as graph,
        pytest.raises(StoreUnavailableError, match="cannot be reached"),
    ):
        graph.names(scope=None)


def test_a_reading_statement_cannot_write_to_neo4j(graph: Neo4jGraph) -> None:
    with pytest.raises(StoreError, match="refuses"):
        graph.read("CREATE (n:__Node__ {id: 'x'}) RETURN n", {})
    assert graph.read("MATCH (n) RETURN count(n) AS n", {}) == [{"n": 0}]


CALLS: list[Callable[[Neo4jGraph], object]] = [
    lambda graph: graph.read("RETURN 1 AS n", {}),
    lambda graph: asyncio.run(graph.aread("RETURN 1 AS n", {})),
    lambda graph: graph.upsert([GraphNode("late")]),
]


@pytest.fixture
def silent() -> Iterator[Neo4jGraph]:
    """A graph on a server that accepts connections, and never says a word."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Neo4jGraph.open(f"bolt://127.0.0.1:{server.getsockname()[1]}?timeout_s=0.3") as graph,
    ):
        yield graph


@pytest.mark.parametrize("call", CALLS, ids=["read", "aread", "upsert"])
def test_a_connection_to_a_silent_server_fails_in_time(
    silent: Neo4jGraph, call: Callable[[Neo4jGraph], object]
) -> None:
    with soon(), pytest.raises(StoreUnavailableError):
        call(silent)


def test_the_deadline_of_a_query_ends_a_call_before_the_limit_of_the_url() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Neo4jGraph.open(f"bolt://127.0.0.1:{server.getsockname()[1]}?timeout_s=100") as graph,
        soon(),
        entered(Context(deadline=time.monotonic() + 0.2)),
        pytest.raises(DeadlineExceededError, match="time of the query"),
    ):
        graph.read("RETURN 1 AS n", {})


def test_a_call_after_close_says_that_the_graph_is_closed() -> None:
    graph = Neo4jGraph.open("bolt://127.0.0.1:1")
    graph.close()
    graph.close()
    for call in CALLS:
        with pytest.raises(StoreClosedError):
            call(graph)


def test_a_connection_that_goes_silent_keeps_no_call_and_no_thread(neo4j_url: str) -> None:
    port = int(neo4j_url.rpartition(":")[2])
    before = set(threading.enumerate())
    with (
        Forwarder(port) as forwarder,
        Neo4jGraph.open(f"bolt://127.0.0.1:{forwarder.port}?timeout_s=1.5") as graph,
        ThreadPoolExecutor(20) as callers,
    ):
        for read in CALLS[:2]:
            assert in_time(partial(read, graph)) == [{"n": 1}]
        forwarder.silent.set()
        start = time.monotonic()
        waiting = [callers.submit(CALLS[n % len(CALLS)], graph) for n in range(40)]
        errors = [each.exception() for each in waiting]
        assert {type(error) for error in errors} == {StoreUnavailableError}
        assert "did not answer within 1.5 s" in str(errors[0])
        assert time.monotonic() - start < 30  # two turns of 20 callers
        names = [each.name for each in set(threading.enumerate()) - before]
        assert sum("llama-retrieval-engine" in name for name in names) <= 1
        forwarder.silent.clear()
        forwarder.down()
        forwarder.up()
        assert in_time(partial(CALLS[0], graph)) == [{"n": 1}]
