"""Searches of an embedded store."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import ClassVar, Final, TypeAlias, TypeVar

from pydantic import PrivateAttr
from qdrant_edge import (
    AcornSearchParams,
    CountRequest,
    EdgeShard,
    Expression,
    Filter,
    Formula,
    Fusion,
    HasIdCondition,
    IdfParams,
    Prefetch,
    QuantizationSearchParams,
    Query,
    QueryBatchRequest,
    QueryRequest,
    Record,
    ScoredPoint,
    SearchParams,
    SparseVector,
)

from llama_retrieval_ext.execution.drivers import drive
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stores.embedded.directory import StoreDirectory
from llama_retrieval_ext.stores.embedded.files import EmbeddedConfig
from llama_retrieval_ext.stores.embedded.filters import EVERYTHING, LANGUAGE, language_of
from llama_retrieval_ext.stores.embedded.nodes import stored_vectors
from llama_retrieval_ext.stores.embedded.shard import (
    BM25,
    DENSE,
    RESCORED,
    PointId,
    count_points,
    indexed_fields,
)
from llama_retrieval_ext.stores.encoding.node_json import node_id_in
from llama_retrieval_ext.stores.encoding.vectors import SCORES
from llama_retrieval_ext.stores.engine.backend import Candidate, Search
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.stores.qdrant_common.points import NODE
from llama_retrieval_ext.stores.qdrant_common.search import (
    PointSearch,
    PointsSearch,
    Recipe,
    query_terms,
)

T = TypeVar("T")
# Returns the terms of a query's tokens that no text of a scope has; none if it does not know all
# texts, by the store's number of changes.
AbsentTerms: TypeAlias = Callable[[Sequence[str], Scope, Callable[[], int]], Collection[int]]
NativeFusionQuery: TypeAlias = Fusion | Formula
_ID: Final = attrgetter("id")
_SMALL_LIMIT: Final = 1_000
# Candidates of a walk through the index: 128, and of many nodes one of a thousand, up to 1,000. Of
# 1,000,000 mixtures of near embeddings of MiniLM, 128 have a recall@10 of .872, 1,000 one of .975.
_EF: Final = 128
_NODES_FOR_EACH: Final = 1_000
_MOST_EF: Final = 1_000
# Otherwise the nodes that a user sees are islands: 9,200 of 30,000 were found with a recall of .89.
_THROUGH_HIDDEN: Final = AcornSearchParams(enable=True, max_selectivity=1.0)
# Up to this number, comparing the visible nodes one by one takes less time than that.
_FEW_VISIBLE: Final = 20_000
# Nearest points for each hit: the visible ones among these are enough if about a tenth is visible.
_NEAREST: Final = 16
# Walking the graph to more points takes longer than a search among the visible ones.
_MOST_NEAREST: Final = 200
# Factor of candidates selected by few bits and rescored with the stored vectors.
_OVERSAMPLING: Final = 3.0
# Maximum number of cached node ids, about 200 bytes each.
_MOST_NAMES: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleSearch(PointSearch):
    """A search for principals in an HNSW index, whose links do not connect what they see.

    Attributes:
        unrestricted: The same search without principals; None if metadata is filtered as well.
    """

    unrestricted: PointSearch | None

    def among_nearest(
        self, shard: EdgeShard, limit: int, *, with_payload: bool
    ) -> list[ScoredPoint] | None:
        """Return the best visible points if enough of the nearest points are visible."""
        count = _NEAREST * limit
        if self.unrestricted is None or count > _MOST_NEAREST:
            return None
        unrestricted = replace(self.unrestricted, top_k=count)
        nearest = shard.query(_request(unrestricted, count, with_payload=False))
        ids = HasIdCondition({hit.id for hit in nearest})
        visible = replace(self, filter=Filter(must=[ids, self.filter]))
        hits = shard.query(_request(visible, limit, with_payload=with_payload))
        return hits if len(hits) == limit else None

    def by_number(self, shard: EdgeShard) -> PointSearch:
        """Return the search among the visible points: exact if there are few."""
        visible = shard.count(CountRequest(exact=False, filter=self.filter))
        return replace(self, params=SearchParams(exact=True)) if visible < _FEW_VISIBLE else self


class EmbeddedSearch(EngineStore, PointsSearch):
    """Searches of an embedded store; steps are functions of the shard."""

    engine_name: ClassVar[str] = "embedded"
    language = LANGUAGE
    nodes_last: ClassVar[bool] = True

    # Node ids by point, cached to sort ties.
    _names: dict[str, str] = PrivateAttr(default_factory=dict)
    _absent_terms: AbsentTerms | None = PrivateAttr(default=None)

    @property
    @abstractmethod
    def _directory(self) -> StoreDirectory:
        """The open directory."""

    def call(self, steps: Callable[[], Steps[T]], *, empty: T) -> Call[T]:
        """Return the call that runs steps on one shard, for async callers on their event loop.

        The engine holds the GIL while it searches: with a thread, the loop would wait as well.
        """
        directory = self._directory

        def answer() -> T:
            return directory.read(
                lambda shard: drive(steps(), lambda function: function(shard)), empty=empty
            )

        async def answer_async() -> T:
            return answer()

        return Call(answer, answer_async)

    def compile(self, condition: Condition) -> Filter:
        """Return the engine's filter, which knows the dates and lists that the shard has."""
        indexed: frozenset[str] = self._directory.read(indexed_fields, empty=frozenset())
        matching: Filter = language_of(indexed).compile(condition)
        return matching

    def vector_search(self, embedding: Sequence[float], search: Search) -> PointSearch:
        """Return the search for the nearest points."""
        directory, scope = self._directory, search.scope
        config, vector = directory.config, self._checked(embedding, directory.path)
        nearest = PointSearch(
            query=Query.Nearest(vector, using=DENSE),
            top_k=search.top_k,
            score=SCORES[config.distance],
            filter=search.filter,
            params=vector_params(config, search.top_k, exact=search.exact),
        )
        if scope is None or scope.principals is None or search.exact or not config.indexed:
            return nearest
        is_alone = search.condition == scope.condition
        return VisibleSearch(
            query=nearest.query,
            top_k=nearest.top_k,
            score=nearest.score,
            filter=nearest.filter,
            params=vector_params(config, search.top_k, exact=False, among_few=True),
            unrestricted=replace(nearest, filter=search.corpus) if is_alone else None,
        )

    def leave_out(self, absent_terms: AbsentTerms) -> None:
        """Leave out of keyword searches the terms that no text of their scope has.

        They give no score, but the engine walks their lists of other scopes' texts, which takes
        time and so tells of them.
        """
        self._absent_terms = absent_terms

    def keyword_search(self, text: str, search: Search) -> PointSearch | None:
        """Return the search for shared terms; None without terms."""
        directory, fields = self._directory, self.field_weights(search)
        scope, absent_terms, absent = search.scope, self._absent_terms, None
        if scope is not None and absent_terms is not None:

            def absent(tokens: Sequence[str]) -> Collection[int]:
                return absent_terms(tokens, scope, lambda: directory.n_changes)

        weights = query_terms(text, self.tokenizer, self.field_schema, fields, absent=absent)
        if weights is None:
            return None
        corpus = search.corpus or (EVERYTHING if directory.inexact else None)
        return PointSearch(
            query=Query.Nearest(SparseVector(*weights), using=BM25),
            top_k=search.top_k,
            score=float,
            filter=search.filter,
            params=None if corpus is None else SearchParams(idf=IdfParams(corpus=corpus)),
        )

    def fusion(self, recipe: Recipe) -> NativeFusionQuery:
        """Return the engine's query for a fusion."""
        if recipe.rank_constant is not None:
            return Fusion.Rrf(k=recipe.rank_constant)  # type: ignore[return-value]  # it is one
        if not recipe.lines:
            return Fusion.Dbsf()  # type: ignore[return-value]  # it is one
        terms = [
            Expression.Mult([Expression.Constant(line.slope), Expression.Variable(name)])
            for name, line in recipe.lines.items()
        ]
        constant = Expression.Constant(recipe.constant)
        return Formula(Expression.Sum([*terms, constant]), defaults=recipe.defaults)

    def pages(
        self, searches: Sequence[PointSearch], *, with_nodes: bool
    ) -> Steps[list[list[ScoredPoint]]]:
        """Send searches in one request."""

        def send(shard: EdgeShard) -> list[list[ScoredPoint]]:
            most = max(part.top_k for search in searches for part in (search, *search.legs))
            if most > _SMALL_LIMIT:  # the engine allocates memory for the whole limit
                most = count_points(shard)
            match searches:
                case [VisibleSearch() as search]:
                    size = min(search.top_k, most)
                    hits = search.among_nearest(shard, size, with_payload=with_nodes)
                    if hits is not None:
                        return [hits]
            requests = [
                _request(
                    search.by_number(shard) if isinstance(search, VisibleSearch) else search,
                    most,
                    with_payload=with_nodes,
                )
                for search in searches
            ]
            if len(requests) == 1:
                return [shard.query(requests[0])]
            return shard.query_batch(QueryBatchRequest(requests))

        pages: list[list[ScoredPoint]] = yield send
        return pages

    def keys(self, hits: Sequence[ScoredPoint]) -> list[str]:
        """Return the point ids, which are faster to read than the payload."""
        return [*map(str, map(_ID, hits))]

    def ids_of_tied(self, keys: Sequence[str]) -> Steps[Mapping[str, str]]:
        """Return the node ids of points; they never change, so they are cached."""
        names = self._names  # another search may replace it
        unknown = {*keys} - names.keys()
        if not unknown:
            return names
        texts = yield from self._texts(unknown)
        names = {key: names[key] for key in keys if key in names}
        names |= {key: node_id_in(text) for key, text in texts.items()}
        if len(self._names) + len(names) > _MOST_NAMES:
            self._names = {}
        self._names.update(names)
        return names

    def _texts(self, keys: Iterable[str]) -> Steps[dict[str, str]]:
        """Return the stored nodes of existing points."""
        ids: list[PointId] = [*map(int, keys)]
        records: list[Record] = yield lambda shard: shard.retrieve(
            ids, with_payload=[NODE], with_vector=False
        )
        return {str(record.id): (record.payload or {})[NODE] for record in records}

    def read(self, keys: Sequence[str], search: Search) -> Steps[Mapping[str, Candidate]]:
        """Return nodes by point id; checking their metadata here is faster than in the engine."""
        texts = yield from self._texts(keys)
        nodes = {key: Candidate(text, 0.0) for key, text in texts.items()}
        if search.condition is None:
            return nodes
        return {
            key: candidate
            for key, candidate in nodes.items()
            if matches(search.condition, candidate.node.metadata)
        }

    def embeddings(self, node_ids: Sequence[str]) -> Steps[dict[str, list[float]]]:
        """Return the stored embeddings of existing nodes by id."""
        vectors: dict[str, list[float]] = yield lambda shard: stored_vectors(shard, node_ids)
        return vectors


