"""Searches of a store, for the LlamaIndex class and for the backend alike."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from llama_retrieval_ext.stores.backend import Found, Sought
from llama_retrieval_ext.stores.fused_here import fused_here
from llama_retrieval_ext.stores.milvus.collection import Collection
from llama_retrieval_ext.stores.milvus.conditions import Expression
from llama_retrieval_ext.stores.milvus.fusing import ranker_of
from llama_retrieval_ext.stores.milvus.params import GROUPING
from llama_retrieval_ext.stores.milvus.questions import (
    Fused,
    Question,
    fused_ranking,
    groups,
    ranking,
    rankings,
)
from llama_retrieval_ext.stores.milvus.schema import BM25, DENSE, METRICS
from llama_retrieval_ext.stores.milvus.terms import query_terms
from llama_retrieval_ext.stores.native_fusion import FusedSearch
from llama_retrieval_ext.stores.nodes.distance import Distance
from llama_retrieval_ext.stores.nodes.surrogates import utf8_safe
from llama_retrieval_ext.stores.nodes.vectors import query_vector


@dataclass(frozen=True, slots=True)
class Wanted:
    """What every kind of search is told besides what to look for.

    Attributes:
        top_k: How many to return, at least 1.
        expression: What each must satisfy.
    """

    top_k: int
    expression: Expression = True

    @property
    def filter(self) -> str:
        """As pymilvus takes it."""
        return self.expression if isinstance(self.expression, str) else ""


class Searcher:
    """Asks the engine. Rankings come best first, equal scores by node id; an empty store gives [].

    Args:
        collection: The collection.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    @property
    def is_lite(self) -> bool:
        """Whether the engine is Milvus Lite."""
        return self._collection.connection.is_lite

    @property
    def groups(self) -> bool:
        """Whether the engine can go by documents."""
        return self._collection.index_type in GROUPING

    def dense(self, embedding: Sequence[float], wanted: Wanted) -> list[Found]:
        """Nearest nodes to an embedding.

        Raises:
            ConfigurationError: A value of it is not finite.
            DimensionMismatchError: It has another dimension than the store.
        """
        question = self._nearest(embedding, wanted)
        return [] if question is None else ranking(self._collection, question, wanted.top_k)

    def keyword(self, text: str, wanted: Wanted) -> list[Found]:
        """Nodes that share terms with a text, by BM25; each has a score above 0."""
        question = self._sharing(text, wanted)
        return [] if question is None else ranking(self._collection, question, wanted.top_k)

    def batch(self, asked: Sequence[tuple[Sought, Wanted]]) -> list[list[Found]]:
        """Any number of them, those of one kind and filter in one request.

        Args:
            asked: An embedding to be near to, or a text to share terms with; and how many nodes,
                and which.

        Raises:
            ConfigurationError: A value of an embedding is not finite.
            DimensionMismatchError: An embedding has another dimension than the store.
        """
        questions = [self._question(each, wanted) for each, wanted in asked]
        top_ks = [wanted.top_k for _, wanted in asked]
        return rankings(self._collection, questions, top_ks)

    def fused(
        self, embedding: Sequence[float], text: str, wanted: Wanted, how: FusedSearch
    ) -> list[Found]:
        """The best of both as the engine fuses them.

        Raises:
            ConfigurationError: A value of the embedding is not finite, or there are more candidates
                than Milvus returns.
            DimensionMismatchError: It has another dimension than the store.
        """
        candidates = replace(wanted, top_k=how.candidates)
        sharing = self._sharing(text, wanted)
        nearest = self._nearest(embedding, wanted)
        if sharing is None or nearest is None:
            return fused_here(self.dense(embedding, candidates), [], how, top_k=wanted.top_k)
        ranker, score = ranker_of(how)
        legs = Fused((nearest, sharing), how.candidates, ranker, score)
        return fused_ranking(self._collection, legs, wanted.top_k)

    def grouped(self, sought: Sought, wanted: Wanted, size: int) -> list[Found]:
        """The best nodes of the best documents, best first.

        Args:
            sought: An embedding to be near to, or a text to share terms with.
            wanted: How many documents, and which nodes.
            size: How many nodes of a document.

        Raises:
            ConfigurationError: A value of an embedding is not finite, or more are wanted than
                Milvus returns.
            DimensionMismatchError: An embedding has another dimension than the store.
        """
        question = self._question(sought, wanted)
        if question is None:
            return []
        return groups(self._collection, question, wanted.top_k, size)

    def _question(self, sought: Sought, wanted: Wanted) -> Question | None:
        if isinstance(sought, str):
            return self._sharing(sought, wanted)
        return self._nearest(sought, wanted)

    def _nearest(self, embedding: Sequence[float], wanted: Wanted) -> Question | None:
        manifest = self._collection.manifest
        vector = query_vector(
            embedding,
            dimension=manifest.dimension or len(embedding),
            distance=manifest.distance,
            where=self._collection.where,
        )
        if wanted.expression is False:
            return None
        return Question(
            vector, DENSE, wanted.filter, self._dense_params, _SCORES[manifest.distance]
        )

    def _sharing(self, text: str, wanted: Wanted) -> Question | None:
        manifest = self._collection.manifest
        plain = manifest.analyzer is not None
        sought = utf8_safe(text) if plain else query_terms(text, manifest.tokenizer)
        if wanted.expression is False or not sought.strip():
            return None
        # BM25 has no scores below 0: abs(), because Milvus Lite turns them round, Milvus not.
        return Question(sought, BM25, wanted.filter, _bm25_params, abs, positive=True)

    def _dense_params(self, limit: int) -> Mapping[str, Any]:
        given = dict(self._collection.params.search_params)
        if self._collection.index_type.startswith("HNSW"):
            given["ef"] = max(limit, given.get("ef", 0))  # Milvus refuses a smaller one
        return {"metric_type": METRICS[self._collection.manifest.distance], "params": given}


def _bm25_params(_: int) -> Mapping[str, Any]:
    return {"metric_type": "BM25"}


def _cosine(score: float) -> float:
    return min(1.0, max(-1.0, score))  # single precision oversteps by some 1e-7


def _negative_root(squared: float) -> float:
    return -math.sqrt(max(0.0, squared))


_SCORES: Final[Mapping[Distance, Callable[[float], float]]] = {
    "cosine": _cosine,
    "dot": float,
    "euclid": _negative_root,
}
