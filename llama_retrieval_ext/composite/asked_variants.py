"""One retriever, asked the query in several wordings."""

from collections.abc import Sequence

from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.execution.details import note_details
from llama_retrieval_ext.execution.frame import current_frame
from llama_retrieval_ext.execution.legs import Answers, Ask
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import as_hit
from llama_retrieval_ext.stages.algebra.fused import Fused


class AskedVariants(Fused):
    """What ``fan_out >> retriever >> RRF()`` gives, and in its result what each wording found.

    The result's details have ``retrieval_details``, a list of ``query``, ``hits_count`` and
    ``hits`` in the order of the queries. Takes the arguments of `Fused`; there is one leg.
    """

    def _note(self, asks: Sequence[Ask], answers: Answers) -> None:
        found = [answer or [] for answer in answers]
        note_retrievals([each.query for each in asks], found, source=self.legs[0].name)


def note_retrievals(
    queries: Sequence[Query], rankings: Sequence[Sequence[NodeWithScore]], *, source: str
) -> None:
    """Put what each query found into the result's details, where a result is made."""
    frame = current_frame()
    if frame is None or frame.trace is None:
        return
    note_details(
        retrieval_details=[
            {
                "query": query.query_str,
                "hits_count": len(ranking),
                "hits": [as_hit(hit, source=source).to_dict() for hit in ranking],
            }
            for query, ranking in zip(queries, rankings, strict=True)
        ]
    )
