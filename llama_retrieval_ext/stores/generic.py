"""Any LlamaIndex vector store: vector search through its own `query`, and reading nodes by id."""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterOperator,
    VectorStoreQuery,
    VectorStoreQueryResult,
)

from llama_retrieval_ext.errors import (
    ConfigurationError,
    ScoreError,
    UnsupportedFilterError,
    UnsupportedModeError,
)
from llama_retrieval_ext.execution.context import note_degraded
from llama_retrieval_ext.execution.drivers import awaited_or_in_thread, awaits
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filter_syntax import as_metadata_filters
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, matches, refuse_dates
from llama_retrieval_ext.stores.encoding.vectors import ScoreRange, query_vector
from llama_retrieval_ext.stores.engine.backend import (
    EVERY_OPERATOR,
    Backend,
    Candidate,
    EngineFeatures,
    Search,
    check_exact,
)
from llama_retrieval_ext.stores.engine.search import EngineBackend
from llama_retrieval_ext.wording import counted

Lookup = Callable[[Sequence[str]], Mapping[str, BaseNode]]


class GenericBackend:
    """Vector search of any LlamaIndex vector store.

    Other query modes may silently fall back to vector search, so keyword search is refused. Filters
    go to the store as LlamaIndex filters; ``SimpleVectorStore`` has no nested filters, so its
    filters are evaluated here.

    Args:
        store: The vector store.
        lookup: Returns the nodes with the ids that the store returns, where they exist; for a
            store that keeps no text.
        lower_is_better: Whether the store's "similarities" are distances.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.

    Raises:
        ConfigurationError: The store keeps no text, and there is no lookup.
    """

    def __init__(
        self,
        store: BasePydanticVectorStore,
        *,
        lookup: Lookup | None = None,
        lower_is_better: bool = False,
        drop_violations: bool = False,
    ) -> None:
        if lookup is None and not store.stores_text:
            raise ConfigurationError(
                f"{type(store).__name__} keeps no text; hand in the VectorStoreIndex over it, "
                "whose docstore does"
            )
        self.store = store
        self.engine = type(store).__name__
        self.drop_violations = drop_violations
        self.features = EngineFeatures(
            dense=ScoreRange("negative_distance", high=0.0) if lower_is_better else ScoreRange(),
            real_async=awaits(store.aquery),
            exact=isinstance(store, SimpleVectorStore),
            operators=EVERY_OPERATOR if isinstance(store, SimpleVectorStore) else None,
        )
        self.lookup = lookup
        self._sign = -1.0 if lower_is_better else 1.0

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Return the nodes nearest to an embedding, with the store's scores."""
        check_exact(self.engine, self.features, search)
        condition = None if search.condition is None else simplified(search.condition)
        if not (isinstance(condition, bool | None) or isinstance(self.store, SimpleVectorStore)):
            refuse_dates(condition, self.engine)
        if condition is False:  # no node matches, and a store may ignore such a condition
            return Call(list)
        query = self._query(embedding, search.top_k, None if condition is True else condition)

        def unsupported(error: NotImplementedError) -> UnsupportedFilterError:
            return UnsupportedFilterError(f"{self.engine} cannot evaluate {condition}: {error}", "")

        async def search_async() -> list[Candidate]:
            with _refused(unsupported):
                result = await awaited_or_in_thread(
                    lambda: self.store.aquery(query), lambda: self.store.query(query)
                )
                return self._found(result, query, search.top_k)

        def search_blocking() -> list[Candidate]:
            with _refused(unsupported), np.errstate(invalid="ignore"):  # cosines of zeros
                return self._found(self.store.query(query), query, search.top_k)

        return Call(search_blocking, search_async if self.features.real_async else None)

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:  # noqa: ARG002 - refused
        """Raise `UnsupportedModeError`: keyword search is not supported."""
        raise UnsupportedModeError(
            f"{type(self.store).__name__} has no keyword search that is known here; use "
            "BM25Retriever over the nodes or the docstore, or a store opened by URL"
        )

    def describe(self) -> Mapping[str, object]:
        """Return the store's class."""
        return {"engine": self.engine}

    def _query(
        self, embedding: Sequence[float], top_k: int, condition: Condition | None
    ) -> VectorStoreQuery:
        query = VectorStoreQuery(query_embedding=list(embedding), similarity_top_k=top_k)
        if isinstance(self.store, SimpleVectorStore):
            stored = next(iter(self.store.data.embedding_dict.values()), embedding)
            query.query_embedding = query_vector(
                embedding, dimension=len(stored), distance="cosine", where="the SimpleVectorStore"
            )
            query.node_ids = None if condition is None else _matching(self.store, condition)
        elif condition is not None:
            query.filters = as_metadata_filters(condition)
        return query

    def _found(
        self, result: VectorStoreQueryResult, query: VectorStoreQuery, top_k: int
    ) -> list[Candidate]:
        nodes, scores = result.nodes, result.similarities or []
        ids = list(result.ids or []) if nodes is None else [node.node_id for node in nodes]
        if len(scores) != len(ids):
            raise ScoreError(
                f"{type(self.store).__name__} returned {counted(len(ids), 'node')} and "
                f"{len(scores)} scores; a ranking needs a score for each"
            )
        pairs = zip(ids, scores, strict=True)
        finite = ((self._finite(score, id_, query), id_) for id_, score in pairs)
        best = sorted((-self._sign * score, id_) for score, id_ in finite)[:top_k]
        if nodes is None:
            by_id = self._looked_up([id_ for _, id_ in best])
        else:
            by_id = {node.node_id: node for node in nodes}
        return [Candidate(by_id[id_], -score) for score, id_ in best if id_ in by_id]

    def _looked_up(self, ids: Sequence[str]) -> Mapping[str, BaseNode]:
        by_id = {} if self.lookup is None else self.lookup(ids)
        missing = [id_ for id_ in ids if id_ not in by_id]
        if missing:
            where = type(self.store).__name__
            hits = counted(len(missing), "hit")
            note_degraded(where, f"there is no text for {hits}: {missing[:5]}")
        return by_id

    def _finite(self, score: float | None, node_id: str, query: VectorStoreQuery) -> float:
        if score is None or not math.isfinite(score):
            store, embedding = self.store, query.query_embedding or ()
            if isinstance(store, SimpleVectorStore) and not (
                any(embedding) and any(store.data.embedding_dict[node_id])
            ):
                return 0.0  # as on each engine, if one of both has no direction
            raise ScoreError(
                f"{type(self.store).__name__} gave node {node_id!r} the score {score}; "
                "it must be a finite number: check its embedding for zeros and NaN"
            )
        return float(score)


