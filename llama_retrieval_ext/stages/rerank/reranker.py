"""`Reranker`: a refinement that keeps the order if its model or service fails."""

from collections.abc import Sequence

from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.errors import ExecutionError
from llama_retrieval_ext.execution.context import call, current_context, note_degraded
from llama_retrieval_ext.execution.legs import MISTAKES
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.pipeline.chains import EMPTY, checked
from llama_retrieval_ext.pipeline.stages import Refine, ranking_of, undefined
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import ScoreKind
from llama_retrieval_ext.results import Hit


class Reranker(Refine):
    """Base of refinements that reorder a ranking with a model, a store or a service.

    If that fails, times out or returns nothing, the ranking is unchanged and the answer is marked
    degraded. In a `RerankChain` the next reranker is tried instead. A caller's mistake, such as a
    missing model, is raised.

    A subclass defines `rerank`, a plain function that may block; async callers run it in a thread.
    A subclass with an async client defines `rerank_plan` instead, a generator that yields its
    calls.

    Attributes:
        score_kind: The scale of its scores.
        timeout_s: Time limit in seconds; None for the remaining time of the query.
    """

    # Fields of our subclasses' dataclasses.
    score_kind: ScoreKind = "unknown"
    timeout_s: float | None = None

    @property
    def reranks(self) -> bool:
        """Always true."""
        return True

    def rerank(
        self,
        query: Query,  # noqa: ARG002 - subclasses use it
        hits: Sequence[Hit],  # noqa: ARG002 - subclasses use it
    ) -> Sequence[NodeWithScore]:
        """Return the new ranking of at least one hit, best first; errors are raised.

        Args:
            query: The caller's original query.
            hits: The ranking so far, best first.
        """
        raise undefined(self, Reranker, "rerank(self, query, hits)")

    def rerank_plan(
        self, query: Query, hits: Sequence[Hit]
    ) -> Plan[Sequence[NodeWithScore] | None]:
        """Return the plan for the new ranking of at least one hit; by default a call of `rerank`.

        The plan raises errors, and returns None for a failure that it has already recorded.
        """
        answer = yield from call(Call(lambda: self.rerank(query, list(hits))))
        return ranking_of(answer, f"{type(self).__name__}.rerank")

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        """Return the plan for the new ranking, or for the old one if there is none."""
        if not hits:
            return []
        ranking = yield from attempted(self, query, hits)
        return list(hits) if ranking is None else ranking


def attempted(
    stage: Refine,
    query: Query,
    hits: Sequence[Hit],
    *,
    timeout_s: float | None = None,
    share: float = 1.0,
) -> Plan[list[Hit] | None]:
    """Return the plan for a stage's ranking; on failure None, with the answer marked degraded."""
    name = repr(stage).partition("(")[0]
    own_s = stage.timeout_s if isinstance(stage, Reranker) else None
    left_s = current_context().remaining_s()
    limits = (timeout_s, own_s, None if left_s is None else share * left_s)
    least_s = min((limit for limit in limits if limit is not None), default=None)
    task = Task(name, _ranking(stage, query, hits), least_s)
    outcomes: list[Outcome[list[Hit] | None]] = yield Together([task])
    error = outcomes[0].error
    if isinstance(error, MISTAKES):
        raise error
    if error is not None:
        note_degraded(name, error)
        return None
    return outcomes[0].result()


def _ranking(stage: Refine, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit] | None]:
    plan: Plan[Sequence[NodeWithScore] | None] = (
        stage.rerank_plan(query, hits)
        if isinstance(stage, Reranker)
        else stage.refine_plan(query, hits)
    )
    answer = yield from plan
    if answer is None and isinstance(stage, Reranker):
        return None  # the reason is already recorded
    ranking = checked(stage, answer, hits)
    if not ranking and stage.reranks:
        raise ExecutionError(EMPTY)
    return ranking
