"""A retriever with what happens before and behind it."""

from collections.abc import Sequence
from typing import Final

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.execution.children import check_retriever, retrieval
from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.execution.steps import step
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit, as_hit
from llama_retrieval_ext.stages.algebra.ahead import ahead
from llama_retrieval_ext.stages.algebra.last_stage import check_last
from llama_retrieval_ext.stages.algebra.refine import Refine
from llama_retrieval_ext.stages.algebra.refining import refined
from llama_retrieval_ext.stages.algebra.retriever import Retriever
from llama_retrieval_ext.stages.algebra.rewrite import Rewrite
from llama_retrieval_ext.stages.algebra.rewriting import rewritten
from llama_retrieval_ext.stages.algebra.shape import expression, name_of
from llama_retrieval_ext.stages.reranking.rescored import in_order

PIPELINE: Final = "pipeline"


class Pipeline(Retriever):
    """What ``rewrite >> retriever >> refine`` gives: a retriever between its stages.

    The retriever gets the rewritten query; refining stages get the one that was asked. ``top_k`` of
    a query cuts the result at the very end: the stages before it see all that the retriever found.

    Args:
        source: The retriever inside; ours or a foreign one.
        rewrites: What happens to the query, in this order.
        refines: What happens to the ranking, in this order.
        top_k: How many hits to return when the query does not say; None for all.
        filters: Conditions on metadata that every hit satisfies.
        name: Name in traces.

    Raises:
        CompositionError: Something stands behind a stage that leaves the best-first order.
    """

    def __init__(
        self,
        source: BaseRetriever,
        *,
        rewrites: Sequence[Rewrite] = (),
        refines: Sequence[Refine] = (),
        top_k: int | None = None,
        filters: MetadataFilters | None = None,
        name: str = PIPELINE,
    ) -> None:
        super().__init__(top_k=top_k, filters=filters, name=name)
        self.source = check_retriever(source, "a pipeline's source")
        self.rewrites = tuple(rewrites)
        self.refines = tuple(refines)
        check_last([*(source.refines if isinstance(source, Pipeline) else ()), *self.refines])

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """The retriever inside."""
        return [self.source]

    @property
    def label(self) -> str:
        """The stages around the retriever."""
        return " >> ".join(repr(stage) for stage in (*self.rewrites, *self.refines)) or self.name

    @property
    def is_plain(self) -> bool:
        """Whether it is its stages and nothing else: no limit, filter, scope or name of its own."""
        own = (self.top_k, self.filters, self.scope)
        return self.name == PIPELINE and not self.requires_scope and own == (None, None, None)

    def _plan(self, query: Query) -> Plan[list[Hit]]:
        inner = yield from rewritten(self._for_children(query), self.rewrites)
        found: list[NodeWithScore] = yield from step(
            name_of(self.source), retrieval(self.source, inner), tells=True
        )
        hits = [as_hit(hit, source=name_of(self.source)) for hit in found]
        for stage in self.refines:
            hits = yield from step(repr(stage), refined(stage, query, hits))
        if any(hit.score is None for hit in hits):  # a foreign retriever need not give any
            hits = in_order(hits)
        return hits[: query.top_k]

    def ahead(self, queries: Sequence[Query]) -> Plan[None]:
        """What the retriever is sure to need, of queries that reach it as they are."""
        if not self.rewrites:
            children = [self._for_children(query) for query in self._answerable(queries)]
            yield from ahead(self.source, children)

    def _expression(self) -> str:
        return " >> ".join(map(expression, (*self.rewrites, self.source, *self.refines)))