def _matching(store: SimpleVectorStore, condition: Condition) -> list[str]:
    ids, metadata = store.data.embedding_dict, store.data.metadata_dict
    if any(id_ not in metadata for id_ in ids):
        raise UnsupportedFilterError(
            "this SimpleVectorStore was persisted without metadata and cannot be filtered; "
            "build it again",
            "",
        )
    return [id_ for id_ in ids if matches(condition, metadata[id_])]


def nodes_by_id(backend: Backend, ids: Sequence[str]) -> Call[dict[str, BaseNode]]:
    """Return the nodes with these ids, in one request; ids that the store lacks are left out."""
    node_ids, store = list(dict.fromkeys(ids)), backend.store
    if not node_ids:  # some stores return every node for an empty list
        return Call(dict, _nothing)
    if isinstance(backend, GenericBackend) and backend.lookup is not None:
        lookup = backend.lookup
        return Call(lambda: dict(lookup(node_ids)))

    if isinstance(backend, EngineBackend) and (call := backend.nodes(node_ids)) is not None:
        return call

    def unreadable(_: NotImplementedError) -> ConfigurationError:
        return ConfigurationError(
            f"{type(store).__name__} cannot give nodes by their ids, which graphs know them by; "
            "pass a VectorStoreIndex with a docstore, or a store opened by URL"
        )

    def read() -> dict[str, BaseNode]:
        with _refused(unreadable):
            return {node.node_id: node for node in store.get_nodes(node_ids=node_ids)}

    async def aread() -> dict[str, BaseNode]:
        with _refused(unreadable):
            return {node.node_id: node for node in await store.aget_nodes(node_ids=node_ids)}

    return Call(read, aread if awaits(store.aget_nodes) else None)


async def _nothing() -> dict[str, BaseNode]:
    return {}


@contextmanager
def _refused(error: Callable[[NotImplementedError], Exception]) -> Generator[None]:
    """Replace the error of a store that does not implement something."""
    try:
        yield
    except NotImplementedError as cause:
        raise error(cause) from cause


_DECIDED_BY_NO_VALUES: Final[Mapping[FilterOperator, bool]] = {
    FilterOperator.IN: False,
    FilterOperator.ANY: False,
    FilterOperator.NIN: True,
}


def simplified(condition: Condition) -> Condition | bool:
    """Return the condition without empty groups and lists; a bool if it is constant.

    Stores ignore an empty group, and some ignore an empty list of values.
    """
    match condition:
        case Compare(_, operator, ()) if operator in _DECIDED_BY_NO_VALUES:
            return _DECIDED_BY_NO_VALUES[operator]
        case Compare():
            return condition
        case AllOf(parts):
            return _group(AllOf, parts, decides=False)
        case AnyOf(parts):
            return _group(AnyOf, parts, decides=True)
        case Not(part):
            inner = simplified(part)
            return not inner if isinstance(inner, bool) else Not(inner)


def _group(
    kind: type[AllOf] | type[AnyOf], parts: Sequence[Condition], *, decides: bool
) -> Condition | bool:
    """Return the group of the parts, or ``decides`` if one of the parts is that constant."""
    inner = [simplified(part) for part in parts]
    if decides in inner:
        return decides
    kept = tuple(part for part in inner if not isinstance(part, bool))
    if not kept:
        return not decides
    return kept[0] if len(kept) == 1 else kind(kept)
