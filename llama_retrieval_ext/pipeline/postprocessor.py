"""A LlamaIndex postprocessor as a stage."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TypeAlias

from llama_index.core.postprocessor import LLMRerank, LongContextReorder, StructuredLLMRerank
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.arguments import call_expression, handle_expression
from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ConfigurationError, ExecutionError
from llama_retrieval_ext.execution.context import note_degraded
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.retrieval import visible
from llama_retrieval_ext.pipeline.stages import Refine, ranking_of
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import ScoreKind, replaced, with_score
from llama_retrieval_ext.results import Contribution, Hit, as_hit, node_ids


@dataclass(frozen=True, slots=True, repr=False)
class Postprocessed(Refine):
    """Any LlamaIndex postprocessor: rerankers, filters, metadata replacement, ...

    It gets hits, nodes and a query of its own, because postprocessors change them in place. Its
    order is kept; of a node that it returns twice the first stays. When it raises, so does the
    query: it may be a filter that must not be skipped. For a reranker that may be, use
    `RerankRetriever` or `RerankChain`.

    A postprocessor is taken for a reranker if it has LlamaIndex's setting ``top_n``, if the name of
    its class contains "Rerank", or if ``score_kind`` declares the scale of its scores. A reranker
    that returns nothing has failed: the order stays as it was and the answer is marked degraded. It
    adds nothing: nodes that were not in the ranking are left out, and the answer is marked
    degraded. Other postprocessors may return nothing, as filters do, or add nodes, as
    ``PrevNextNodePostprocessor`` does.

    Nothing can follow LlamaIndex's ``LongContextReorder``, as with ours, and it gets no more hits
    than the query asks for.

    Args:
        postprocessor: The postprocessor.
        score_kind: The scale of the scores it gives, when it is a reranker.

    A hit whose score it removes keeps the one it had; a hit that it adds without a score gets the
    lowest of those that came in. Where it gives another score, the hit's last contribution has it
    as it came. A hit that it adds from outside the query's scope or filters, which it does not
    know, is left out, and the answer marked degraded.

    Raises:
        ConfigurationError: An argument is of another type.
        ExecutionError: While a query is answered: the postprocessor returns no list of hits.
        ScoreError: While a query is answered: a score is not finite, or not of its kind.
    """

    postprocessor: BaseNodePostprocessor
    _: KW_ONLY
    score_kind: ScoreKind = ScoreKind.UNKNOWN

    def __post_init__(self) -> None:
        of_type(self.postprocessor, BaseNodePostprocessor, "postprocessor")
        of_type(self.score_kind, ScoreKind, "score_kind")

    @property
    def keeps_order(self) -> bool:
        """Whether it is not LlamaIndex's ``LongContextReorder``."""
        return not isinstance(self.postprocessor, LongContextReorder)

    @property
    def reranks(self) -> bool:
        """Whether the postprocessor is a reranker."""
        return (
            self.score_kind is not ScoreKind.UNKNOWN
            or hasattr(self.postprocessor, "top_n")
            or "rerank" in self._name.lower()
        )

    @property
    def adds(self) -> bool:
        """Whether the postprocessor may add nodes."""
        return not self.reranks

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        """The plan for what the postprocessor makes of the hits."""
        copies = [_own(hit) for hit in (hits if self.keeps_order else hits[: query.top_k])]
        child = query.for_child(top_k=query.top_k)
        worker = strict(self.postprocessor)
        is_async = (
            type(worker)._apostprocess_nodes is not BaseNodePostprocessor._apostprocess_nodes  # noqa: SLF001
        )
        answer: list[NodeWithScore] = yield Call(
            lambda: worker.postprocess_nodes(copies, child),
            (lambda: worker.apostprocess_nodes(copies, child)) if is_async else None,
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
            allowed.remove(hit.node.node_id)  # a node that comes again repeats a better one
            if hit.node.node_id in before:
                refined.append(self._known(hit, rank, *before[hit.node.node_id]))
            else:
                score = self._score(hit, lowest)
                refined.append(with_score(as_hit(hit, source=self._name), score, ()))
        return refined

    def _added(self, added: list[NodeWithScore], query: Query) -> list[NodeWithScore]:
        """Those of the added hits that may stay; what is dropped degrades the answer."""
        if not self.reranks:
            return visible(added, query, self._name)
        if added:
            note_degraded(
                self._name,
                f"it returned {len(added)} nodes that were not in the ranking; they were dropped",
            )
        return []

    def _known(self, hit: NodeWithScore, rank: int, rank_before: int, before: Hit) -> Hit:
        # Everything but node and score is that of the hit before: rerankers make plain hits anew.
        same = before.model_copy(update={"node": hit.node})
        if hit.score is None or (
            hit.score == before.score and self.score_kind is ScoreKind.UNKNOWN
        ):
            return same
        score = self.score_kind.calibrated(hit.score)
        own = Contribution(self._name, rank, hit.score, 1.0, score)
        return with_score(same, score, (*replaced(before, rank_before), own))

    def _score(self, hit: NodeWithScore, lowest: float | None) -> float | None:
        return lowest if hit.score is None else self.score_kind.calibrated(hit.score)

    @property
    def _name(self) -> str:
        return type(self.postprocessor).__name__

    def __repr__(self) -> str:
        if self.score_kind is ScoreKind.UNKNOWN:  # it is written without the stage around it
            return handle_expression(self.postprocessor)
        return call_expression(self)


def _own(hit: Hit) -> NodeWithScore:
    # Copies as deep as postprocessors reach: the text and the metadata of a node are replaced or
    # added to, what is inside its metadata is not.
    node = hit.node.model_copy(update={"metadata": dict(hit.node.metadata)})
    return hit.model_copy(update={"node": node})


# The numbers of the documents, from 1, and their relevances.
ParsedAnswer: TypeAlias = tuple[list[int], list[float] | None]


def strict(postprocessor: BaseNodePostprocessor) -> BaseNodePostprocessor:
    """The same postprocessor; of a reranker by LLM a copy that follows valid numbers alone.

    LlamaIndex takes document 0 of an answer for the last one of the batch, and fails on numbers
    that are further off. A number that is repeated counts once, with its first relevance.
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
        known = relevances or [1.0] * len(numbers)
        kept: dict[int, float] = {}
        for number, relevance in zip(numbers, known, strict=False):
            if 1 <= int(number) <= documents:
                kept.setdefault(int(number), relevance)
        return list(kept), list(kept.values())

    return parsed
