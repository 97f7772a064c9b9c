"""Reranking by another embedding model."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from llama_index.core.base.embeddings.base import BaseEmbedding

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.execution.embedding import embed
from llama_retrieval_ext.query import Query, check_top_k
from llama_retrieval_ext.ranking import Hit, origin_of
from llama_retrieval_ext.stages.llm.told import told
from llama_retrieval_ext.stages.refining.cosine import cosines, matrix
from llama_retrieval_ext.stages.refining.stored_embeddings import origin_embeddings, text_embeddings
from llama_retrieval_ext.stages.reranking.reranker import Reranker, check_timeout
from llama_retrieval_ext.stages.reranking.rescored import reranked
from llama_retrieval_ext.stages.reranking.score_kind import ScoreKind


@dataclass(frozen=True, slots=True, repr=False)
class EmbeddingRerank(Reranker):
    """Hits by the cosine of their text's embedding with the query's, both by this model.

    Gives hits of different retrievers scores that can be compared. Texts are embedded anew, in one
    batch: stored embeddings may be of another model. Those in the store of a retriever of this
    package that has the very same model are looked up instead. When the model fails, the order
    stays as it was and the answer is marked degraded.

    Args:
        embed_model: The embedding model.
        top_k: How many hits to keep, at least 1; None for all.
        timeout_s: Seconds it may take; None for as long as the query may.

    Raises:
        ConfigurationError: There is no model, or a number is out of range.

    Scores are cosines, in ``[-1, 1]``; ties go by node id.
    """

    embed_model: BaseEmbedding
    _: KW_ONLY
    top_k: int | None = None
    timeout_s: float | None = None
    score_kind: ScoreKind = field(default=ScoreKind.UNKNOWN, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.embed_model, BaseEmbedding):
            raise ConfigurationError(f"pass a LlamaIndex embedding model, got {self.embed_model!r}")
        if self.top_k is not None:
            check_top_k(self.top_k)
        check_timeout(self.timeout_s)

    def rerank_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit] | None]:
        """The plan for the hits by cosine."""
        # An embedding that the query came with is of the retriever's model.
        question = yield from embed(replace(query, embedding=None), self.embed_model)
        vectors = yield from origin_embeddings(_of_model(hits, self.embed_model), self.embed_model)
        missing = [hit for hit in hits if hit.node.node_id not in vectors]
        if missing:
            vectors.update((yield from text_embeddings(missing, self.embed_model)))
        texts = [vectors[hit.node.node_id] for hit in hits]
        scores: list[float] = yield Call(
            lambda: cosines(matrix(texts, dim=len(question)), question).tolist()
        )
        best = sorted(range(len(hits)), key=lambda place: (-scores[place], hits[place].node_id))
        picks = [(place, scores[place]) for place in best[: self.top_k]]
        return reranked(hits, picks, by="EmbeddingRerank", ceiling=1.0)

    def __repr__(self) -> str:
        return told(self)


def _of_model(hits: Sequence[Hit], model: BaseEmbedding) -> list[Hit]:
    """The hits from stores that are known to have embeddings of this model."""
    origins = [(hit, origin_of(hit)) for hit in hits]
    return [hit for hit, origin in origins if origin is not None and origin.embed_model is model]
