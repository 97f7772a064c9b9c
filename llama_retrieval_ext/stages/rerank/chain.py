"""A chain of rerankers, tried in order until one works."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.parameters import TimeLimit
from llama_retrieval_ext.pipeline.postprocessor import Postprocessed
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import in_order
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.stages.rerank.models import ModelRerank, ObjectRerank, Ranker, RerankMethod
from llama_retrieval_ext.stages.rerank.reranker import attempted

AnyReranker: TypeAlias = Refine | BaseNodePostprocessor | Ranker | RerankMethod


def as_reranker(part: AnyReranker) -> Refine:
    """Return a stage unchanged, or wrap a postprocessor, a model or another reranker."""
    if isinstance(part, Refine):
        return part
    if isinstance(part, BaseNodePostprocessor):
        return Postprocessed(part)
    if isinstance(part, Ranker) and not isinstance(part, type):
        return ModelRerank(part)
    if isinstance(part, RerankMethod) and not isinstance(part, type):
        return ObjectRerank(part)
    raise ConfigurationError(
        "a reranker is a stage such as RuleRerank(), a LlamaIndex postprocessor, or an object with "
        f"rank(query, docs, doc_ids) or rerank(query, nodes); got {part!r}"
    )


@dataclass(frozen=True, slots=True, init=False, repr=False)
class RerankChain(Refine):
    """Ranking of the first reranker that works; the input ranking if none does.

    If a reranker fails, times out or returns nothing, the answer is marked degraded and the next
    one is tried. A stage that only removes hits, such as `Threshold`, may return nothing. Each
    reranker gets an equal part of the query's remaining time: half if one more follows, a third if
    two follow.

    Args:
        rerankers: The rerankers, in the order they are tried; at least one. Stages, LlamaIndex
            postprocessors, models of the package ``rerankers``, or objects with
            ``rerank(query, nodes)``.
        timeout_s: Time limit in seconds for each; None for the time of the query.

    Raises:
        ConfigurationError: There is no reranker, one is invalid, or ``timeout_s`` is out of range.

    The order of a reranker is kept. If its scores contradict that order, for example because it
    only reorders, a score is raised to those of lower hits. Hits that it adds are removed.

    Examples:
        >>> from llama_retrieval_ext.stages.rerank.rules import RuleRerank
        >>> RerankChain(RuleRerank(), timeout_s=2.0)
        RerankChain(RuleRerank(), timeout_s=2.0)

    """

    rerankers: tuple[Refine, ...]
    timeout_s: TimeLimit

    def __init__(self, *rerankers: AnyReranker, timeout_s: TimeLimit = None) -> None:
        if not rerankers:
            raise ConfigurationError("RerankChain() needs at least one reranker")
        object.__setattr__(self, "rerankers", tuple(map(as_reranker, rerankers)))
        object.__setattr__(self, "timeout_s", timeout_s)

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        """Return the plan for the ranking of the first reranker that works."""
        ids = {hit.node.node_id for hit in hits}
        for index, stage in enumerate(self.rerankers if hits else ()):
            share = 1.0 / (len(self.rerankers) - index)
            ranking = yield from attempted(
                stage, query, hits, timeout_s=self.timeout_s, share=share
            )
            if ranking is not None:
                return in_order([hit for hit in ranking if hit.node.node_id in ids])
        return list(hits)
