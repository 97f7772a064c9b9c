"""The graph in memory follows each write, and keeps the order of edges."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

from llama_retrieval_ext.graph.adjacency import Adjacency, NodeEntry
from llama_retrieval_ext.graph.elements import Direction, Edge, GraphNode, Hop


def random_edge(rng: random.Random) -> Edge:
    return Edge(rng.choice("abcde"), rng.choice("RS"), rng.choice("abcde"), rng.choice([1.0, 2.0]))


def test_neighbours_after_many_changes_are_those_of_the_edges_that_are_left() -> None:
    rng = random.Random(3)
    graph, held = Adjacency(), dict[tuple[str, str, str], Edge]()
    for _ in range(60):
        added = {edge.id: edge for edge in (random_edge(rng) for _ in range(rng.randint(0, 4)))}
        graph.put_edges(added.values())
        held |= added
        dropped = rng.sample(sorted(held), min(len(held), rng.randint(0, 2)))
        graph.drop_edges(dropped)
        held = {id_: edge for id_, edge in held.items() if id_ not in dropped}
        hop = Hop(rng.choice([*Direction]), rng.choice([None, frozenset("R")]))
        for node, edges in graph.neighbours("abcde", hop).items():
            touching = [edge for edge in held.values() if node in (edge.source, edge.target)]
            assert edges == hop.first(node, touching)
        assert set(graph.outgoing()) == set(held.values())


def test_nodes_and_edges_are_listed_while_another_thread_writes() -> None:
    graph = Adjacency()
    ids = {str(n) for n in range(500)}
    graph.put_nodes({id_: NodeEntry(int(id_), "X") for id_ in ids})
    view, stop = graph.visible_to([]), threading.Event()

    def write() -> None:
        while not stop.is_set():
            for n in range(500):
                said = GraphNode(str(n), "Y").said
                graph.restrict({str(n): {frozenset(): said}}, is_written=True)
                graph.put_edges([Edge(str(n), "R", "0")])
                graph.drop_edges([(str(n), "R", "0")])
                graph.drop_nodes([str(n)])
                graph.put_nodes({str(n): NodeEntry(n, "X")})

    with ThreadPoolExecutor(1) as writers:
        writing = writers.submit(write)
        try:
            for _ in range(100):
                assert set(view.nodes) <= ids
                assert {edge.source for edge in view.outgoing()} <= ids
        finally:
            stop.set()
        writing.result()
