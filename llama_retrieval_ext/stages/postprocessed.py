"""A LlamaIndex postprocessor as a stage."""

from collections.abc import Sequence
from dataclasses import dataclass

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit, as_hit
from llama_retrieval_ext.stages.refine import Refine


@dataclass(frozen=True, slots=True)
class Postprocessed(Refine):
    """Any LlamaIndex postprocessor: rerankers, filters, metadata replacement, ...

    It gets hits of its own, because postprocessors change scores in place. Its order is kept.

    Args:
        postprocessor: The postprocessor.
    """

    postprocessor: BaseNodePostprocessor

    def refine(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        """The plan for what the postprocessor makes of the hits."""
        given: list[NodeWithScore] = [as_hit(hit) for hit in hits]
        worker = self.postprocessor
        is_async = (
            type(worker)._apostprocess_nodes is not BaseNodePostprocessor._apostprocess_nodes  # noqa: SLF001
        )
        found: list[NodeWithScore] = yield Call(
            lambda: worker.postprocess_nodes(given, query),
            (lambda: worker.apostprocess_nodes(given, query)) if is_async else None,
        )
        sources = {hit.node.node_id: hit.source for hit in hits}
        return [as_hit(hit, source=sources.get(hit.node.node_id, "")) for hit in found]

    def __repr__(self) -> str:
        return f"{type(self.postprocessor).__name__}()"
