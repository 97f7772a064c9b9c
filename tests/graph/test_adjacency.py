"""The graph in memory follows each write, and keeps the order of edges."""

import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from llama_retrieval_ext.graph.adjacency import Adjacency, Changes, NodeEntry
from llama_retrieval_ext.graph.elements import Direction, Edge, EdgeId, Hop, edge_order
from llama_retrieval_ext.scope import Scope


def put(graph: Adjacency, *edges: Edge) -> None:
    graph.apply(Changes(edges={edge.id: edge for edge in edges}))


def drop(graph: Adjacency, *ids: EdgeId) -> None:
    graph.apply(Changes(edges=dict.fromkeys(ids)))


def put_nodes(graph: Adjacency, ids: Iterable[str], *allowed: str) -> None:
    plain = NodeEntry(1, 1, "X")
    entry = plain._replace(claims=((frozenset(allowed), plain),)) if allowed else plain
    graph.apply(Changes(dict.fromkeys(ids, entry)))


def drop_nodes(graph: Adjacency, *ids: str) -> None:
    graph.apply(Changes(dict.fromkeys(ids)))


def random_edge(rng: random.Random) -> Edge:
    return Edge(rng.choice("abcde"), rng.choice("RS"), rng.choice("abcde"), rng.choice([1.0, 2.0]))


def test_neighbours_after_many_changes_are_those_of_the_edges_that_are_left() -> None:
    rng = random.Random(3)
    graph, held = Adjacency(), dict[tuple[str, str, str], Edge]()
    for _ in range(60):
        added = {edge.id: edge for edge in (random_edge(rng) for _ in range(rng.randint(0, 4)))}
        put(graph, *added.values())
        held |= added
        dropped = rng.sample(sorted(held), min(len(held), rng.randint(0, 2)))
        drop(graph, *dropped)
        held = {id_: edge for id_, edge in held.items() if id_ not in dropped}
        hop = Hop(rng.choice([*Direction]), rng.choice([None, frozenset("R")]))
        for node, edges in graph.neighbours("abcde", hop).items():
            touching = [edge for edge in held.values() if node in (edge.source, edge.target)]
            assert edges == hop.first(node, touching)
        assert set(graph.outgoing()) == set(held.values())


@pytest.mark.slow
def test_nodes_and_edges_are_listed_while_another_thread_writes() -> None:
    graph = Adjacency()
    ids = {str(n) for n in range(500)}
    put_nodes(graph, ids)
    view, stop = graph.seen_by(Scope(principals=[])), threading.Event()

    def write() -> None:
        while not stop.is_set():
            for id_ in map(str, range(500)):
                put_nodes(graph, [id_], "group:hr")
                put(graph, Edge(id_, "R", "0"))
                drop(graph, (id_, "R", "0"))
                drop_nodes(graph, id_)
                put_nodes(graph, [id_])

    with ThreadPoolExecutor(1) as writers:
        writing = writers.submit(write)
        try:
            for _ in range(100):
                assert dict(view.entries()).keys() <= ids
                assert {edge.source for edge in view.outgoing()} <= ids
        finally:
            stop.set()
        writing.result()


def test_nodes_that_are_removed_while_they_are_listed_are_left_out() -> None:
    graph = Adjacency()
    put_nodes(graph, "ab")
    for view in (graph.seen_by(Scope(principals=[])), graph):
        entries = view.entries()
        assert next(entries)[0] == "a"
        drop_nodes(graph, "b")
        assert list(entries) == []
        put_nodes(graph, "b")


def test_an_edge_that_is_removed_while_a_read_orders_it_stays_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = Adjacency()
    put_nodes(graph, "ab")
    put(graph, Edge("a", "R", "b"))

    def order(node_id: str) -> Callable[[Edge], tuple[float, str, str, bool]]:
        monkeypatch.undo()
        drop(graph, ("a", "R", "b"))
        return edge_order(node_id)

    monkeypatch.setattr("llama_retrieval_ext.graph.adjacency.edge_order", order)
    for _ in range(2):
        assert graph.neighbours(["a"], Hop()) == {"a": []}


def test_a_removed_node_has_no_entry_among_neighbours() -> None:
    graph = Adjacency()
    put_nodes(graph, "a")
    assert graph.neighbours(["a"], Hop()) == {"a": []}
    drop_nodes(graph, "a")
    assert graph.neighbours(["a"], Hop()) == {}
