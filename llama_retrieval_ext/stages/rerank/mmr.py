"""Diversity: hits that are relevant and do not repeat each other."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from llama_index.core.base.embeddings.base import BaseEmbedding

from llama_retrieval_ext.errors import ConfigurationError, ExecutionError
from llama_retrieval_ext.execution.context import current_context
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.retrieval import embed
from llama_retrieval_ext.formulas.cosine import Vector, cosines, matrix
from llama_retrieval_ext.formulas.mmr import maximal_marginal_relevance
from llama_retrieval_ext.formulas.normalisation import min_max
from llama_retrieval_ext.parameters import Count, Share, TimeLimit
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import ScoreKind, reranked
from llama_retrieval_ext.results import Hit, relevance_of
from llama_retrieval_ext.stages.hit_embeddings import (
    EmbeddingSource,
    origin_model,
    stored_embeddings,
    text_embeddings,
)
from llama_retrieval_ext.stages.rerank.reranker import Reranker


@dataclass(frozen=True, slots=True, repr=False)
class MMR(Reranker):
    """Maximal marginal relevance over hits of any retriever.

    Each pick has the best balance of relevance and difference from earlier picks. Relevance is the
    score of the last stage that reranked or rescored the hits, min-max normalised over them, or
    their rank if that stage only reordered them. Without such a stage after the retriever or the
    fusion, it is the cosine of a hit with the query. If embeddings are not available, the order is
    unchanged and the answer is marked degraded.

    Args:
        lambda_mult: 1 is relevance alone, 0 is diversity alone; 0.5 weights them equally.
        top_k: Number of picks, at least 1; None for all, which takes quadratic time: set it for
            more than a few hundred hits.
        embed_model: The model of the stored embeddings. Embeds the query, and the text of hits
            without a stored embedding. Not needed if queries and hits carry their embeddings, or if
            the hits come from retrievers with a known model: those of this package over a store,
            and LlamaIndex's vector retriever.
        store: Source of embeddings that the nodes do not carry: a LlamaIndex vector store, or a
            function from node ids to a mapping of embeddings. Not needed for hits of the
            retrievers above: their stores are queried, with one request each.
        timeout_s: Time limit in seconds; None for the remaining time of the query.

    Raises:
        ConfigurationError: ``lambda_mult``, ``top_k`` or ``timeout_s`` is out of range. During a
            query: there is no source of embeddings.
        DimensionMismatchError: During a query: the embeddings are of different models.

    The score is ``(1 + marginal) / 2``, in ``[0, 1]``, where the marginal relevance is lambda times
    relevance, minus the penalty for repetition. If the first pick scores below the second, which is
    possible with opposed embeddings, its score is raised to that of the second, so scores never
    increase. The last contribution of a hit has the original value.

    Source:
        `llama_retrieval_ext.formulas.mmr`.

    Examples:
        >>> MMR(0.7, top_k=10)
        MMR(lambda_mult=0.7, top_k=10)

    """

    lambda_mult: Share = 0.5
    _: KW_ONLY
    top_k: Count | None = None
    embed_model: BaseEmbedding | None = None
    store: EmbeddingSource | None = None
    timeout_s: TimeLimit = None
    score_kind: ScoreKind = field(default="unknown", init=False, repr=False)

    def rerank_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit] | None]:
        """Return the plan for the picks."""
        embedding, vectors = yield from self.vectors_plan(query, hits)
        picks: list[tuple[int, float]] = yield Call(lambda: self._picks(embedding, vectors, hits))
        return reranked(hits, picks, by="MMR", ceiling=1.0)

    def vectors_plan(
        self, query: Query, hits: Sequence[Hit]
    ) -> Plan[tuple[list[float], list[Vector]]]:
        """Return the plan for the embeddings of the query and of the hits, in their order.

        Args:
            query: The query; may carry its embedding.
            hits: The hits; their nodes may carry embeddings.

        Raises:
            ConfigurationError: There is no source of embeddings.
        """
        carried = [hit.node.embedding for hit in hits]
        bare = [hit for hit, vector in zip(hits, carried, strict=True) if vector is None]
        stored = yield from stored_embeddings(bare, self.store, self.embed_model)
        # An embedding given with the query is from the model of the stored ones.
        is_stored = bool(stored) or len(bare) < len(hits)
        missing = [hit for hit in bare if hit.node.node_id not in stored]
        if missing:
            stored.update((yield from text_embeddings(missing, self._model(missing[0]))))
        question = query if is_stored else replace(query, embedding=None)
        embedding = yield from self._query_embedding(question, hits)
        vectors = [
            stored[hit.node.node_id] if vector is None else vector
            for hit, vector in zip(hits, carried, strict=True)
        ]
        return embedding, vectors

    def _picks(
        self, question: Vector, vectors: Sequence[Vector], hits: Sequence[Hit]
    ) -> list[tuple[int, float]]:
        rows = matrix(vectors, dim=len(question))
        picks = maximal_marginal_relevance(
            _relevance(hits) or cosines(rows, question),
            rows,
            top_k=self.top_k or len(rows),
            lambda_mult=self.lambda_mult,
        )
        return [(place, min(max((1 + marginal) / 2, 0.0), 1.0)) for place, marginal in picks]

    def _query_embedding(self, query: Query, hits: Sequence[Hit]) -> Plan[list[float]]:
        if query.embedding is not None:
            return query.embedding
        model = self.embed_model or origin_model(hits)
        if model is None:
            raise _unknown(
                "MMR has no embedding of the query; pass embed_model= with the model that the "
                "nodes were embedded with, or queries that carry their embedding"
            )
        return (yield from embed(query, model))

    def _model(self, hit: Hit) -> BaseEmbedding:
        if self.embed_model is None:
            raise _unknown(
                f"MMR has no embedding of node {hit.node.node_id!r}; pass store= where it can be "
                "looked up, or embed_model= to embed its text"
            )
        return self.embed_model


def _relevance(hits: Sequence[Hit]) -> list[float]:
    """Return the relevance of the hits to the stage that reranked them; empty without one."""
    judged = {hit.node.node_id: score for hit in hits if (score := relevance_of(hit)) is not None}
    scores = min_max(judged)
    # A later stage may have added hits, which the reranker did not judge.
    return [scores.get(hit.node.node_id, 0.0) for hit in hits] if scores else []


def _unknown(message: str) -> Exception:
    """Return a configuration error, or an execution error if a failed leg may be the cause."""
    has_failed = bool(current_context().session.degraded)
    return ExecutionError(message) if has_failed else ConfigurationError(message)
