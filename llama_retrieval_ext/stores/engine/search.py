"""`EngineSearch`: base class of engine searches."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    EngineQuery,
    HybridRankings,
    KeywordQuery,
    ScoredId,
    VectorQuery,
    fuse_candidates,
    in_order_of_ids,
    ordered_candidates,
    tied_keys,
)
from llama_retrieval_ext.stores.engine.collection import Collection
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch

# The engine's types of a compiled filter, a search and a hit.
F = TypeVar("F")
S = TypeVar("S", bound="NativeSearch")
H = TypeVar("H")
T = TypeVar("T")

# Maximum number of cached node ids, about 200 bytes each.
_MOST_NAMES: Final = 50_000


@dataclass(frozen=True, slots=True)
class EngineRequest(Generic[F]):
    """A query with its filters compiled for the engine.

    Attributes:
        query: The vector or keyword query.
        filter: Filter that every hit matches; None for no filter.
        corpus: Filter for the nodes that IDF is computed on, which ignores principals; None for all
            nodes.
    """

    query: EngineQuery
    filter: F | None = None
    corpus: F | None = None

    @property
    def top_k(self) -> int:
        """Number of hits to return."""
        return self.query.search.top_k

    def with_top_k(self, top_k: int) -> Self:
        """Return the same request with another number of hits."""
        search = replace(self.query.search, top_k=top_k)
        return replace(self, query=replace(self.query, search=search))


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeSearch:
    """One engine-specific search; subclasses add request fields.

    Attributes:
        top_k: Number of hits to return.
        score: Converts the engine's score to ours: finite, higher is better.
        positive: Whether to drop hits with a score of 0 or less, such as texts without a shared
            term.
    """

    top_k: int
    score: Callable[[float], float]
    positive: bool = False


class EngineSearch(ABC, Generic[F, S, H]):
    """Searches of one engine, as steps. Rankings are sorted best first, then by node id.

    Subclasses compile conditions, build and send searches, and read hits. This class handles
    queries without terms, the order of hits, and fusion with a missing leg. If more nodes than
    fit tie with the last hit, the engine chooses among them.

    Attributes:
        most_hits: Maximum number of requested hits.
        nodes_last: Whether `hybrid` may return keys only, for `texts` to read the best nodes.
        keys_are_ids: Whether `keys` returns node ids.
        whole_keyword_leg: Whether the engine's fusion uses all keyword hits.
        has_mmr: Whether `diverse` is implemented.
        scoped_rarity: Whether the engine can compute IDF on a subset of the nodes.
    """

    most_hits: ClassVar[int] = 10_000
    nodes_last: ClassVar[bool] = False
    keys_are_ids: ClassVar[bool] = False
    whole_keyword_leg: ClassVar[bool] = False
    has_mmr: ClassVar[bool] = False
    scoped_rarity: ClassVar[bool] = True

    def __init__(self, collection: Collection[Any, Any, Any] | None = None) -> None:
        self._collection = collection
        # Node ids by key, cached to sort ties.
        self._names: dict[str, str] = {}

    @abstractmethod
    def compile(self, condition: Condition) -> F:
        """Return the engine's filter, or raise `UnsupportedFilterError`."""

    @abstractmethod
    def vector_search(self, query: VectorQuery, request: EngineRequest[F]) -> S | None:
        """Return the engine's vector search; None if it cannot have hits."""

    @abstractmethod
    def keyword_search(self, query: KeywordQuery, request: EngineRequest[F]) -> S | None:
        """Return the engine's keyword search; None if it cannot have hits (no terms)."""

    def fused_search(self, vector: S, keyword: S, how: FusedSearch, *, top_k: int) -> S | None:
        """Return the engine's fusion of two searches; None if it cannot fuse them."""
        del vector, keyword, top_k
        raise UnsupportedModeError(f"{how.fusion!r} is not in the engine; leave pushdown out")

    @abstractmethod
    def pages(self, searches: Sequence[S], *, with_nodes: bool) -> Steps[list[list[H]]]:
        """Send searches; return at most ``top_k`` hits of each, in the engine's order."""

    @abstractmethod
    def raw_scores(self, hits: Sequence[H]) -> list[float]:
        """Return the engine's scores of hits."""

    @abstractmethod
    def candidate(self, hit: H, score: float) -> Candidate:
        """Return the candidate of a hit that includes its node."""

    def keys(self, hits: Sequence[H]) -> list[str]:
        """Return the keys that identify the nodes of hits."""
        raise NotImplementedError(hits)

    def texts(self, keys: Sequence[str], request: EngineRequest[F]) -> Steps[dict[str, str]]:
        """Return stored nodes by key, without those deleted or no longer matching."""
        raise NotImplementedError(keys, request)

    def if_exists(self, steps: Callable[[], Steps[T]], *, empty: T) -> Steps[T]:
        """Run steps against the collection; return `empty` if it does not exist."""
        if self._collection is None:
            return (yield from steps())
        return (yield from self._collection.if_exists(steps, empty=empty))

    def diverse(
        self, request: EngineRequest[F], *, lambda_mult: float, candidates: int
    ) -> Steps[list[Candidate]]:
        """Return the nodes selected by MMR, in the order of selection."""
        del request, lambda_mult, candidates
        raise UnsupportedModeError(f"{type(self).__name__} has no MMR")

    def requests(self, queries: Sequence[EngineQuery]) -> list[EngineRequest[F]]:
        """Return requests for queries of one `Search`, whose conditions are compiled once."""
        search = queries[0].search
        filter_ = None if search.condition is None else self.compile(search.condition)
        scope = search.scope and search.scope.for_everyone
        corpus = None
        if scope is not None and self.scoped_rarity:
            alone = scope.condition == search.condition
            corpus = filter_ if alone else self.compile(scope.condition)
        return [EngineRequest(query, filter_, corpus) for query in queries]

    def search(self, requests: Sequence[EngineRequest[F]]) -> Steps[list[list[Candidate]]]:
        """Return the ranking of a request, or those of a vector and a keyword request."""
        return self.if_exists(lambda: self._search(requests), empty=[[] for _ in requests])

    def hybrid(
        self, vector: EngineRequest[F], keyword: EngineRequest[F], *, nodes_last: bool
    ) -> Steps[HybridRankings]:
        """Return the rankings of both requests; see `HybridBackend.hybrid`."""
        both = self._keys_of_both if nodes_last and self.nodes_last else self._both
        return self.if_exists(lambda: both([vector, keyword]), empty=HybridRankings.of([], []))

    def read(self, keys: Sequence[str], request: EngineRequest[F]) -> Steps[dict[str, Candidate]]:
        """Return nodes of `hybrid` by key, with score 0; deleted ones are left out."""
        return self.if_exists(lambda: self._nodes(keys, request), empty={})

    def fused(
        self, vector: EngineRequest[F], keyword: EngineRequest[F], how: FusedSearch
    ) -> Steps[list[Candidate]]:
        """Return the engine's native fusion of a vector and a keyword request."""
        n_keyword = self.most_hits if self.whole_keyword_leg else how.candidates
        legs = vector.with_top_k(how.candidates), keyword.with_top_k(n_keyword)
        return self.if_exists(lambda: self._fused(legs, how, top_k=vector.top_k), empty=[])

    def native(self, request: EngineRequest[F]) -> Steps[S | None]:
        """Return the engine's search; None if it cannot have hits."""
        yield from ()
        match request.query:
            case VectorQuery() as query:
                return self.vector_search(query, request)
            case query:
                return self.keyword_search(query, request)

    def scores(self, search: S, hits: Sequence[H]) -> list[float]:
        """Return our scores of hits."""
        raw, score = self.raw_scores(hits), search.score
        return raw if score is float else [score(item) for item in raw]

    def rankings(self, searches: Sequence[S]) -> Steps[list[list[Candidate]]]:
        """Return the rankings of searches."""
        pages = yield from self.pages(searches, with_nodes=True)
        return [
            ordered_candidates(
                self.candidate(hit, score)
                for hit, score in zip(hits, self.scores(search, hits), strict=True)
                if score > 0 or not search.positive
            )
            for search, hits in zip(searches, pages, strict=True)
        ]

    def _search(self, requests: Sequence[EngineRequest[F]]) -> Steps[list[list[Candidate]]]:
        searches, some = yield from self._natives(requests)
        found = iter((yield from self.rankings(some)) if some else [])
        return [[] if search is None else next(found) for search in searches]

    def _natives(
        self, requests: Sequence[EngineRequest[F]]
    ) -> Steps[tuple[list[S | None], list[S]]]:
        """Return the engine's search for each request, and those that can have hits."""
        searches: list[S | None] = []
        for request in requests:
            searches.append((yield from self.native(request)))  # noqa: PERF401 - no generator there
        return searches, [search for search in searches if search is not None]

    def _both(self, requests: Sequence[EngineRequest[F]]) -> Steps[HybridRankings]:
        vector, keyword = yield from self._search(requests)
        return HybridRankings.of(vector, keyword)

    def _keys_of_both(self, requests: Sequence[EngineRequest[F]]) -> Steps[HybridRankings]:
        """Return both rankings by key; nodes are read only if their ids decide between ties."""
        searches, some = yield from self._natives(requests)
        pages = iter((yield from self.pages(some, with_nodes=False)) if some else [])
        legs = [[] if search is None else self._keys(search, next(pages)) for search in searches]
        tied = [] if self.keys_are_ids else [key for leg in legs for key in tied_keys(leg)]
        names = self._names  # another search may replace it
        unknown = [key for key in tied if key not in names]
        nodes = (yield from self._nodes(unknown, requests[0])) if unknown else {}
        new_names = {key: each.node_id for key, each in nodes.items()}
        self._keep_names(new_names)
        ids = {key: new_names.get(key) or names.get(key, key) for key in tied} if unknown else names
        vector, keyword = (in_order_of_ids(leg, ids) for leg in legs)
        return HybridRankings(vector, keyword, nodes)

    def _nodes(self, keys: Sequence[str], request: EngineRequest[F]) -> Steps[dict[str, Candidate]]:
        texts = yield from self.texts(keys, request)
        return {key: Candidate.stored(text, 0.0) for key, text in texts.items()}

    def _keep_names(self, names: Mapping[str, str]) -> None:
        """Cache the node ids of keys; they never change."""
        if len(self._names) + len(names) > _MOST_NAMES:
            self._names = {}
        self._names.update(names)

    def _keys(self, search: S, hits: Sequence[H]) -> list[ScoredId]:
        """Return keys with scores."""
        pairs = list(zip(self.keys(hits), self.scores(search, hits), strict=True))
        return [pair for pair in pairs if pair[1] > 0] if search.positive else pairs

    def _fused(
        self, legs: Sequence[EngineRequest[F]], how: FusedSearch, *, top_k: int
    ) -> Steps[list[Candidate]]:
        vector, keyword = (yield from self._natives(legs))[0]
        fused = None
        if vector is not None and keyword is not None:
            fused = self.fused_search(vector, keyword, how, top_k=top_k)
        if fused is None:
            first, second = yield from self._search(legs)
            return fuse_candidates(first, second, how.fusion, weights=how.weights, top_k=top_k)
        return (yield from self.rankings([fused]))[0]


# For annotations independent of the engine.
AnySearch = EngineSearch[Any, Any, Any]
