"""`Backend`: the adapter around a LlamaIndex vector store that retrievers send searches to."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeAlias, runtime_checkable

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, FilterOperator

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.pipeline.fusion import FusedId, Fusion
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.results import Contribution
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_id_in
from llama_retrieval_ext.stores.encoding.vectors import ScoreRange
from llama_retrieval_ext.stores.engine.pushdown import LEGS, FusedSearch, NativeFusion


class Candidate:
    """A node that a backend found, and its score; higher is better.

    Most candidates of a fusion are dropped, so a backend may pass what the node is made of.

    Attributes:
        node_id: The node's id.
        score: As the backend declares it in its features, or that of a fusion.
        contributions: What each search gave to the score of a fusion.
    """

    __slots__ = ("_node", "contributions", "node_id", "score")

    def __init__(self, node: BaseNode, score: float) -> None:
        self.node_id = node.node_id
        self.score = score
        self.contributions: tuple[Contribution, ...] = ()
        self._node: BaseNode | str | Callable[[], BaseNode] = node

    @classmethod
    def later(
        cls,
        node_id: str,
        score: float,
        node: BaseNode | str | Callable[[], BaseNode],
        contributions: tuple[Contribution, ...] = (),
    ) -> Self:
        """Return a candidate whose node is made on first access."""
        found = cls.__new__(cls)
        found.node_id, found.score, found.contributions = node_id, score, contributions
        found._node = node  # noqa: SLF001 - of its own class
        return found

    @classmethod
    def stored(cls, text: str, score: float, contributions: tuple[Contribution, ...] = ()) -> Self:
        """Return the candidate of a node that is stored as text."""
        found = cls.__new__(cls)
        found.node_id, found.score, found.contributions = node_id_in(text), score, contributions
        found._node = text  # noqa: SLF001 - of its own class
        return found

    def rescored(self, score: float, contributions: tuple[Contribution, ...] = ()) -> "Candidate":
        """Return the same node with another score."""
        return Candidate.later(self.node_id, score, self._node, contributions)

    @property
    def node(self) -> BaseNode:
        """The node."""
        node = self._node
        if isinstance(node, str):
            node = self._node = node_from_text(node)
        elif not isinstance(node, BaseNode):
            node = self._node = node()
        return node

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Candidate):
            return NotImplemented
        return self.score == other.score and self.node == other.node

    def __hash__(self) -> int:
        return hash((self.node_id, self.score))

    def __repr__(self) -> str:
        return f"Candidate({self.node_id!r}, {self.score})"


def ordered_candidates(found: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates best first, equal scores by node id."""
    return sorted(found, key=lambda each: (-each.score, each.node_id))


EVERY_OPERATOR: Final = frozenset(FilterOperator)

# A node's id, and its raw score.
ScoredId: TypeAlias = tuple[str, float]


@dataclass(frozen=True, slots=True)
class EngineFeatures:
    """What a backend does natively; the rest is done above it, or refused.

    Attributes:
        operators: The filter operators that it evaluates exactly; it refuses all others. None
            if unknown: the store itself refuses what it cannot evaluate.
        dense: Raw scores of vector search; None where there is no vector search.
        keyword: Raw scores of keyword search; None where there is no keyword search.
        one_round_trip: Whether a vector and a keyword search can go out as one request.
        fusions: How the engine itself fuses both; a backend that names any is a `FusingBackend`.
        most_hits: How many hits one search returns at most; None for any number.
        mmr: Whether the engine diversifies by itself.
        exact: Whether a vector search can do without an approximate index.
        real_async: Whether its async calls leave the event loop free without a thread.
    """

    dense: ScoreRange | None = None
    keyword: ScoreRange | None = None
    one_round_trip: bool = False
    fusions: tuple[NativeFusion, ...] = ()
    most_hits: int | None = None
    mmr: bool = False
    exact: bool = False
    real_async: bool = False
    operators: frozenset[FilterOperator] | None = EVERY_OPERATOR


@dataclass(frozen=True, slots=True)
class Search:
    """What vector and keyword searches have in common.

    Attributes:
        top_k: How many to return, at least 1.
        condition: What each must satisfy, scope included; None for everything.
        scope: The scope alone: statistics such as IDF are taken over what it can see, so that
            scores do not tell one tenant about another's documents.
        exact: Whether a vector search compares every embedding instead of an index.
    """

    top_k: int
    condition: Condition | None = None
    scope: Scope | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """One vector search."""

    embedding: tuple[float, ...]
    search: Search


@dataclass(frozen=True, slots=True)
class KeywordQuery:
    """One keyword search."""

    text: str
    search: Search


EngineQuery: TypeAlias = VectorQuery | KeywordQuery
# Fuses the rankings of a vector and a keyword search; see `Backend.hybrid`.
Choose: TypeAlias = Callable[[Sequence[ScoredId], Sequence[ScoredId]], Sequence[FusedId]]


def hybrid_queries(
    embedding: Sequence[float], text: str, search: Search
) -> tuple[VectorQuery, KeywordQuery]:
    """Return a vector query and a keyword query of one search."""
    return VectorQuery(tuple(embedding), search), KeywordQuery(text, search)


