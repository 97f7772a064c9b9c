"""`Reranker`: a refinement by something that may fail, and then leaves the order as it was."""

from collections.abc import Sequence

from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.checks import check_seconds
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
    """Orders a ranking anew by means of a model, a store or a service.

    When that fails, is late or returns nothing, the ranking stays as it was and the answer is
    marked degraded. In a `RerankChain` the next reranker is tried instead. A mistake of the caller,
    such as a missing model, is raised.

    A subclass defines `rerank`, a plain function, which may block; async callers run it in a
    thread. One with an async client defines `rerank_plan` instead, a generator that yields its
    calls.

    Attributes:
        score_kind: The scale of the scores it gives.
        timeout_s: Seconds it may take; None for as long as the query may.
    """

    # Fields of our subclasses' dataclasses.
    score_kind: ScoreKind = ScoreKind.UNKNOWN
    timeout_s: float | None = None

    @property
    def reranks(self) -> bool:
        """It does."""
        return True

    def rerank(
        self,
        query: Query,  # noqa: ARG002 - subclasses use it
        hits: Sequence[Hit],  # noqa: ARG002 - subclasses use it
    ) -> Sequence[NodeWithScore]:
        """Return the new ranking of at least one hit, best first; raise what goes wrong.

        Args:
            query: The query as the caller asked it.
            hits: The ranking so far, best first.
        """
        raise undefined(self, Reranker, "rerank(self, query, hits)")

    def rerank_plan(
        self, query: Query, hits: Sequence[Hit]
    ) -> Plan[Sequence[NodeWithScore] | None]:
        """The plan for the new ranking of at least one hit; by default one call of `rerank`.

        It raises what goes wrong; it returns None when it has noted that itself.
        """
        answer = yield from call(Call(lambda: self.rerank(query, list(hits))))
        return ranking_of(answer, f"{type(self).__name__}.rerank")

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        """The plan for the new ranking, or the old one when there is none."""
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
    """The plan for what a stage makes of the hits; None, and the answer degraded, when it fails."""
    name = repr(stage).partition("(")[0]
    own_s = stage.timeout_s if isinstance(stage, Reranker) else None
    task = Task(name, _ranking(stage, query, hits), _least(timeout_s, own_s, _share_s(share)))
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
        return None  # and it has said why
    ranking = checked(stage, answer, hits)
    if not ranking and stage.reranks:
        raise ExecutionError(EMPTY)
    return ranking


def check_timeout(timeout_s: float | None) -> None:
    """Nothing, if a stage can have so much time."""
    if timeout_s is not None:
        check_seconds(timeout_s, "timeout_s", otherwise="for no limit pass None")


def _share_s(share: float) -> float | None:
    left_s = current_context().remaining_s()
    return None if left_s is None else share * left_s


def _least(*limits_s: float | None) -> float | None:
    return min((limit for limit in limits_s if limit is not None), default=None)
