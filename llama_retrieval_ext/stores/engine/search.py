"""`EngineSearch`: the search skeleton that all engines share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.plan import Steps
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_id_in
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    Choose,
    EngineQuery,
    KeywordQuery,
    VectorQuery,
    chosen_candidates,
    fuse_legs,
)
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch

# A compiled filter, a search, and a hit, each in the engine's terms.
F = TypeVar("F")
S = TypeVar("S", bound="NativeSearch")
H = TypeVar("H")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineRequest(Generic[F]):
    """A query with its filters compiled for the engine.

    Attributes:
        query: The vector or keyword query.
        filter: What each hit must match; None for everything.
        corpus: The nodes that the rarity of terms is measured on; None for all.
    """

    query: EngineQuery
    filter: F | None = None
    corpus: F | None = None

    @property
    def top_k(self) -> int:
        """How many hits to return."""
        return self.query.search.top_k

    def with_top_k(self, top_k: int) -> Self:
        """Return the same request for another number of hits."""
        search = replace(self.query.search, top_k=top_k)
        return replace(self, query=replace(self.query, search=search))


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeSearch:
    """One search in the engine's terms; engines add what they send.

    Attributes:
        top_k: How many hits to return.
        score: From the engine's score to ours: finite, higher is better.
        spare: How many more hits to request at first, so that a tie at the cut shows and is not
            cut through. Fused ranks often tie in pairs.
        positive: Whether a score of 0 or less is no hit, as of a text that shares no term.
    """

    top_k: int
    score: Callable[[float], float]
    spare: int = 1
    positive: bool = False


class EngineSearch(ABC, Generic[F, S, H]):
    """Searches of one engine, as steps. Rankings come best first, equal scores by node id.

    An engine compiles conditions, builds its searches, sends them, and reads hits; the rest is
    here: batches, queries without terms, ties at the cut, and fusion where one leg is missing.

    Attributes:
        most_hits: How many hits the engine is asked for at most. Of more nodes that tie at the
            cut the engine's choice stands: to order all of them by id would take seconds.
        few_hits: Up to so many hits are requested with their nodes while it is not known how many
            tie: over a network that costs less than another request.
        has_mmr: Whether `diverse` is implemented.
        scoped_rarity: Whether the engine can measure the rarity of terms on a part of the nodes.
    """

    most_hits: ClassVar[int] = 10_000
    few_hits: ClassVar[int] = 512
    has_mmr: ClassVar[bool] = False
    scoped_rarity: ClassVar[bool] = True

    @abstractmethod
    def compile(self, condition: Condition) -> F:
        """Return the engine's filter, or raise `UnsupportedFilterError`."""

    @abstractmethod
    def vector_search(self, query: VectorQuery, request: EngineRequest[F]) -> S | None:
        """Return the engine's vector search; None if it cannot have hits."""

    @abstractmethod
    def keyword_search(self, query: KeywordQuery, request: EngineRequest[F]) -> S | None:
        """Return the engine's keyword search; None if it cannot have hits, as without terms."""

    def fused_search(self, near: S, sharing: S, how: FusedSearch, *, top_k: int) -> S:
        """Return the engine's fusion of two searches."""
        del near, sharing, top_k
        raise UnsupportedModeError(f"{how.fusion!r} is not in the engine; leave pushdown out")

    @abstractmethod
    def pages(
        self, searches: Sequence[S], limits: Sequence[int], *, with_nodes: bool
    ) -> Steps[list[list[H]]]:
        """Send searches and return at most so many hits of each, in the engine's order."""

    @abstractmethod
    def raw_score(self, hit: H) -> float:
        """Return the engine's score of a hit."""

    @abstractmethod
    def candidate(self, hit: H, score: float) -> Candidate:
        """Return the candidate of a hit that came with its node."""

    def if_exists(self, steps: Callable[[], Steps[T]], *, empty: T) -> Steps[T]:
        """Run steps against the collection; return `empty` where there is none."""
        del empty
        return (yield from steps())

    def diverse(
        self, request: EngineRequest[F], *, lambda_mult: float, candidates: int
    ) -> Steps[list[Candidate]]:
        """Return near nodes that do not repeat each other, in the order picked by MMR.

        Args:
            request: A vector query; how many to pick, and from which nodes.
            lambda_mult: 1 is nearness alone, 0 is diversity alone.
            candidates: How many of the nearest to pick from.

        Returns:
            Each with its similarity to the embedding, which need not fall from pick to pick.
        """
        del request, lambda_mult, candidates
        raise UnsupportedModeError(f"{type(self).__name__} has no MMR")

    def request(self, query: EngineQuery) -> EngineRequest[F]:
        """Compile a query's conditions."""
        condition, scope = query.search.condition, query.search.scope
        measured = isinstance(query, KeywordQuery) and self.scoped_rarity and scope is not None
        return EngineRequest(
            query,
            None if condition is None else self.compile(condition),
            self.compile(scope.condition) if measured and scope is not None else None,
        )

    def search(self, requests: Sequence[EngineRequest[F]]) -> Steps[list[list[Candidate]]]:
        """Return one ranking a request, from as few round trips as the engine can."""
        empty: list[list[Candidate]] = [[] for _ in requests]
        return self.if_exists(lambda: self._search(requests), empty=empty)

    def hybrid(
        self,
        near: EngineRequest[F],
        sharing: EngineRequest[F],
        choose: Choose,
        *,
        top_k: int,
    ) -> Steps[list[Candidate]]:
        """Return the candidates that `choose` takes from two requests; see `Backend.hybrid`."""
        del top_k
        legs = yield from self.search([near, sharing])
        return chosen_candidates(choose, *legs)

    def fused(
        self, near: EngineRequest[F], sharing: EngineRequest[F], how: FusedSearch
    ) -> Steps[list[Candidate]]:
        """Return the best of a vector and a keyword request as the engine fuses them."""
        nothing: list[Candidate] = []
        return self.if_exists(lambda: self._fused(near, sharing, how), empty=nothing)

    def native(self, request: EngineRequest[F]) -> Steps[S | None]:
        """Return the engine's search; None if it cannot have hits."""
        yield from ()
        match request.query:
            case VectorQuery() as query:
                return self.vector_search(query, request)
            case query:
                return self.keyword_search(query, request)

    def first_limit(self, search: S) -> int:
        """How many hits to request at first."""
        return search.top_k + search.spare

    def scores(self, search: S, hits: Sequence[H]) -> list[float]:
        """Return our scores of hits."""
        return [search.score(self.raw_score(hit)) for hit in hits]

    def rankings(self, searches: Sequence[S]) -> Steps[list[list[Candidate]]]:
        """Send searches together, and again alone those whose cut goes through a tie."""
        limits = [self.first_limit(search) for search in searches]
        pages = yield from self.pages(searches, limits, with_nodes=True)
        rankings = []
        for search, hits, limit in zip(searches, pages, limits, strict=True):
            rankings.append((yield from self._ranking(search, hits, limit)))
        return rankings

    def _search(self, requests: Sequence[EngineRequest[F]]) -> Steps[list[list[Candidate]]]:
        searches: list[S | None] = []
        for request in requests:
            searches.append((yield from self.native(request)))  # noqa: PERF401 - no generator there
        some = [search for search in searches if search is not None]
        found = iter((yield from self.rankings(some)) if some else [])
        return [[] if search is None else next(found) for search in searches]

    def _fused(
        self, near: EngineRequest[F], sharing: EngineRequest[F], how: FusedSearch
    ) -> Steps[list[Candidate]]:
        legs = near.with_top_k(how.candidates), sharing.with_top_k(how.candidates)
        nearest = yield from self.native(legs[0])
        matching = yield from self.native(legs[1])
        if nearest is None or matching is None:
            dense, keyword = yield from self._search(legs)
            return fuse_legs(dense, keyword, how, top_k=near.top_k)
        fused = self.fused_search(nearest, matching, how, top_k=near.top_k)
        return (yield from self.rankings([fused]))[0]

    def _ranking(self, search: S, hits: list[H], limit: int) -> Steps[list[Candidate]]:
        scores = self.scores(search, hits)
        if len(hits) >= limit and scores[-1] == scores[search.top_k - 1]:
            hits = yield from self._with_ties(search, hits, scores)
            scores = self.scores(search, hits)
        ranking = [
            self.candidate(hit, score)
            for hit, score in zip(hits, scores, strict=True)
            if score > 0 or not search.positive
        ]
        ranking.sort(key=lambda each: (-each.score, each.node_id))
        return ranking[: search.top_k]

    def _with_ties(self, search: S, hits: list[H], scores: list[float]) -> Steps[list[H]]:
        """Return all hits as good as the last before the cut, so that ids decide between them."""
        limit, cut, with_nodes = len(hits), search.top_k - 1, True
        while len(hits) == limit < self.most_hits and scores[-1] == scores[cut]:
            limit = min(4 * limit, self.most_hits)
            with_nodes = limit <= self.few_hits
            (hits,) = yield from self.pages([search], [limit], with_nodes=with_nodes)
            scores = self.scores(search, hits)
        good = sum(score >= scores[cut] for score in scores)
        if not with_nodes:
            (hits,) = yield from self.pages([search], [good], with_nodes=True)
        return hits[:good]


# For annotations where the engine does not matter.
AnySearch = EngineSearch[Any, Any, Any]


def stored_candidate(text: str, score: float) -> Candidate:
    """Return the candidate of a node that is stored as text."""
    return Candidate.later(node_id_in(text), score, lambda: node_from_text(text))
