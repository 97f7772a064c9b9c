"""Follows index nodes: hits that stand for a node, a retriever or a query engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode, IndexNode, NodeWithScore, TextNode

from llama_retrieval_ext.execution.children import retrieval
from llama_retrieval_ext.execution.degraded import note_degraded
from llama_retrieval_ext.execution.effects import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.frame import current_frame
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit, as_hit, ordered

# What an index node stands for; None for an id that leads nowhere.
Target: TypeAlias = BaseNode | NodeWithScore | BaseRetriever | BaseQueryEngine | None


class ScorePolicy(Enum):
    """The score of what an index node led to, from the index node's and its own.

    Where it has none of its own, as a plain node, that of the index node counts.
    """

    CHILD = "child"
    PARENT = "parent"
    PRODUCT = "product"
    DECAYED = "decayed"

    def score(self, parent: float | None, child: float | None, *, decay: float) -> float | None:
        """The score; ``DECAYED`` is the child's own times ``decay``, level by level."""
        if parent is None:
            return child
        if child is None or self is ScorePolicy.PARENT:
            return parent
        if self is ScorePolicy.PRODUCT:
            return parent * child
        return child * decay if self is ScorePolicy.DECAYED else child


@dataclass(frozen=True, slots=True)
class Resolver:
    """Replaces index nodes by what they stand for, as deep as they lead.

    What is wrong does not fail the query: an id that leads nowhere, a circle, or a budget that is
    used up leaves the index node as it is, and the answer is marked degraded. What several index
    nodes stand for is asked once. Siblings are asked together.

    Attributes:
        lookup: What an index node stands for.
        max_depth: How many index nodes deep, at least 1.
        max_fan_out: How many different targets are followed in one ranking, best first.
        policy: How scores of parent and child become one.
        decay: For ``ScorePolicy.DECAYED``.
        report_dangling: Whether an id that leads nowhere degrades the answer. Not where another
            retriever above may know it.
    """

    lookup: Callable[[IndexNode], Target]
    max_depth: int = 8
    max_fan_out: int = 100
    policy: ScorePolicy = ScorePolicy.CHILD
    decay: float = 0.7
    report_dangling: bool = False

    def resolve(self, hits: Sequence[Hit], query: Query) -> Plan[list[Hit]]:
        """The plan for the ranking without the index nodes that lead somewhere."""
        if not any(isinstance(hit.node, IndexNode) for hit in hits):
            return list(hits)
        return ordered((yield from self._resolve(hits, query, depth=0)))

    def _resolve(self, hits: Sequence[Hit], query: Query, *, depth: int) -> Plan[list[Hit]]:
        targets = self._targets(hits, depth)
        tasks = [
            Task(id_, self._follow(id_, target, query, depth), enters=id_)
            for id_, target in targets.items()
        ]
        outcomes: list[Outcome[list[Hit]]] = yield Together(tasks)
        found = dict(zip(targets, outcomes, strict=True))
        return [child for hit in hits for child in self._replaced(hit, found)]

    def _targets(self, hits: Sequence[Hit], depth: int) -> dict[str, Target]:
        frame = current_frame()
        path = frozenset[str]() if frame is None else frame.path
        targets: dict[str, Target] = {}
        for hit in hits:
            node = hit.node
            if not isinstance(node, IndexNode) or node.index_id in targets:
                continue
            target = self.lookup(node)
            if target is None:
                if self.report_dangling:
                    note_degraded(node.index_id, "nothing is known under this id")
            elif node.index_id in path:
                note_degraded(node.index_id, "leads back to itself")
            elif depth >= self.max_depth:
                note_degraded(node.index_id, f"lies deeper than max_depth={self.max_depth}")
            elif len(targets) >= self.max_fan_out:
                note_degraded(node.index_id, f"is beyond max_fan_out={self.max_fan_out}")
            else:
                targets[node.index_id] = target
        return targets

    def _follow(self, id_: str, target: Target, query: Query, depth: int) -> Plan[list[Hit]]:
        found = yield from _found(id_, target, query)
        return (yield from self._resolve(found, query, depth=depth + 1))

    def _replaced(self, hit: Hit, found: dict[str, Outcome[list[Hit]]]) -> list[Hit]:
        node = hit.node
        if not isinstance(node, IndexNode) or node.index_id not in found:
            return [hit]
        outcome = found[node.index_id]
        if outcome.error is not None:
            note_degraded(node.index_id, outcome.error)
            return [hit]
        return [
            child.model_copy(
                update={"score": self.policy.score(hit.score, child.score, decay=self.decay)}
            )
            for child in outcome.result()
        ]


def _found(id_: str, target: Target, query: Query) -> Plan[list[Hit]]:
    if isinstance(target, BaseRetriever):
        hits = yield from retrieval(target, query.for_child())
        return [as_hit(hit, source=id_) for hit in hits]
    if isinstance(target, BaseQueryEngine):
        engine = target
        response: Any = yield Call(lambda: engine.query(query), lambda: engine.aquery(query))
        return [_answer_hit(id_, response)]
    if isinstance(target, NodeWithScore):
        return _visible([as_hit(target, source=id_)], query)
    if isinstance(target, BaseNode):
        return _visible([Hit(node=target, source=id_)], query)
    return []


def _visible(hits: list[Hit], query: Query) -> list[Hit]:
    # Objects come from memory, not through a store's gate.
    return [hit for hit in hits if matches(query.condition, hit.node.metadata)]


def _answer_hit(id_: str, response: Any) -> Hit:  # noqa: ANN401 - one of LlamaIndex's responses
    node = TextNode(id_=f"{id_}#answer", text=str(response), metadata=response.metadata or {})
    return Hit(node=node, source=id_)
