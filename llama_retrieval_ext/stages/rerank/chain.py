"""Rerankers that stand in for each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.pipeline.postprocessor import Postprocessed
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import in_order
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.stages.rerank.models import ModelRerank, Ranker
from llama_retrieval_ext.stages.rerank.reranker import attempted, check_timeout

AnyReranker: TypeAlias = Refine | BaseNodePostprocessor | Ranker


def as_reranker(part: AnyReranker) -> Refine:
    """A stage as it is; a LlamaIndex postprocessor or a ranker of ``rerankers`` as a stage."""
    if isinstance(part, Refine):
        return part
    if isinstance(part, BaseNodePostprocessor):
        return Postprocessed(part)
    if isinstance(part, Ranker) and not isinstance(part, type):
        return ModelRerank(part)
    raise ConfigurationError(
        "a reranker is a stage such as RuleRerank(), a LlamaIndex postprocessor, or a model with "
        f"rank(query, docs, doc_ids); got {part!r}"
    )


@dataclass(frozen=True, slots=True, init=False, repr=False)
class RerankChain(Refine):
    """The ranking of the first reranker that works; of none, the ranking as it came.

    One that fails, is late or returns nothing marks the answer degraded, and the next is tried. A
    stage that only leaves hits out, such as `Threshold`, may return nothing. Each may take its
    part of the query's remaining time: half with one to follow, a third with two, so that those
    behind are reached.

    Args:
        rerankers: In the order in which they are tried; at least one. Stages, LlamaIndex
            postprocessors, or models of the package ``rerankers``.
        timeout_s: Seconds that each may take; None for as long as the query may.

    Raises:
        ConfigurationError: There is none, one is no reranker, or ``timeout_s`` is out of range.

    The order that a reranker gives is kept: where its scores are not in line with it, as when it
    only reorders, they are raised to those behind. Hits that it adds are left out.

    Examples:
        >>> from llama_retrieval_ext.stages.rerank.rules import RuleRerank
        >>> RerankChain(RuleRerank(), timeout_s=2.0)
        RerankChain(RuleRerank(), timeout_s=2.0)

    """

    rerankers: tuple[Refine, ...]
    timeout_s: float | None

    def __init__(self, *rerankers: AnyReranker, timeout_s: float | None = None) -> None:
        if not rerankers:
            raise ConfigurationError("RerankChain() needs at least one reranker")
        check_timeout(timeout_s)
        object.__setattr__(self, "rerankers", tuple(map(as_reranker, rerankers)))
        object.__setattr__(self, "timeout_s", timeout_s)

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        """The plan for the first ranking that can be had."""
        known = {hit.node.node_id for hit in hits}
        for index, stage in enumerate(self.rerankers if hits else ()):
            share = 1.0 / (len(self.rerankers) - index)
            ranking = yield from attempted(
                stage, query, hits, timeout_s=self.timeout_s, share=share
            )
            if ranking is not None:
                return in_order([hit for hit in ranking if hit.node.node_id in known])
        return list(hits)
