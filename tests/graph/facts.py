"""Generated facts with corrections, and an oracle in plain Python of what held and was known."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property

from llama_retrieval_ext.graph.backend import GraphBackend, WritableGraph
from llama_retrieval_ext.graph.elements import Direction, Edge, EdgeId, Hop
from llama_retrieval_ext.scope import Scope

FUNCTIONAL = "WORKS_AT"
PLURAL = "KNOWS"
_START = date(2020, 1, 1)
_DAYS = 400


@dataclass(frozen=True)
class Facts:
    """Facts of people, some of which correct others, in random order.

    Attributes:
        seed: Seed of the generator.
        count: Number of facts.
        edges: The facts, in the order in which they are added.
    """

    seed: int
    count: int
    edges: list[Edge] = field(init=False)

    def __post_init__(self) -> None:
        draw = random.Random(self.seed)
        edges: list[Edge] = []
        people = max(2, self.count // 20)
        while len(edges) < self.count:
            earlier = draw.choice(edges) if edges and draw.random() < 0.2 else None
            type_ = draw.choice((FUNCTIONAL, PLURAL))
            ends = (
                earlier.id
                if earlier
                else (f"person {draw.randrange(people)}", type_, f"firm {draw.randrange(8)}")
            )
            start = earlier.properties["valid_from"] if earlier else self.day(draw)
            end = self.day(draw) if draw.random() < 0.5 else ""
            properties = {"valid_from": start, "known_from": self.day(draw)}
            if end > start:
                properties["valid_to"] = end
            edges.append(Edge.of(*ends, properties))
        unique = {(edge.id, *self.version(edge)): edge for edge in edges}  # added once a day
        object.__setattr__(self, "edges", [*unique.values()])
        draw.shuffle(self.edges)

    @staticmethod
    def day(draw: random.Random) -> str:
        """Return a random day."""
        return (_START + timedelta(days=draw.randrange(_DAYS))).isoformat()

    @staticmethod
    def version(edge: Edge) -> tuple[str, str]:
        """Return the start of a fact, and since when this version of it is known."""
        return edge.properties["valid_from"], edge.properties["known_from"]

    @cached_property
    def by_source(self) -> dict[str, list[Edge]]:
        """The facts of each source, by what is known first."""
        found: dict[str, list[Edge]] = defaultdict(list)
        for edge in sorted(self.edges, key=self.version):
            found[edge.source].append(edge)
        return found

    @cached_property
    def sources_of(self) -> dict[str, set[str]]:
        """The sources of the facts that end at a node, or start there."""
        found: dict[str, set[str]] = defaultdict(set)
        for edge in self.edges:
            found[edge.source].add(edge.source)
            found[edge.target].add(edge.source)
        return found

    def holding(self, node: str, as_of: str, known_at: str) -> set[tuple[str, str, str]]:
        """Return the edges of a node that held on one day, by what was known on another."""
        held = set()
        for source in self.sources_of[node]:
            known: dict[tuple[EdgeId, str], dict[str, str]] = {}
            for edge in self.by_source[source]:
                if edge.properties["known_from"] <= known_at:
                    known[edge.id, edge.properties["valid_from"]] = edge.properties
            for (id_, start), properties in known.items():
                later = [
                    other
                    for (other_id, other) in known
                    if id_[1] == FUNCTIONAL == other_id[1] and other > start
                ]
                end = min([properties.get("valid_to", "9"), *later])
                if start <= as_of < end and node in (id_[0], id_[2]):
                    held.add(id_)
        return held


def wrong_answers(graph: WritableGraph, facts: Facts, *, questions: int) -> list[object]:
    """Add facts to a graph, ask for the edges of nodes at random times, and return wrong answers.

    Every other question is about the end of edges, which another edge may have closed.
    """
    graph.functional = frozenset([FUNCTIONAL])
    for at in range(0, len(facts.edges), 500):
        graph.upsert([], facts.edges[at : at + 500])
    draw = random.Random(facts.seed + 1)
    nodes: Sequence[str] = sorted(
        {end for edge in facts.edges for end in (edge.source, edge.target)}
    )
    wrong: list[object] = []
    for _ in range(questions):
        node, as_of, known_at = draw.choice(nodes), facts.day(draw), facts.day(draw)
        answer = _edges(graph, node, Scope(as_of=as_of, known_at=known_at))
        if answer != facts.holding(node, as_of, known_at):
            wrong.append((node, as_of, known_at, answer))
    return wrong


def _edges(graph: GraphBackend, node: str, scope: Scope) -> set[tuple[str, str, str]]:
    edges = graph.neighbours([node], Hop(Direction.ANY), scope=scope).get(node, [])
    return {edge.id for edge in edges}
