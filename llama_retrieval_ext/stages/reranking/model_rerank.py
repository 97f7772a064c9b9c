"""Rerankers of the package ``rerankers``, and whatever else has their one method."""

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol, runtime_checkable

from llama_index.core.schema import MetadataMode

from llama_retrieval_ext.arguments import of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.query import Query, check_top_k
from llama_retrieval_ext.ranking import Hit
from llama_retrieval_ext.stages.llm.told import told
from llama_retrieval_ext.stages.reranking.reranker import Reranker, check_timeout
from llama_retrieval_ext.stages.reranking.rescored import reranked
from llama_retrieval_ext.stages.reranking.score_kind import ScoreKind


class RankedDocument(Protocol):
    """What a ranker says of a document; it has a score, or else a rank from 1."""

    @property
    def doc_id(self) -> Any: ...  # noqa: ANN401, D102 - a number or a string, as it was given
    @property
    def score(self) -> float | None: ...  # noqa: D102
    @property
    def rank(self) -> int | None: ...  # noqa: D102


@runtime_checkable
class Ranker(Protocol):
    """A model with the method of the package ``rerankers``."""

    def rank(self, query: str, docs: list[str], doc_ids: list[int]) -> Iterable[RankedDocument]:
        """What it makes of the documents, in any order; some may be missing."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class ModelRerank(Reranker):
    """Hits as a reranker of the package ``rerankers`` orders them: ``Reranker("cross-encoder")``.

    The package itself is not needed: anything with its ``rank(query, docs, doc_ids)`` does. Without
    scores its ranks count, and a hit's score is the reciprocal of its rank. What it leaves out is
    left out. When it fails, the order stays as it was and the answer is marked degraded.

    Args:
        ranker: The reranker.
        score_kind: The scale of its scores; for most cross-encoders `ScoreKind.LOGIT`.
        top_k: How many hits to keep, at least 1; None for all.
        timeout_s: Seconds it may take; None for as long as the query may.

    Raises:
        ConfigurationError: The reranker has no such method, or a number is out of range.
    """

    ranker: Ranker
    _: KW_ONLY
    score_kind: ScoreKind = ScoreKind.UNKNOWN
    top_k: int | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.ranker, Ranker):
            raise ConfigurationError(
                f"a ranker has a method rank(query, docs, doc_ids), got {self.ranker!r}"
            )
        of_type(self.score_kind, ScoreKind, "score_kind")
        if self.top_k is not None:
            check_top_k(self.top_k)
        check_timeout(self.timeout_s)

    def rerank_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit] | None]:
        """The plan for the hits by what the model says."""
        texts = [hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in hits]
        places = list(range(len(hits)))
        # list: some rankers are generators, whose work must be done inside the call.
        said: list[RankedDocument] = yield Call(
            lambda: list(self.ranker.rank(query.query_str, texts, places))
        )
        scores: dict[int, float] = {}
        for document in said:
            if document.doc_id in range(len(hits)):
                scores.setdefault(document.doc_id, self._score(document))
        best = sorted(scores, key=lambda place: (-scores[place], hits[place].node_id))
        picks = [(place, scores[place]) for place in best[: self.top_k]]
        return reranked(hits, picks, by=type(self.ranker).__name__)

    def _score(self, document: RankedDocument) -> float:
        if document.score is None:
            return 1.0 / max(document.rank or 1, 1)
        return self.score_kind.calibrated(float(document.score))

    def __repr__(self) -> str:
        return told(self)
