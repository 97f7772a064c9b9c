"""Follows index nodes: hits that stand for a node, a retriever or a query engine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from llama_index.core.schema import IndexNode

from llama_retrieval_ext.execution.degraded import note_degraded
from llama_retrieval_ext.execution.effects import Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.frame import current_frame
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit, ordered
from llama_retrieval_ext.stages.index_targets import Target, place, target_hits
from llama_retrieval_ext.stages.score_policy import ScorePolicy


@dataclass(frozen=True, slots=True)
class Resolver:
    """Replaces index nodes by what they stand for, as deep as they lead.

    What is wrong does not fail the query: an id that leads nowhere, a circle, or a budget that is
    used up leaves the index node as it is, and the answer is marked degraded. What several index
    nodes stand for is asked once, wherever they stand. Siblings are asked together.

    Attributes:
        lookup: What an index node stands for.
        max_depth: How many index nodes deep, at least 1.
        max_fan_out: How many different ids are followed at each depth, best first.
        policy: How scores of parent and child become one.
        decay: For ``ScorePolicy.DECAYED``: a factor for each index node on the way.
        report_dangling: Whether an id that leads nowhere degrades the answer. Not where another
            retriever above may know it.
        response_template: Text of the node made of a query engine's answer, with ``{response}`` and
            ``{query_str}``.
    """

    lookup: Callable[[IndexNode], Target]
    max_depth: int = 8
    max_fan_out: int = 100
    policy: ScorePolicy = ScorePolicy.CHILD
    decay: float = 0.7
    report_dangling: bool = False
    response_template: str = "{response}"

    def resolve(
        self, hits: Sequence[Hit], query: Query, *, inside: Sequence[str] = ()
    ) -> Plan[list[Hit]]:
        """The plan for the ranking without the index nodes that lead somewhere.

        Args:
            hits: The ranking.
            query: What the hits answer; what they lead to is asked the same.
            inside: `place` of what the hits came from: an index node that leads there is a circle.
        """
        if not any(isinstance(hit.node, IndexNode) for hit in hits):
            return list(hits)
        return ordered((yield from _Walk(self, query).through(hits, inside)))


@dataclass(frozen=True, slots=True)
class _Reached:
    """A hit, and what was entered on the way to it. Its score is that of the whole way."""

    hit: Hit
    path: frozenset[str]


class _Walk:
    """One query's way through the index nodes, depth by depth."""

    def __init__(self, resolver: Resolver, query: Query) -> None:
        self.resolver = resolver
        self.query = query
        self._answers: dict[str, Outcome[list[Hit]]] = {}
        self._entered: dict[str, float | None] = {}
        self._found: list[Hit] = []

    def through(self, hits: Sequence[Hit], inside: Sequence[str]) -> Plan[list[Hit]]:
        """The plan for what is found at the end of every way."""
        frame = current_frame()
        path = frozenset(inside) | (frozenset[str]() if frame is None else frame.path)
        level, depth = [_Reached(hit, path) for hit in hits], 0
        while level:
            targets: dict[str, Target] = {}
            doors: dict[str, list[_Reached]] = {}
            for reached in sorted(level, key=_best_first):
                where, target = self._door(reached, depth, doors)
                if where is None:
                    self._found.append(reached.hit)
                else:
                    targets[where] = target
                    doors.setdefault(where, []).append(reached)
            yield from self._ask(targets, doors)
            depth += 1
            level = [each for where in doors for each in self._behind(where, doors[where], depth)]
        return self._found

    def _door(
        self, reached: _Reached, depth: int, doors: Mapping[str, object]
    ) -> tuple[str | None, Target]:
        """Where the hit leads and to what; nowhere if it is not to be followed."""
        node, limits = reached.hit.node, self.resolver
        if not isinstance(node, IndexNode):
            return None, None
        target = limits.lookup(node)
        where, reason = place(node.index_id, target), ""
        if target is None:
            reason = "nothing is known under this id" if limits.report_dangling else ""
        elif where in reached.path:
            reason = "leads back to itself"
        elif depth >= limits.max_depth:
            reason = f"lies deeper than max_depth={limits.max_depth}"
        elif where not in doors and len(doors) >= limits.max_fan_out:
            reason = f"is beyond max_fan_out={limits.max_fan_out}"
        else:
            return where, target
        if reason:
            note_degraded(node.index_id, reason)
        return None, None

    def _ask(
        self, targets: Mapping[str, Target], doors: Mapping[str, Sequence[_Reached]]
    ) -> Plan[None]:
        """Learn what is behind the doors that were not opened before."""
        new = [where for where in targets if where not in self._answers]
        tasks = [
            Task(
                id_,
                target_hits(
                    id_, targets[where], self.query, template=self.resolver.response_template
                ),
                enters=where,
            )
            for where in new
            for id_ in [_index_id(doors[where][0])]
        ]
        if tasks:
            outcomes: list[Outcome[list[Hit]]] = yield Together(tasks)
            self._answers.update(zip(new, outcomes, strict=True))
            for task, outcome in zip(tasks, outcomes, strict=True):
                if outcome.error is not None:
                    note_degraded(task.name, outcome.error)

    def _behind(self, where: str, doors: Sequence[_Reached], depth: int) -> list[_Reached]:
        outcome, best = self._answers[where], doors[0]
        if outcome.error is not None:
            self._found += [reached.hit for reached in doors]
            return []
        if where in self._entered and not self._gains(best.hit.score, self._entered[where]):
            return []  # a shorter way led here, to the same scores or better ones
        self._entered[where] = best.hit.score
        policy, decay = self.resolver.policy, self.resolver.decay**depth
        return [
            _Reached(
                hit.model_copy(
                    update={"score": policy.score(best.hit.score, hit.score, decay=decay)}
                ),
                best.path | {where},
            )
            for hit in outcome.result()
        ]

    def _gains(self, score: float | None, before: float | None) -> bool:
        inherited = self.resolver.policy in {ScorePolicy.PARENT, ScorePolicy.PRODUCT}
        return inherited and score is not None and (before is None or score > before)

def _best_first(reached: _Reached) -> tuple[bool, float, str]:
    score = reached.hit.score
    return score is None, -(score or 0.0), reached.hit.node.node_id


def _index_id(reached: _Reached) -> str:
    node = reached.hit.node
    return node.index_id if isinstance(node, IndexNode) else node.node_id


