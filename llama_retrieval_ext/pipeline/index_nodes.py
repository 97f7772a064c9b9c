"""Resolution of index nodes: hits that refer to a node, a retriever or a query engine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.schema import BaseNode, IndexNode, NodeWithScore, TextNode

from llama_retrieval_ext.errors import ExecutionError
from llama_retrieval_ext.execution.context import current_context, note_degraded
from llama_retrieval_ext.execution.legs import MISTAKES
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.retrieval import hits_of
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.hits import as_hit, ordered
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit

# The target of an index node; None for an unknown id.
Target: TypeAlias = BaseNode | NodeWithScore | BaseRetriever | BaseQueryEngine | None
# The sources of query engines' answers, by the id of the answer's node.
Sources: TypeAlias = dict[str, list[Hit]]


def target_hits(
    id_: str, target: Target, query: Query, *, template: str, sources: Sources
) -> Plan[list[Hit]]:
    """Return the plan for the hits of a target, within the query's scope and filters."""
    if isinstance(target, BaseRetriever):
        return (yield from hits_of(target, query.for_child(), source=id_))
    if isinstance(target, BaseQueryEngine):
        # A copy, because the engine may modify it; the embedding may be of another model.
        response = yield _query_call(target, replace(query.for_child(), embedding=None))
        answer = _answer(id_, response, query, template)
        sources[answer.node.node_id] = [as_hit(hit) for hit in response.source_nodes]
        return [answer]
    if target is None:
        return []
    hit = as_hit(target) if isinstance(target, NodeWithScore) else Hit(node=target)
    # Objects come from memory, so no store has applied the condition.
    visible = matches(query.condition, hit.node.metadata)
    return [as_hit(hit, source=id_)] if visible else []


def target_key(id_: str, target: Target) -> str:
    """Return a unique key for a target; one node id may have several targets."""
    return f"{id_}@{id(target):x}"


def _query_call(engine: BaseQueryEngine, query: Query) -> Call[Any]:  # a LlamaIndex response
    # CustomQueryEngine's async method calls the blocking one on the loop unless overridden.
    blocks = (
        isinstance(engine, CustomQueryEngine)
        and type(engine).acustom_query is CustomQueryEngine.acustom_query
    )
    return Call(lambda: engine.query(query), None if blocks else lambda: engine.aquery(query))


def _answer(id_: str, response: Any, query: Query, template: str) -> Hit:  # noqa: ANN401 - a LlamaIndex response
    sources: Sequence[NodeWithScore] = response.source_nodes
    inside = [hit for hit in sources if matches(query.condition, hit.node.metadata)]
    if query.condition is not None and (not sources or len(inside) < len(sources)):
        raise ExecutionError(
            f"the answer of {id_!r} draws on {len(sources) - len(inside)} nodes from outside the "
            "query's scope or filters, or does not say on which it draws; it was dropped"
        )
    text = template.format(query_str=query.query_str, response=response)
    node = TextNode(id_=f"{id_}#answer", text=text, metadata=response.metadata or {})
    return Hit(node=node, source=id_)


ScorePolicy: TypeAlias = Literal["child", "parent", "product", "decayed"]


def _combined(
    policy: ScorePolicy, parent: float | None, child: float | None, *, decay: float
) -> float | None:
    """Return the score of a target, from the index node's and its own; either may be missing."""
    if parent is None:
        return child
    if child is None or policy == "parent":
        return parent
    if policy == "product":
        return parent * child
    return child * decay if policy == "decayed" else child


@dataclass(frozen=True, slots=True)
class Resolver:
    """Resolver that replaces index nodes by their targets, recursively.

    Problems do not fail the query: after an unknown id, a cycle, or an exhausted budget, the index
    node stays in the ranking and the answer is marked degraded. A target of several index nodes is
    called once. Siblings are called in parallel.
    """

    lookup: Callable[[IndexNode], Target]
    max_depth: int = 8
    max_fan_out: int = 100
    policy: ScorePolicy = "child"
    decay: float = 0.7
    report_dangling: bool = False  # False if an enclosing retriever may know the id
    response_template: str = "{response}"

    def resolve(
        self,
        hits: Sequence[Hit],
        query: Query,
        *,
        inside: Sequence[str] = (),
        sources: Sources | None = None,
    ) -> Plan[list[Hit]]:
        """Return the plan for the ranking with resolvable index nodes replaced."""
        if not any(isinstance(hit.node, IndexNode) for hit in hits):
            return list(hits)
        resolution = _Resolution(self, query, {} if sources is None else sources)
        return ordered((yield from resolution.follow(hits, inside)))


@dataclass(frozen=True, slots=True)
class _PathHit:
    """A hit with the targets on the path to it; its score is that of the whole path."""

    hit: Hit
    path: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Reference:
    """A target of one level with the index nodes that refer to it, best first."""

    index_id: str
    target: Target
    index_nodes: list[_PathHit] = field(default_factory=list)


