"""Definitions of the searches of one store: ``vector``, ``keyword``, ``hybrid`` and others."""
# Imported by the first search of a process, so without what is slow to import, such as bm25s.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext.config.embedding import EmbeddingConfig
from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.embeddings.resolve import languages_of, vector_share_of
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.normalisation import min_max
from llama_retrieval_ext.hits import score_of
from llama_retrieval_ext.parameters import Count, FieldWeights, Share, Weight
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.pipeline.pipeline import Pipeline
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import with_score
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.hybrid import CANDIDATES, HybridRetriever
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stages.selection import Collapse


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
        scores = min_max({hit.node.node_id: score_of(hit) for hit in answer})
        return [with_score(hit, scores[hit.node.node_id], hit.contributions) for hit in answer]


def vector(
    parts: RegistryParts, *, collapse: Collapse | None = None, top_k: Count = 10
) -> BaseRetriever:
    """Return hits by meaning, with the scores of the engine."""
    backend, model = parts.need_backend("vector"), parts.model("vector")
    return VectorRetriever(backend, embed_model=model, collapse=collapse, top_k=top_k)


def keyword(
    parts: RegistryParts,
    *,
    collapse: Collapse | None = None,
    fields: FieldWeights | None = None,
    top_k: Count = 10,
) -> BaseRetriever:
    """Return hits by words, with the BM25 scores of the engine.

    ``fields`` are the searched fields with weights; without them those of the schema.
    """
    backend = parts.need_backend("keyword")
    retriever = KeywordRetriever(backend, collapse=collapse, fields=fields, top_k=top_k)
    retriever.embed_model = parts.embed_model  # for later stages, such as MMR
    return retriever


def dense(
    parts: RegistryParts, *, embedding_config: EmbeddingConfig | None = None, top_k: Count = 10
) -> BaseRetriever:
    """Return hits by meaning, like ``vector``."""
    backend, model = parts.need_backend("dense"), parts.model("dense", embedding_config)
    return VectorRetriever(backend, embed_model=model, top_k=top_k, name="dense")


def bm25(
    parts: RegistryParts, *, fields: FieldWeights | None = None, top_k: Count = 10
) -> BaseRetriever:
    """Return hits by words, like ``keyword``; scores are min-max normalised over the answer."""
    backend = parts.need_backend("bm25")
    retriever = KeywordRetriever(backend, top_k=top_k, fields=fields, name="bm25")
    retriever.embed_model = parts.embed_model  # for later stages, such as MMR
    return Pipeline(retriever, refines=[MinMaxScores()], top_k=top_k, name="bm25")


def hybrid(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    dense_weight: Weight = 0.7,
    sparse_weight: Weight = 0.3,
    alpha: Share | None = None,
    fusion: Fusion | None = None,
    candidates: Count = CANDIDATES,
    pushdown: bool = False,
    collapse: Collapse | None = None,
    fields: FieldWeights | None = None,
    embedding_config: EmbeddingConfig | None = None,
    top_k: Count = 10,
) -> BaseRetriever:
    """Return hits by meaning and words, in one request if the engine supports it.

    ``alpha`` is the share of ``dense_weight`` in both. A ``fusion`` with weights keeps its own.
    Weights that nobody gave count less for vectors in a script unknown to the embedding model.
    """
    has_own = fusion is not None and fusion.weights is not None
    if alpha is None and not has_own:
        is_given = not {"dense_weight", "sparse_weight"}.isdisjoint(parts.given)
        if is_given or parts.vector_share is None:
            if dense_weight + sparse_weight <= 0:
                raise ConfigurationError("one of dense_weight and sparse_weight must be above 0")
            alpha = dense_weight / (dense_weight + sparse_weight)
        elif fusion is None and parts.vector_share != vector_share_of(parts.embed_model):
            alpha = parts.vector_share
    model = parts.model("hybrid", embedding_config)
    languages = parts.languages_unless("dense_weight", "sparse_weight", "alpha")
    implied = languages_of(model) if alpha is None else ()  # by the retriever itself
    return HybridRetriever(
        parts.need_backend("hybrid"),
        embed_model=model,
        languages=None if has_own or languages == implied else languages,
        top_k=top_k,
        fusion=fusion,
        alpha=alpha,
        candidates=candidates,
        pushdown=pushdown,
        collapse=collapse,
        fields=fields,
    )
