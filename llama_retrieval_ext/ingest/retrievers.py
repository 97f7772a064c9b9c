"""The retrievers that a knowledge base gives out, by name."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.basic.hybrid import CANDIDATES, HybridRetriever
from llama_retrieval_ext.basic.keyword import KeywordRetriever
from llama_retrieval_ext.basic.store_retriever import StoreRetriever
from llama_retrieval_ext.basic.vector import VectorRetriever
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stages.algebra.fusion import Fusion
from llama_retrieval_ext.stages.refining.collapse import Collapse
from llama_retrieval_ext.stores.backend import Backend

Kind: TypeAlias = Literal["vector", "keyword", "hybrid"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a retriever is to be set up."""

    top_k: int
    filters: MetadataFilters | None
    scope: Scope | None
    fusion: Fusion | None
    alpha: float | None
    pushdown: bool
    collapse: Collapse | None
    candidates: int | None
    name: str


def build_retriever(
    kind: str, wanted: Wanted, *, backend: Backend, embed_model: BaseEmbedding
) -> StoreRetriever:
    """A retriever over a knowledge base.

    Raises:
        ConfigurationError: There is no such kind, or it cannot be set up so.
    """
    if kind not in list(_KINDS):
        near = difflib.get_close_matches(str(kind), _KINDS, n=1)
        advice = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigurationError(
            f"there is no retriever {kind!r}; {advice}Write one of {', '.join(map(repr, _KINDS))}"
        )
    options = (wanted.fusion, wanted.alpha, wanted.candidates, wanted.pushdown or None)
    if kind != "hybrid" and any(option is not None for option in options):
        raise ConfigurationError(
            "fusion, alpha, candidates and pushdown are for 'hybrid', which has two rankings to "
            f"fuse; {kind!r} has one"
        )
    return _KINDS[kind](wanted, backend, embed_model)


def _vector(wanted: Wanted, backend: Backend, embed_model: BaseEmbedding) -> StoreRetriever:
    return VectorRetriever(
        backend,
        embed_model=embed_model,
        top_k=wanted.top_k,
        filters=wanted.filters,
        scope=wanted.scope,
        collapse=wanted.collapse,
        name=wanted.name,
    )


def _keyword(wanted: Wanted, backend: Backend, embed_model: BaseEmbedding) -> StoreRetriever:
    made = KeywordRetriever(
        backend,
        top_k=wanted.top_k,
        filters=wanted.filters,
        scope=wanted.scope,
        collapse=wanted.collapse,
        name=wanted.name,
    )
    made.embed_model = embed_model  # for stages behind it, such as MMR
    return made


def _hybrid(wanted: Wanted, backend: Backend, embed_model: BaseEmbedding) -> StoreRetriever:
    return HybridRetriever(
        backend,
        embed_model=embed_model,
        top_k=wanted.top_k,
        filters=wanted.filters,
        scope=wanted.scope,
        fusion=wanted.fusion,
        alpha=wanted.alpha,
        candidates=CANDIDATES if wanted.candidates is None else wanted.candidates,
        pushdown=wanted.pushdown,
        collapse=wanted.collapse,
        name=wanted.name,
    )


_KINDS: Mapping[str, Callable[[Wanted, Backend, BaseEmbedding], StoreRetriever]] = {
    "vector": _vector,
    "keyword": _keyword,
    "hybrid": _hybrid,
}
