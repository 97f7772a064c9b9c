"""Stages made of a LlamaIndex postprocessor or a plain function."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias, TypeGuard

from llama_index.core.postprocessor import LLMRerank, LongContextReorder, StructuredLLMRerank
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseComponent, NodeWithScore

from llama_retrieval_ext.arguments import call_expression, function_name, handle_expression
from llama_retrieval_ext.errors import CompositionError, ConfigurationError, ExecutionError
from llama_retrieval_ext.execution.context import note_degraded
from llama_retrieval_ext.execution.drivers import awaits, blocking_or_awaited
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.retrieval import visible
from llama_retrieval_ext.hits import as_hit, node_copy, node_ids
from llama_retrieval_ext.pipeline.stages import Refine, RefineFunction, ranking_of
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import ScoreKind, calibrated, replaced, with_score
from llama_retrieval_ext.results import Contribution, Hit
from llama_retrieval_ext.wording import counted


@dataclass(frozen=True, slots=True, repr=False)
class Postprocessed(Refine):
    """Any LlamaIndex postprocessor: rerankers, filters, metadata replacement, ...

    It gets copies of hits, nodes and query, because postprocessors modify them in place. Its order
    is kept; for a node that it returns twice, the first one is kept. Its errors fail the query,
    because it may be a filter that must not be skipped. For a reranker that may be skipped, use
    `RerankRetriever` or `RerankChain`.

    A postprocessor is a reranker if it has LlamaIndex's setting ``top_n``, if the name of its class
    contains "Rerank", or if ``score_kind`` declares the scale of its scores. If a reranker returns
    nothing, it has failed: the order is unchanged and the answer is marked degraded. If it returns
    nodes that were not in the ranking, these are left out and the answer is marked degraded. Other
    postprocessors may return nothing, as filters do, or add nodes, as ``PrevNextNodePostprocessor``
    does.

    No stage can follow LlamaIndex's ``LongContextReorder`` or this package's, and it gets at most
    ``top_k`` hits of the query.

    Args:
        postprocessor: The postprocessor.
        score_kind: The scale of a reranker's scores: ``"logit"`` for any number, as of
            cross-encoders, ``"probability"`` for [0, 1], ``"unknown"`` for an order alone.

    A hit whose score it removes keeps its old score; a hit that it adds without a score gets the
    lowest input score. A changed score is stored unmodified in the hit's last contribution. A hit
    that it adds from outside the query's scope or filters is left out, and the answer is marked
    degraded.

    Raises:
        ConfigurationError: An argument is of another type.
        ExecutionError: During a query, the postprocessor returns no list of hits.
        ScoreError: During a query, a score is not finite, or not of its kind.
    """

    postprocessor: BaseNodePostprocessor
    _: KW_ONLY
    score_kind: ScoreKind = "unknown"

    @property
    def keeps_order(self) -> bool:
        """Whether the postprocessor is not LlamaIndex's ``LongContextReorder``."""
        return not isinstance(self.postprocessor, LongContextReorder)

    @property
    def reranks(self) -> bool:
        """Whether the postprocessor is a reranker."""
        return (
            self.score_kind != "unknown"
            or hasattr(self.postprocessor, "top_n")
            or "rerank" in self._name.lower()
        )

    @property
    def adds(self) -> bool:
        """Whether the postprocessor may add nodes."""
        return not self.reranks

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        """Return the plan for the postprocessor's result."""
        # Postprocessors replace or extend the text and metadata of a node, but not nested values,
        # so deeper copies are not needed.
        copies: list[NodeWithScore] = [
            hit.model_copy(update={"node": node_copy(hit.node)})
            for hit in (hits if self.keeps_order else hits[: query.top_k])
        ]
        child = query.for_child(top_k=query.top_k)
        worker = strict(self.postprocessor)
        blocking = partial(worker.postprocess_nodes, copies, child)
        attempt = partial(worker.apostprocess_nodes, copies, child)
        method = type(worker)._apostprocess_nodes  # noqa: SLF001 - it has no public name
        is_async = method is not BaseNodePostprocessor._apostprocess_nodes and awaits(method)  # noqa: SLF001 - likewise
        answer: list[NodeWithScore] = yield Call(
            lambda: blocking_or_awaited(blocking, attempt), attempt if is_async else None
        )
        try:
            ranking = ranking_of(answer, f"{self._name}.postprocess_nodes")
        except ConfigurationError as error:  # a defect of the postprocessor, not of the caller
            raise ExecutionError(str(error)) from error
        before = {hit.node.node_id: (rank, hit) for rank, hit in enumerate(hits, start=1)}
        lowest = min((hit.score for hit in hits if hit.score is not None), default=None)
        added = self._added([hit for hit in ranking if hit.node.node_id not in before], query)
        allowed = {*before, *node_ids(added)}
        refined: list[Hit] = []
        for rank, hit in enumerate(ranking, start=1):
            if hit.node.node_id not in allowed:
                continue
            allowed.remove(hit.node.node_id)  # drop later duplicates of a node
            if hit.node.node_id in before:
                refined.append(self._known(hit, rank, *before[hit.node.node_id]))
            else:
                score = hit.score
                score = lowest if score is None else calibrated(score, self.score_kind)
                refined.append(with_score(as_hit(hit, source=self._name), score, ()))
        return refined

    def _added(self, added: list[NodeWithScore], query: Query) -> list[NodeWithScore]:
        """Return the added hits that are allowed; dropped hits degrade the answer."""
        if not self.reranks:
            return visible(added, query, self._name)
        if added:
            note_degraded(
                self._name,
                f"dropped {counted(len(added), 'node')} that it returned from outside the ranking",
            )
        return []

    def _known(self, hit: NodeWithScore, rank: int, rank_before: int, before: Hit) -> Hit:
        # Rerankers create plain hits, so all fields except node and score come from the old hit.
        same = before.model_copy(update={"node": hit.node})
        if hit.score is None or (hit.score == before.score and self.score_kind == "unknown"):
            return same
        score = calibrated(hit.score, self.score_kind)
        contribution = Contribution(self._name, rank, hit.score, 1.0, score)
        return with_score(same, score, (*replaced(before, rank_before), contribution))

    @property
    def _name(self) -> str:
        return type(self.postprocessor).__name__

    def __repr__(self) -> str:
        if self.score_kind == "unknown":  # printed without the enclosing stage
            return handle_expression(self.postprocessor)
        return call_expression(self)


