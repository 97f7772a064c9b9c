"""`Backend`: the adapter around a LlamaIndex vector store that basic retrievers talk to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeAlias, runtime_checkable

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, FilterOperator

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.pipeline.fusion import FusedId, Fusion
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.engine.pushdown import LEGS, FusedSearch, NativeFusion


class Candidate:
    """A node that a backend found, and its raw score; higher is better.

    Of the candidates of a fusion most are never looked at, so a backend may hand over how to make
    the node instead of the node.

    Attributes:
        node_id: The node's id.
        score: As the backend declares it in its features.
    """

    __slots__ = ("_node", "node_id", "score")

    def __init__(self, node: BaseNode, score: float) -> None:
        self.node_id = node.node_id
        self.score = score
        self._node: BaseNode | Callable[[], BaseNode] = node

    @classmethod
    def later(cls, node_id: str, score: float, make: Callable[[], BaseNode]) -> Self:
        """A node that is made when it is first looked at."""
        found = cls.__new__(cls)
        found.node_id, found.score = node_id, score
        found._node = make  # noqa: SLF001 - of its own class
        return found

    def rescored(self, score: float) -> "Candidate":
        """The same node with another score."""
        return Candidate.later(self.node_id, score, lambda: self.node)

    @property
    def node(self) -> BaseNode:
        """The node."""
        if not isinstance(self._node, BaseNode):
            self._node = self._node()
        return self._node

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Candidate):
            return NotImplemented
        return self.score == other.score and self.node == other.node

    def __hash__(self) -> int:
        return hash((self.node_id, self.score))

    def __repr__(self) -> str:
        return f"Candidate({self.node_id!r}, {self.score})"


EVERY_OPERATOR: Final = frozenset(FilterOperator)

# A node's id, and its raw score.
ScoredId: TypeAlias = tuple[str, float]


@dataclass(frozen=True, slots=True)
class ScoreRange:
    """What the raw scores of a search mean. Higher is always better: backends turn distances round.

    Attributes:
        kind: ``cosine``, ``dot``, ``bm25``, ``negative_distance`` or ``unknown``.
        low: Smallest possible score; None when there is none or it is not known.
        high: Largest possible score; None likewise.
    """

    kind: str = "unknown"
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class EngineFeatures:
    """What a backend does natively; what it does not is done above it, or refused.

    Attributes:
        operators: The filter operators that it evaluates, exactly; it refuses all others. None
            where only the store knows, which then refuses what it cannot evaluate.
        dense: Raw scores of vector search; None where there is no vector search.
        keyword: Raw scores of keyword search; None where there is no keyword search.
        one_round_trip: Whether a dense and a keyword search can go out as one request.
        ids_first: Whether the ids of many and then the nodes of a few cost less than the nodes of
            many; such a backend is an `IdsFirstBackend`.
        fusions: How the engine itself can make one ranking of both; a backend that names any is a
            `FusingBackend`.
        grouping: Whether the engine finds a few nodes of each document by itself; such a backend is
            a `GroupingBackend`.
        most_hits: How many hits there are at most to be had at once; None for any number.
        mmr: Whether the engine diversifies by itself.
        real_async: Whether its async calls leave the event loop free without a thread.
    """

    dense: ScoreRange | None = None
    keyword: ScoreRange | None = None
    one_round_trip: bool = False
    ids_first: bool = False
    fusions: tuple[NativeFusion, ...] = ()
    grouping: bool = False
    most_hits: int | None = None
    mmr: bool = False
    real_async: bool = False
    operators: frozenset[FilterOperator] | None = EVERY_OPERATOR


@dataclass(frozen=True, slots=True)
class Search:
    """What every kind of search is told besides what to look for.

    Attributes:
        top_k: How many to return, at least 1.
        condition: What each must satisfy, scope included; None for everything.
        scope: The scope alone: statistics such as IDF are taken over what it can see, so that
            scores do not tell one tenant about another's documents.
    """

    top_k: int
    condition: Condition | None = None
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """One vector search."""

    embedding: tuple[float, ...]
    search: Search

    @property
    def sought(self) -> "Sought":
        """The embedding."""
        return self.embedding


@dataclass(frozen=True, slots=True)
class KeywordQuery:
    """One keyword search."""

    text: str
    search: Search

    @property
    def sought(self) -> "Sought":
        """The text."""
        return self.text


EngineQuery: TypeAlias = VectorQuery | KeywordQuery
# What a vector search looks for, or a keyword search.
Sought: TypeAlias = Sequence[float] | str


def hybrid_queries(embedding: Sequence[float], text: str, search: Search) -> list[EngineQuery]:
    """A vector search and a keyword search that are told the same."""
    return [VectorQuery(tuple(embedding), search), KeywordQuery(text, search)]


@runtime_checkable
class Backend(Protocol):
    """One way to ask every engine.

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
        """The engine's name; it is not asked for it."""
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
        """Nearest nodes to an embedding, by the store's own similarity.

        Raises:
            UnsupportedModeError: The store has no vector search.
            UnsupportedFilterError: The store cannot evaluate the condition; nothing was sent.
            DimensionMismatchError: The embedding does not have the store's dimension.
        """
        ...

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Nodes that share terms with a text, by BM25; only those with a score above 0.

        Raises:
            UnsupportedModeError: The store has no keyword search.
            UnsupportedFilterError: The store cannot evaluate the condition; nothing was sent.
        """
        ...

    def batch(self, asked: Sequence[EngineQuery]) -> Call[list[list[Candidate]]] | None:
        """Several searches in as few requests as the engine can, one ranking each.

        Each gets what `dense` or `keyword` gives. None where it takes as many requests as searches.

        Raises:
            UnsupportedModeError: The store has no such search.
            UnsupportedFilterError: The store cannot evaluate a condition; nothing was sent.
            DimensionMismatchError: An embedding does not have the store's dimension.
        """
        ...

    def describe(self) -> Mapping[str, object]:
        """What the engine is and how it is set up, for traces and tables; never a secret."""
        ...


@runtime_checkable
class FusingBackend(Backend, Protocol):
    """A backend whose engine can fuse a dense and a keyword search by itself."""

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        """The best of both searches as the engine fuses them; scores are the fusion's.

        The result is that of our own fusion of both rankings, but for nodes that tie in one of
        them: which of these ranks higher is the engine's choice.

        Args:
            embedding: What dense search looks for.
            text: What keyword search looks for.
            search: How many to return, and what each must satisfy, in both searches.
            how: One of the fusions that the features name.

        Raises:
            UnsupportedFilterError: The store cannot evaluate the condition; nothing was sent.
            DimensionMismatchError: The embedding does not have the store's dimension.
        """
        ...


# What is chosen of the ids that vector search and keyword search found.
Choice: TypeAlias = Callable[[Sequence[ScoredId], Sequence[ScoredId]], list[FusedId]]
Chosen: TypeAlias = tuple[list[FusedId], Mapping[str, BaseNode]]


@runtime_checkable
class IdsFirstBackend(Backend, Protocol):
    """A backend that reads the nodes of the best alone."""

    def best_of_both(
        self, embedding: Sequence[float], text: str, search: Search, choose: Choice
    ) -> Call[Chosen]:
        """What is chosen of a vector search and a keyword search, with its nodes.

        Args:
            embedding: What vector search looks for.
            text: What keyword search looks for.
            search: How many each is to find, and what all must satisfy.
            choose: Says which of both are wanted; it must not take long.

        Returns:
            What was chosen, and nodes by id; without those that meanwhile are gone, or do not
            satisfy the search any more.

        Raises:
            UnsupportedFilterError: The store cannot evaluate the condition; nothing was sent.
            DimensionMismatchError: The embedding does not have the store's dimension.
        """
        ...


def fusing(backend: Backend) -> FusingBackend:
    """The backend as one that fuses.

    Raises:
        UnsupportedModeError: It is none.
    """
    if not isinstance(backend, FusingBackend):
        raise UnsupportedModeError(
            f"{type(backend).__name__} has no fusion of its own; leave pushdown out"
        )
    return backend


def ids_first(backend: Backend) -> IdsFirstBackend:
    """The backend as one that gives ids first.

    Raises:
        UnsupportedModeError: It is none.
    """
    if not isinstance(backend, IdsFirstBackend):
        raise UnsupportedModeError(f"{type(backend).__name__} gives nodes and ids together only")
    return backend


@runtime_checkable
class GroupingBackend(Backend, Protocol):
    """A backend whose engine looks for more until it has found enough documents."""

    def grouped(self, asked: EngineQuery, size: int) -> Call[list[Candidate]]:
        """The best nodes of the best documents, best first.

        Of nodes that tie where they are cut the engine chooses, and engines give up looking at some
        time: whoever needs the exact ranking must look whether it depends on that.

        Args:
            asked: A search; its ``top_k`` counts documents.
            size: How many nodes of each at most. A node without a document counts as one.

        Raises:
            UnsupportedModeError: The store has no such search.
            UnsupportedFilterError: The store cannot evaluate the condition; nothing was sent.
            DimensionMismatchError: The embedding does not have the store's dimension.
        """
        ...


def grouping(backend: Backend) -> GroupingBackend:
    """The backend as one that groups.

    Raises:
        UnsupportedModeError: It is none.
    """
    if not isinstance(backend, GroupingBackend):
        raise UnsupportedModeError(f"{type(backend).__name__} does not group by itself")
    return backend


class UnbatchedSearches:
    """Says that there is no request for several searches; they go out side by side."""

    def batch(self, asked: Sequence[EngineQuery]) -> None:
        """None: there is no such request."""
        del asked


def fused(
    dense: Sequence[Candidate],
    keyword: Sequence[Candidate],
    fusion: Fusion,
    *,
    top_k: int,
    weights: Sequence[float] | None = None,
) -> list[Candidate]:
    """Both rankings as one.

    Args:
        dense: What vector search found, best first.
        keyword: What keyword search found, best first.
        fusion: How they are fused.
        top_k: How many to return.
        weights: Of vector and of keyword search; None for the fusion's own.

    Returns:
        Best first, equal scores by node id.
    """
    rankings = zip(LEGS, (dense, keyword), strict=True)
    top = fusion.fuse_ids(
        {leg: [(each.node_id, each.score) for each in ranking] for leg, ranking in rankings},
        weights=None if weights is None else dict(zip(LEGS, weights, strict=True)),
        top_k=top_k,
    )
    by_id = {each.node_id: each for each in (*keyword, *dense)}
    return [by_id[each.node_id].rescored(each.score) for each in top]


def fused_here(
    dense: Sequence[Candidate], keyword: Sequence[Candidate], how: FusedSearch, *, top_k: int
) -> list[Candidate]:
    """What the engine would have made of two rankings, where it has nothing to fuse of."""
    return fused(dense, keyword, how.fusion, weights=how.weights, top_k=top_k)