class _Resolution:
    """Breadth-first search from the hits of one query: deterministic, one call per target."""

    def __init__(self, limits: Resolver, query: Query, sources: Sources) -> None:
        self.limits = limits
        self.query = query
        self.sources = sources
        self._outcomes: dict[str, Outcome[list[Hit]]] = {}
        # Score of the best index node that referred to each target so far.
        self._best_scores: dict[str, float | None] = {}
        self._hits: list[Hit] = []

    def follow(self, hits: Sequence[Hit], inside: Sequence[str]) -> Plan[list[Hit]]:
        """Return the plan for the hits at the ends of all paths."""
        path = frozenset(inside) | current_context().path
        level, depth = [_PathHit(hit, path) for hit in hits], 0
        while level:
            references = self._references(level, depth)
            yield from self._call_targets(references)
            depth += 1
            level = [
                hit
                for key, reference in references.items()
                for hit in self._results_of(key, reference, depth)
            ]
        return self._hits

    def _references(self, level: Sequence[_PathHit], depth: int) -> dict[str, _Reference]:
        """Return the targets of a level by key; hits without a target are results."""
        references: dict[str, _Reference] = {}
        for path_hit in sorted(level, key=_best_first):
            reference = self._reference(path_hit, depth, references)
            if reference is None:
                self._hits.append(path_hit.hit)
            else:
                reference.index_nodes.append(path_hit)
        return references

    def _reference(
        self, source: _PathHit, depth: int, references: dict[str, _Reference]
    ) -> _Reference | None:
        """Return the target of a hit, added to ``references``; None if it is not followed."""
        node = source.hit.node
        if not isinstance(node, IndexNode):
            return None
        target = self.limits.lookup(node)
        key = target_key(node.index_id, target)
        reason = self._reason_not_followed(key, target, source, depth)
        if not reason and key not in references and len(references) >= self.limits.max_fan_out:
            reason = f"is beyond max_fan_out={self.limits.max_fan_out}"
        if reason:
            note_degraded(node.index_id, reason)
        if reason or target is None:
            return None
        return references.setdefault(key, _Reference(node.index_id, target))

    def _reason_not_followed(self, key: str, target: Target, source: _PathHit, depth: int) -> str:
        if target is None:
            return "nothing is known under this id" if self.limits.report_dangling else ""
        if key in source.path:
            return "leads back to itself"
        if depth >= self.limits.max_depth:
            return f"lies deeper than max_depth={self.limits.max_depth}"
        return ""

    def _call_targets(self, references: Mapping[str, _Reference]) -> Plan[None]:
        """Call the targets that were not called before, in parallel."""
        new = [key for key in references if key not in self._outcomes]
        tasks = [self._task(key, references[key]) for key in new]
        outcomes: list[Outcome[list[Hit]]] = (yield Together(tasks)) if tasks else []
        for key, task, outcome in zip(new, tasks, outcomes, strict=True):
            self._outcomes[key] = outcome
            if isinstance(outcome.error, MISTAKES):
                raise outcome.error
            if outcome.error is not None:
                note_degraded(task.name, outcome.error)

    def _task(self, key: str, reference: _Reference) -> Task[list[Hit]]:
        plan = target_hits(
            reference.index_id,
            reference.target,
            self.query,
            template=self.limits.response_template,
            sources=self.sources,
        )
        return Task(reference.index_id, plan, enters=key, leg=reference.index_id)

    def _results_of(self, key: str, reference: _Reference, depth: int) -> list[_PathHit]:
        """Return the hits of a target with their scores; if it failed, keep its index nodes."""
        outcome, best = self._outcomes[key], reference.index_nodes[0]
        if outcome.error is not None:
            self._hits += [index_node.hit for index_node in reference.index_nodes]
            return []
        if key in self._best_scores:
            inherited = self.limits.policy in {"parent", "product"}
            score, before = best.hit.score, self._best_scores[key]
            if not inherited or score is None or (before is not None and score <= before):
                return []  # a shorter path reached it, with the same or better scores
        self._best_scores[key] = best.hit.score
        decay, path = self.limits.decay**depth, best.path | {key}
        return [
            _PathHit(hit.model_copy(update={"score": score}), path)
            for hit in outcome.result()
            for score in [_combined(self.limits.policy, best.hit.score, hit.score, decay=decay)]
        ]


def _best_first(path_hit: _PathHit) -> tuple[bool, float, str]:
    score = path_hit.hit.score
    return score is None, -(score or 0.0), path_hit.hit.node.node_id


def objects_by_id(
    objects: Sequence[IndexNode] | None, object_map: Mapping[str, object] | None
) -> dict[str, object]:
    """Return the targets of index nodes by id, merged from the two arguments for them."""
    return {**(object_map or {}), **{node.index_id: node.obj for node in objects or ()}}