# The numbers of the documents, from 1, and their relevance values.
ParsedAnswer: TypeAlias = tuple[list[int], list[float] | None]


def strict(postprocessor: BaseNodePostprocessor) -> BaseNodePostprocessor:
    """Return the postprocessor; for an LLM reranker, a copy that uses only valid numbers.

    LlamaIndex interprets document 0 of an answer as the last of the batch, and fails on numbers
    that are out of range. A repeated number counts once, with its first relevance.
    """
    if not isinstance(postprocessor, LLMRerank | StructuredLLMRerank):
        return postprocessor
    guarded = postprocessor.model_copy()
    parse = postprocessor._parse_choice_select_answer_fn  # noqa: SLF001 - it has no public name
    guarded._parse_choice_select_answer_fn = _in_range(parse)  # noqa: SLF001
    return guarded


def _in_range(parse: Callable[..., ParsedAnswer]) -> Callable[..., ParsedAnswer]:
    def parsed(answer: object, documents: int) -> ParsedAnswer:
        numbers, relevances = parse(answer, documents)
        scores = relevances or [1.0] * len(numbers)
        kept: dict[int, float] = {}
        for number, relevance in zip(numbers, scores, strict=False):
            if 1 <= int(number) <= documents:
                kept.setdefault(int(number), relevance)
        return list(kept), list(kept.values())

    return parsed


def as_refine(stage: Refine | BaseNodePostprocessor | RefineFunction) -> Refine:
    """Return the stage; wrap a LlamaIndex postprocessor or a plain function."""
    if isinstance(stage, Refine):
        return stage
    return (
        Postprocessed(stage) if isinstance(stage, BaseNodePostprocessor) else FunctionStage(stage)
    )


_HITS_ALONE: Final = 1
_QUERY_AND_HITS: Final = 2
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def is_function(part: object) -> TypeGuard[Callable[..., object]]:
    """Return whether a part is a function, and not a class or a callable LlamaIndex component."""
    return callable(part) and not isinstance(part, type | BaseComponent)


@dataclass(frozen=True, slots=True, repr=False)
class FunctionStage(Refine):
    """Refinement by a function of the query and the hits, or of the hits alone."""

    function: Callable[..., Sequence[NodeWithScore]]
    _arguments: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if inspect.iscoroutinefunction(self.function):
            raise CompositionError(
                f"{self!r} is an async function; write it as a plain one, or as a Refine with "
                "refine_plan, which yields its calls"
            )
        object.__setattr__(self, "_arguments", _count_arguments(self.function))

    def refine(self, query: Query, hits: Sequence[Hit]) -> Sequence[NodeWithScore]:
        """Return the result of the function."""
        if self._arguments == _HITS_ALONE:
            return self.function(hits)
        return self.function(query, hits)

    def __repr__(self) -> str:
        return function_name(self.function)


def _count_arguments(function: Callable[..., Any]) -> int:
    """Return the number of arguments to call the function with, 1 or 2."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return _HITS_ALONE
    required = [
        parameter for parameter in parameters if parameter.default is inspect.Parameter.empty
    ]
    kinds = [parameter.kind for parameter in required]
    n_positional = sum(kind in _POSITIONAL for kind in kinds)
    takes_any = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    if takes_any and not n_positional:
        return _QUERY_AND_HITS
    has_named = inspect.Parameter.KEYWORD_ONLY in kinds
    if has_named or n_positional not in {_HITS_ALONE, _QUERY_AND_HITS}:
        raise CompositionError(
            f"the function {function_name(function)}{inspect.signature(function)} cannot be a "
            "stage; a function behind a retriever takes (query, hits) or (hits)"
        )
    return n_positional
