"""`EngineBackend`: the searches of an engine, as the backend of a store."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, Final, Generic, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    EngineFeatures,
    HybridRankings,
    ScoredId,
    Search,
    check_exact,
    fuse_candidates,
    ordered_candidates,
)
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.filters import FilterLanguage
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch

# The engine's types of a search and a hit.
S = TypeVar("S", bound="NativeSearch")
H = TypeVar("H")
T = TypeVar("T")


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


_SCORE: Final[Callable[[ScoredId], float]] = itemgetter(1)
_NO_RANKINGS: Final = HybridRankings([], [], {})


class EngineBackend(ABC, Generic[S, H]):
    """The searches of one engine. Rankings are sorted best first, then by node id.

    Subclasses compile conditions, build and send searches, and read hits. This class handles
    queries without terms, the order of hits, and fusion with a missing leg. If more nodes than
    fit tie with the last hit, the engine chooses among them. Our own stores are backends
    themselves; a backend over a foreign store has it as `store`.

    Attributes:
        engine_name: Engine name.
        language: The engine's filters.
        advice: What to do about a search that the store does not have, by its feature.
        most_candidates: Maximum number of hits that are requested for a fusion.
        nodes_last: Whether `hybrid` may return keys only, for `read` to read the best nodes.
        whole_keyword_leg: Whether the engine's fusion uses all keyword hits.
        has_mmr: Whether `diverse` is implemented.
        scoped_rarity: Whether the engine can compute IDF on a subset of the nodes.
        requires_scope: Whether retrievers refuse queries without a scope.
        requires_principals: Whether retrievers refuse scopes without principals.
        keeps_history: Whether it has nodes that are known no more, which only ``known_at`` finds.
        drop_violations: Whether hits outside scope or filters degrade the answer instead of
            raising.
    """

    engine_name: ClassVar[str]
    language: ClassVar[FilterLanguage[Any]]
    advice: ClassVar[Mapping[str, str]] = {}
    most_candidates: ClassVar[int] = 10_000
    nodes_last: ClassVar[bool] = False
    whole_keyword_leg: ClassVar[bool] = False
    has_mmr: ClassVar[bool] = False
    scoped_rarity: ClassVar[bool] = True

    requires_scope: bool = False
    requires_principals: bool = False
    keeps_history: bool = False
    drop_violations: bool = False

    @property
    def engine(self) -> str:
        """Engine name; does not contact the server."""
        return self.engine_name

    @property
    @abstractmethod
    def store(self) -> BasePydanticVectorStore:
        """The LlamaIndex vector store."""

    @property
    @abstractmethod
    def features(self) -> EngineFeatures:
        """Operations that the engine supports natively."""

    @abstractmethod
    def describe(self) -> Mapping[str, object]:
        """Return the engine, its location and its configuration, without secrets."""

    @abstractmethod
    def call(self, steps: Callable[[], Steps[T]], *, empty: T) -> Call[T]:
        """Return the call that runs steps; its result is `empty` if there is no collection."""

    def compile(self, condition: Condition) -> Any:  # noqa: ANN401 - the engine's filter
        """Return the engine's filter, or raise `UnsupportedFilterError`."""
        return self.language.compile(condition)

    @abstractmethod
    def vector_search(self, embedding: Sequence[float], search: Search) -> S | None:
        """Return the engine's vector search; None if it cannot have hits."""

    @abstractmethod
    def keyword_search(self, text: str, search: Search) -> S | None:
        """Return the engine's keyword search; None if it cannot have hits (no terms)."""

    @abstractmethod
    def pages(self, searches: Sequence[S], *, with_nodes: bool) -> Steps[list[list[H]]]:
        """Send searches; return at most ``top_k`` hits of each, in the engine's order."""

    @abstractmethod
    def scores(self, search: S, hits: Sequence[H]) -> list[float]:
        """Return our scores of the hits of a search."""

    @abstractmethod
    def candidate(self, hit: H, score: float) -> Candidate:
        """Return the candidate of a hit that includes its node."""

    def keys(self, hits: Sequence[H]) -> list[str]:
        """Return the keys that identify the nodes of hits; for `nodes_last`."""
        raise NotImplementedError(hits)

    def read(self, keys: Sequence[str], search: Search) -> Steps[Mapping[str, Candidate]]:
        """Return nodes by key, with score 0, without those deleted or no longer matching."""
        raise NotImplementedError(keys, search)

    def ids_of_tied(self, keys: Sequence[str]) -> Steps[Mapping[str, str]]:
        """Return the node ids of keys with equal scores; empty if keys are node ids."""
        yield from ()
        del keys
        return {}

    def fused_search(self, vector: S, keyword: S, how: FusedSearch, *, top_k: int) -> S | None:
        """Return the engine's fusion of two searches; None if it cannot fuse them."""
        del vector, keyword, top_k
        raise UnsupportedModeError(f"{how.fusion!r} is not in the engine; leave pushdown out")

    def diverse(
        self, embedding: Sequence[float], search: Search, *, lambda_mult: float, candidates: int
    ) -> Call[list[Candidate]]:
        """Return the nodes selected by MMR, in the order of selection."""
        del embedding, search, lambda_mult, candidates
        raise UnsupportedModeError(f"{type(self).__name__} has no MMR")

    def nodes(self, ids: Sequence[str]) -> Call[dict[str, BaseNode]] | None:  # noqa: ARG002 - as subclasses
        """Return the nodes with these ids and their embeddings; None if the store reads them."""
        return None

    def all_nodes(self) -> Call[list[BaseNode]] | None:
        """Return all nodes, for keyword search in memory; None if the engine has its own."""
        return None

    def index_used(self, *, exact: bool) -> str | None:
        """Return a description of the index for vector searches; None if unknown."""
        del exact
        return None

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Return the nearest nodes to an embedding, by the store's distance."""
        search = self._compiled(search, "dense")
        return self.call(lambda: self._best(self.vector_search(embedding, search)), empty=[])

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Return the nodes that share terms with a text; BM25 scores are above 0."""
        search = self._compiled(search, "keyword")
        return self.call(lambda: self._best(self.keyword_search(text, search)), empty=[])

    def hybrid(
        self, embedding: Sequence[float], text: str, search: Search, *, nodes_last: bool
    ) -> Call[HybridRankings]:
        """Return the rankings of both searches, from one request."""
        search = self._compiled(search, "dense", "keyword")
        nodes_last = nodes_last and self.nodes_last

        def steps() -> Steps[HybridRankings]:
            legs = self.vector_search(embedding, search), self.keyword_search(text, search)
            if nodes_last:
                return (yield from self._keys_of_both(legs, search))
            return HybridRankings.of(*(yield from self.rankings(legs)))

        return self.call(steps, empty=_NO_RANKINGS)

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        """Return the candidates of the engine's native fusion."""
        search = self._compiled(search, "dense", "keyword")
        n_keyword = self.most_candidates if self.whole_keyword_leg else how.candidates

        def steps() -> Steps[list[Candidate]]:
            vector = self.vector_search(embedding, replace(search, top_k=how.candidates))
            keyword = self.keyword_search(text, replace(search, top_k=n_keyword))
            native = None
            if vector is not None and keyword is not None:
                native = self.fused_search(vector, keyword, how, top_k=search.top_k)
            if native is not None:
                return (yield from self._best(native))
            nearest, words = yield from self.rankings([vector, keyword])
            return fuse_candidates(
                nearest, words, how.fusion, weights=how.weights, top_k=search.top_k
            )

        return self.call(steps, empty=[])

    def rankings(self, searches: Sequence[S | None]) -> Steps[list[list[Candidate]]]:
        """Return the rankings of searches; an empty one for None."""
        pages = yield from self._pages(searches, with_nodes=True)
        return [
            ordered_candidates(
                self.candidate(hit, score)
                for hit, score in zip(hits, self.scores(search, hits), strict=True)
                if score > 0 or not search.positive
            )
            if search is not None
            else []
            for search, hits in zip(searches, pages, strict=True)
        ]

    def _compiled(self, search: Search, *kinds: str) -> Search:
        """Return a search with its conditions compiled; raise if it is not supported."""
        if self.advice or search.exact:
            features = self.features
            for kind in kinds:
                if getattr(features, kind) is None:
                    raise UnsupportedModeError(f"{type(self.store).__name__}: {self.advice[kind]}")
            if "dense" in kinds:
                check_exact(self.engine, features, search)
        condition, scope = search.condition, search.scope and search.scope.for_everyone
        filter_ = search.filter if condition is None else self.compile(condition)
        corpus = None
        if scope is not None and self.scoped_rarity:
            same = scope.condition == condition
            corpus = filter_ if same else self.compile(scope.condition)
        return replace(search, filter=filter_, corpus=corpus)

    def _best(self, search: S | None) -> Steps[list[Candidate]]:
        (ranking,) = yield from self.rankings([search])
        return ranking

    def _pages(self, searches: Sequence[S | None], *, with_nodes: bool) -> Steps[list[list[H]]]:
        """Send the searches that can have hits, in one request if the engine takes several."""
        sent = [*filter(None, searches)]
        pages = iter((yield from self.pages(sent, with_nodes=with_nodes)) if sent else [])
        return [[] if search is None else next(pages) for search in searches]

    def _keys_of_both(self, searches: Sequence[S | None], search: Search) -> Steps[HybridRankings]:
        """Return both rankings by key; nodes are read only if their ids decide between ties."""
        pages = yield from self._pages(searches, with_nodes=False)
        legs: list[list[ScoredId]] = []
        tied: list[str] = []
        for native, hits in zip(searches, pages, strict=True):
            scores = [] if native is None else self.scores(native, hits)
            leg = list(zip(self.keys(hits), scores, strict=True))
            if native is not None and native.positive:
                leg = [pair for pair in leg if pair[1] > 0]
            counts = Counter(map(_SCORE, leg))
            if len(counts) < len(leg):
                tied += [key for key, score in leg if counts[score] > 1]
            legs.append(leg)
        ids = (yield from self.ids_of_tied(tied)) if tied else {}
        for leg in legs:
            if tied:  # the second sort keeps the order of equal scores
                leg.sort(key=lambda pair: ids.get(pair[0], pair[0]))
            leg.sort(key=_SCORE, reverse=True)

        nearest, words = legs
        read = partial(self.read, search=search)
        return HybridRankings(
            nearest, words, {}, lambda keys: self.call(partial(read, keys), empty={})
        )
