"""Min-max scores and BM25 in memory, for `bm25` and `llama_bm25` of the registry."""

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import ClassVar, Final

from llama_retrieval_ext.checks import check_count, check_seconds, of_type
from llama_retrieval_ext.execution.context import note_degraded
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.retrieval import hits_of
from llama_retrieval_ext.formulas.normalisation import min_max
from llama_retrieval_ext.ingest.knowledge_base import KnowledgeBase
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import Query, Scope, check_top_k
from llama_retrieval_ext.reordering import with_score
from llama_retrieval_ext.results import Hit, score_of
from llama_retrieval_ext.retrievers.bm25.retriever import BM25Retriever


@dataclass(frozen=True, slots=True, repr=False)
class MinMaxScores(Refine):
    """Refinement that scales scores to ``[0, 1]`` by min-max; equal scores above 0 become 1.

    The last hit gets 0. The new scores depend on ``top_k`` and are not comparable across queries.

    Raises:
        ScoreError: During a query: a hit has no score, or one that is not finite.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> found = FakeRetriever([("a", 9.0), ("b", 6.0), ("c", 5.0)])
        >>> [hit.score for hit in (found >> MinMaxScores()).retrieve("leave")]
        [1.0, 0.25, 0.0]

    """

    fast: ClassVar[bool] = True

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits with their new scores."""
        answer = hits[: query.top_k]
        scores = {hit.node.node_id: score_of(hit) for hit in answer}
        if len(set(scores.values())) == 1:
            level = 1.0 if next(iter(scores.values())) > 0 else 0.0
            scores = dict.fromkeys(scores, level)
        else:
            scores = min_max(scores)
        return [with_score(hit, scores[hit.node.node_id], hit.contributions) for hit in answer]


# Number of cached scopes; the least recently used are dropped.
_MOST_SCOPES: Final = 32


@dataclass(slots=True)
class _Kept:
    """Index of a scope, with its read time and the number of omitted nodes."""

    lock: Lock = field(default_factory=Lock)
    retriever: BM25Retriever | None = None
    read_at: float = 0.0
    left_out: int = 0


class KeptBM25Retriever(Retriever):
    """BM25 in memory over the nodes of a scope; old nodes are read again.

    Term statistics are those of the scope. It is thread-safe: the first query of a scope reads the
    nodes, and concurrent queries wait for it.

    Args:
        kb: The knowledge base.
        top_k: How many hits to return when the query does not say; at least 1.
        max_chunks: Maximum number of nodes searched in a scope, the first by id. If there are
            more, the answer is marked degraded.
        cache_ttl: Seconds after which the nodes are read again.
        name: Name in traces and ``Hit.source``.

    Raises:
        ConfigurationError: A number is out of range, or ``kb`` is not a knowledge base.

    Examples:
        >>> from llama_index.core import Document, MockEmbedding
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     _ = kb.add([Document(text="Annual leave: 25 days."), Document(text="Lunch")])
        ...     print([hit.text for hit in KeptBM25Retriever(kb).retrieve("annual leave")])
        ['Annual leave: 25 days.']

    """

    def __init__(
        self,
        kb: KnowledgeBase,
        *,
        top_k: int = 5,
        max_chunks: int = 5000,
        cache_ttl: float = 60,
        name: str = "llama_bm25",
    ) -> None:
        super().__init__(top_k=check_top_k(top_k), name=name)
        self.kb = of_type(kb, KnowledgeBase, "kb")
        self.max_chunks = check_count(max_chunks, "max_chunks")
        self.cache_ttl = check_seconds(cache_ttl, "cache_ttl")
        self.requires_scope = kb.require_scope
        self._kept: OrderedDict[Scope | None, _Kept] = OrderedDict()
        self._lock = Lock()

    def _plan(self, query: Query) -> Plan[list[Hit]]:
        kept = yield Call(lambda: self._current(query.scope))
        if kept.left_out:
            note_degraded(
                self.name,
                f"only {self.max_chunks} nodes are searched, {kept.left_out} are left out",
            )
        child = query.for_child(top_k=query.top_k)
        hits = yield from hits_of(kept.retriever, child, source=self.name)
        return hits[: query.top_k]

    def _current(self, scope: Scope | None) -> _Kept:
        with self._lock:
            kept = self._kept.setdefault(scope, _Kept())
            self._kept.move_to_end(scope)
            while len(self._kept) > _MOST_SCOPES:
                self._kept.popitem(last=False)
        with kept.lock:
            is_old = time.monotonic() - kept.read_at >= self.cache_ttl
            if kept.retriever is None or is_old:
                nodes = self.kb.nodes(scope=scope, limit=self.max_chunks)
                kept.retriever = BM25Retriever(nodes, top_k=self.top_k or 1, name=self.name)
                kept.left_out = max(0, self.kb.count(scope=scope) - len(nodes))
                kept.read_at = time.monotonic()
        return kept