def vector_params(
    config: EmbeddedConfig, top_k: int, *, exact: bool, among_few: bool = False
) -> SearchParams:
    """Return the params of a vector search; without an index it is always exact.

    ``among_few`` is for a filter that no links of the index follow, as one by principals.
    """
    if exact:
        return SearchParams(exact=True)
    # Through what is hidden, more candidates would cost more: this walk looks at links of links.
    candidates = 0 if among_few else min(config.indexed // _NODES_FOR_EACH, _MOST_EF)
    rescored = QuantizationSearchParams(rescore=True, oversampling=_OVERSAMPLING)
    return SearchParams(
        hnsw_ef=max(_EF, 2 * top_k, candidates),
        quantization=rescored if config.vectors in RESCORED else None,
        acorn=_THROUGH_HIDDEN if among_few else None,
    )


def _request(search: PointSearch, most: int, *, with_payload: bool) -> QueryRequest:
    """Return the request for the best points, at most ``most``, also of each leg."""
    return QueryRequest(
        limit=min(search.top_k, most),
        query=search.query,
        prefetches=[
            Prefetch(min(leg.top_k, most), query=leg.query, params=leg.params, filter=leg.filter)
            for leg in search.legs
        ]
        if search.legs
        else None,
        filter=search.filter,
        params=search.params,
        with_payload=[NODE] if with_payload else False,
    )