@runtime_checkable
class Backend(Protocol):
    """One interface to every engine.

    A search is a `Call`: a plan yields it, and the driver runs it by threads or on the loop.
    Results come best first, equal scores by node id, and satisfy the condition exactly; no match
    gives an empty list.
    """

    @property
    def store(self) -> BasePydanticVectorStore:
        """The LlamaIndex vector store behind it."""
        ...

    @property
    def engine(self) -> str:
        """Engine name; does not contact the server."""
        ...

    @property
    def features(self) -> EngineFeatures:
        """What the engine does natively."""
        ...

    @property
    def drop_violations(self) -> bool:
        """Whether hits from outside scope or filters degrade the answer instead of raising."""
        ...

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Return the nearest nodes to an embedding, by the store's own similarity.

        Raises:
            UnsupportedModeError: The store has no vector search.
            UnsupportedFilterError: The store cannot evaluate the condition; nothing was sent.
            DimensionMismatchError: The embedding does not have the store's dimension.
        """
        ...

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Return nodes that share terms with a text, by BM25; only those with a score above 0.

        Raises:
            UnsupportedModeError: The store has no keyword search.
            UnsupportedFilterError: The store cannot evaluate the condition; nothing was sent.
        """
        ...

    def batch(self, queries: Sequence[EngineQuery]) -> Call[list[list[Candidate]]] | None:
        """Return one ranking a query, from as few requests as the engine can.

        Each ranking is that of `dense` or `keyword`. None where it takes as many requests as
        queries.

        Raises:
            UnsupportedModeError: The store has no such search.
            UnsupportedFilterError: The store cannot evaluate a condition; nothing was sent.
            DimensionMismatchError: An embedding does not have the store's dimension.
        """
        ...

    def hybrid(
        self, vector: VectorQuery, keyword: KeywordQuery, choose: Choose, *, top_k: int
    ) -> Call[list[Candidate]] | None:
        """Return the candidates that a function chooses from a vector and a keyword search.

        An engine that reads nodes slowly may read those of the chosen ids only. None where it
        takes as many requests as queries.

        Args:
            vector: The vector search.
            keyword: The keyword search.
            choose: Returns the best of both rankings, best first, and all that tie with the last
                of them; must be fast. It is called with node ids, or with keys that stand for them.
            top_k: How many candidates to return at most.

        Returns:
            Best first, equal scores by node id, each with the score and the contributions that
            were chosen; nodes that were deleted meanwhile are left out.

        Raises:
            UnsupportedFilterError: The store cannot evaluate the condition; nothing was sent.
            DimensionMismatchError: The embedding does not have the store's dimension.
        """
        ...

    def describe(self) -> Mapping[str, object]:
        """Return the engine and its configuration, for traces and tables; never a secret."""
        ...


def check_exact(engine: str, features: EngineFeatures, query: EngineQuery) -> None:
    """Raise `UnsupportedModeError` for an exact search where the engine has none."""
    if query.search.exact and isinstance(query, VectorQuery) and not features.exact:
        raise UnsupportedModeError(
            f"{engine} cannot search without its index for one query; leave exact=True out"
        )


@runtime_checkable
class FusingBackend(Backend, Protocol):
    """A backend whose engine can fuse a vector and a keyword search by itself."""

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        """Return the best of both searches as the engine fuses them; scores are the fusion's.

        The result is that of our own fusion of both rankings, but for nodes that tie in one of
        them: which of these ranks higher is the engine's choice.

        Args:
            embedding: For the vector search.
            text: For the keyword search.
            search: How many to return, and what each must satisfy, in both searches.
            how: One of the fusions in the features.

        Raises:
            UnsupportedFilterError: The store cannot evaluate the condition; nothing was sent.
            DimensionMismatchError: The embedding does not have the store's dimension.
        """
        ...


def fusing(backend: Backend) -> FusingBackend:
    """Return the backend if it fuses natively, else raise `UnsupportedModeError`."""
    if not isinstance(backend, FusingBackend):
        raise UnsupportedModeError(
            f"{type(backend).__name__} has no fusion of its own; leave pushdown out"
        )
    return backend


class UnbatchedSearches:
    """Mixin for backends that cannot batch searches."""

    def batch(self, queries: Sequence[EngineQuery]) -> None:
        """Return None: there is no such request."""
        del queries

    def hybrid(
        self, vector: VectorQuery, keyword: KeywordQuery, choose: Choose, *, top_k: int
    ) -> None:
        """Return None: there is no such request."""
        del vector, keyword, choose, top_k


def chosen_candidates(
    choose: Choose, near: Sequence[Candidate], sharing: Sequence[Candidate], *, top_k: int
) -> list[Candidate]:
    """Return the candidates that a function chooses from two rankings, in its order."""
    by_id = {each.node_id: each for each in (*sharing, *near)}
    return [
        by_id[node_id].rescored(score, contributions)
        for node_id, score, contributions in choose(scored_ids(near), scored_ids(sharing))[:top_k]
    ]


def scored_ids(ranking: Sequence[Candidate]) -> list[ScoredId]:
    """Return the ids and scores of a ranking."""
    return [(each.node_id, each.score) for each in ranking]


def fuse_candidates(
    near: Sequence[Candidate],
    sharing: Sequence[Candidate],
    fusion: Fusion,
    *,
    top_k: int,
    weights: Sequence[float] | None = None,
) -> list[Candidate]:
    """Fuse the ranking of a vector search and that of a keyword search."""
    top = fusion.fuse_ids(
        {leg: scored_ids(ranking) for leg, ranking in zip(LEGS, (near, sharing), strict=True)},
        weights=None if weights is None else dict(zip(LEGS, weights, strict=True)),
        top_k=top_k,
    )
    by_id = {each.node_id: each for each in (*sharing, *near)}
    return [by_id[each.node_id].rescored(each.score) for each in top]


def fuse_legs(
    near: Sequence[Candidate], sharing: Sequence[Candidate], how: FusedSearch, *, top_k: int
) -> list[Candidate]:
    """Return what the engine's fusion gives, computed here: for a leg without candidates."""
    return fuse_candidates(near, sharing, how.fusion, weights=how.weights, top_k=top_k)
