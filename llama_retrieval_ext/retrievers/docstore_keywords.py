"""Keyword search for a store without it: BM25 in memory over the docstore beside the store."""

from threading import Lock
from typing import TYPE_CHECKING, Final

from llama_retrieval_ext.execution.context import step
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.stores.open import StoredTexts

if TYPE_CHECKING:
    from llama_retrieval_ext.retrievers.bm25.retriever import BM25Retriever

_STEP: Final = "BM25 in memory, over the docstore"
# Seconds for which a query may miss a change of the docstore.
_CACHE_TTL_S: Final = 60.0
# Few nodes of a docstore are missing in its vector store.
_GROWTH: Final = 4


class DocstoreKeywords:
    """BM25 over the texts of a docstore; the first query indexes them, later ones follow changes.

    Args:
        texts: The docstore, and the nodes that its vector store has.
        name: Name of the retriever, in ``Hit.source``.
    """

    def __init__(self, texts: StoredTexts, *, name: str) -> None:
        self._texts = texts
        self._name = name
        self._bm25: BM25Retriever | None = None
        self._lock = Lock()

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Return the plan for the hits of a query, without nodes that the vector store lacks."""
        bm25 = yield Call(self._indexed)
        top_k = depth = query.top_k or 1
        while True:
            found = yield from step(_STEP, bm25.plan(query.but(top_k=depth)))
            kept = [hit for hit in found if self._texts.has(hit.node.node_id)]
            if len(kept) >= top_k or len(found) < depth:
                return kept[:top_k]
            depth *= _GROWTH

    def _indexed(self) -> "BM25Retriever":
        with self._lock:
            if self._bm25 is None:
                # Most stores have keyword search and do not need the module.
                from llama_retrieval_ext.retrievers.bm25.retriever import BM25Retriever  # noqa: PLC0415

                self._bm25 = BM25Retriever.from_docstore(
                    self._texts.docstore, cache_ttl_s=_CACHE_TTL_S, name=self._name
                )
            return self._bm25
