"""`Backend`: the adapter that retrievers use to search a LlamaIndex vector store."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeAlias, runtime_checkable

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, FilterOperator

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.pipeline.fusion import FusedId, Fusion
from llama_retrieval_ext.results import Contribution
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_id_in
from llama_retrieval_ext.stores.encoding.vectors import ScoreRange
from llama_retrieval_ext.stores.engine.pushdown import LEGS, FusedSearch, NativeFusion


class Candidate:
    """A node found by a backend, and its score; higher is better.

    The node may be built lazily, because a fusion drops most candidates: from its stored text, or
    by a function, with which its id is needed.

    Attributes:
        node_id: The node's id.
        score: Raw score as declared in the backend's features, or the score of a fusion.
        contributions: Share of each search in the score of a fusion.
    """

    __slots__ = ("_node", "contributions", "node_id", "score")

    def __init__(
        self,
        node: BaseNode | str | Callable[[], BaseNode],
        score: float,
        contributions: tuple[Contribution, ...] = (),
        *,
        node_id: str = "",
    ) -> None:
        if isinstance(node, str):
            node_id = node_id or node_id_in(node)
        elif isinstance(node, BaseNode):
            node_id = node.node_id
        self.node_id, self.score, self.contributions = node_id, score, contributions
        self._node = node

    def rescored(self, score: float, contributions: tuple[Contribution, ...] = ()) -> "Candidate":
        """Return the same node with another score."""
        return Candidate(self._node, score, contributions, node_id=self.node_id)

    @property
    def node(self) -> BaseNode:
        """The node."""
        node = self._node
        if isinstance(node, str):
            node = self._node = node_from_text(node)
        elif not isinstance(node, BaseNode):
            node = self._node = node()
        return node

    def __repr__(self) -> str:
        return f"Candidate({self.node_id!r}, {self.score})"


def ordered_candidates(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates best first, equal scores by node id."""
    return unique(sorted(candidates, key=lambda candidate: (-candidate.score, candidate.node_id)))


def unique(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the first candidate of each node, which has two rows while it is written."""
    first: dict[str, Candidate] = {}
    for candidate in candidates:
        first.setdefault(candidate.node_id, candidate)
    return list(first.values())


EVERY_OPERATOR: Final = frozenset(FilterOperator)

# A node's id, and its raw score.
ScoredId: TypeAlias = tuple[str, float]


@dataclass(frozen=True, slots=True)
class EngineFeatures:
    """Operations that a backend supports natively; others are emulated or refused.

    Attributes:
        operators: Filter operators that it evaluates exactly; it refuses all others. None
            if unknown: the store itself raises for unsupported operators.
        dense: Range of raw vector scores; None without vector search.
        keyword: Range of raw keyword scores; None without keyword search.
        one_round_trip: Whether one request can carry a vector and a keyword search; such a
            backend is a `HybridBackend`.
        fusions: Native fusions; a backend with any is a `HybridBackend`.
        most_hits: Maximum number of hits per search; None for no limit.
        mmr: Whether the engine computes MMR.
        exact: Whether a vector search can bypass the approximate index.
        real_async: Whether its async calls need no thread to keep the event loop free.
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
    """Parameters shared by vector and keyword searches.

    Attributes:
        top_k: Number of hits to return, at least 1.
        condition: Condition that every hit satisfies, scope included; None for no condition.
        scope: The scope alone. Statistics such as IDF cover only its nodes, so that scores do
            not reveal other tenants' documents.
        exact: Whether a vector search compares every embedding instead of using an index.
        fields: Weight of each field of a keyword search; None for those of the store's schema.
        filter: The condition in the engine's form, which a backend fills in; None for no filter.
        corpus: The filter for the nodes that IDF is computed on, which ignores principals; None for
            all nodes.
    """

    top_k: int
    condition: Condition | None = None
    scope: Scope | None = None
    exact: bool = False
    fields: Mapping[str, float] | None = None
    filter: Any = None  # Any: the engine's
    corpus: Any = None


@dataclass(frozen=True, slots=True)
class HybridRankings:
    """The rankings of a vector and a keyword search of one request.

    Nodes are identified by node id, or by a key of the engine if the nodes are read last.

    Attributes:
        vector: Scores of the nearest nodes, best first.
        keyword: Scores of the nodes that share terms, best first.
        nodes: The nodes, if they were read with the rankings.
        read: Returns the call that reads nodes by key, without those deleted meanwhile; None if
            they were read with the rankings.
    """

    vector: Sequence[ScoredId]
    keyword: Sequence[ScoredId]
    nodes: Mapping[str, Candidate]
    read: Callable[[Sequence[str]], Call[Mapping[str, Candidate]]] | None = None

    @classmethod
    def of(cls, vector: Sequence[Candidate], keyword: Sequence[Candidate]) -> Self:
        """Return the rankings of candidates, which have their nodes."""
        nodes = {candidate.node_id: candidate for candidate in (*keyword, *vector)}
        return cls(scored_ids(vector), scored_ids(keyword), nodes)

    def chosen(self, best: Sequence[FusedId], *, top_k: int) -> Plan[list[Candidate]]:
        """Return the plan for the candidates that a fusion chose, best first, then by node id.

        Args:
            best: The best of both rankings, and all ties with the last of them.
            top_k: Maximum number of candidates.
        """
        nodes = self.nodes
        if self.read is not None and best:
            nodes = yield self.read([key for key, _, _ in best])
        return ordered_candidates(
            nodes[key].rescored(score, contributions)
            for key, score, contributions in best
            if key in nodes
        )[:top_k]


@runtime_checkable
class Backend(Protocol):
    """One interface to every engine.

    A search is a `Call`: a plan yields it, and the driver runs it in threads or on the event loop.
    Results are sorted best first, then by node id, and satisfy the condition exactly; which of the
    nodes that tie with the last one are returned is open. Without a match the result is an empty
    list.
    """

    @property
    def store(self) -> BasePydanticVectorStore:
        """The wrapped LlamaIndex vector store."""
        ...

    @property
    def engine(self) -> str:
        """Engine name; does not contact the server."""
        ...

    @property
    def features(self) -> EngineFeatures:
        """Operations that the engine supports natively."""
        ...

    @property
    def drop_violations(self) -> bool:
        """Whether hits outside scope or filters degrade the answer instead of raising."""
        ...

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Return the nearest nodes to an embedding, by the store's similarity.

        Raises:
            UnsupportedModeError: The store has no vector search.
            UnsupportedFilterError: The store cannot evaluate the condition; nothing was sent.
            DimensionMismatchError: The embedding does not have the store's dimension.
        """
        ...

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Return the nodes with a BM25 score above 0 for a text.

        Raises:
            UnsupportedModeError: The store has no keyword search.
            UnsupportedFilterError: The store cannot evaluate the condition; nothing was sent.
        """
        ...

    def describe(self) -> Mapping[str, object]:
        """Return the engine and its configuration for traces and tables, without secrets."""
        ...


def check_exact(engine: str, features: EngineFeatures, search: Search) -> None:
    """Raise `UnsupportedModeError` if a search is exact and the engine has no exact search."""
    if search.exact and not features.exact:
        raise UnsupportedModeError(
            f"{engine} cannot search without its index for one query; leave exact=True out"
        )


@runtime_checkable
class HybridBackend(Protocol):
    """The part of a backend whose engine takes a vector and a keyword search in one request."""

    def hybrid(
        self, embedding: Sequence[float], text: str, search: Search, *, nodes_last: bool
    ) -> Call[HybridRankings]:
        """Return the rankings of a vector and a keyword search, from one request.

        Args:
            embedding: Embedding for the vector search.
            text: Text for the keyword search.
            search: Parameters of both searches.
            nodes_last: Whether few nodes of the rankings are needed, and keys of the engine may
                stand for node ids. An engine with slow node reads then reads only those chosen.

        Raises:
            UnsupportedFilterError: The store cannot evaluate the condition; nothing was sent.
            DimensionMismatchError: The embedding does not have the store's dimension.
        """
        ...

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        """Return the candidates of the engine's native fusion, with fused scores.

        The result equals our fusion of both rankings, except for ties within a ranking: there the
        engine chooses the order.

        Args:
            embedding: Embedding for the vector search.
            text: Text for the keyword search.
            search: Parameters of both searches.
            how: One of the fusions in the features.

        Raises:
            UnsupportedFilterError: The store cannot evaluate the condition; nothing was sent.
            DimensionMismatchError: The embedding does not have the store's dimension.
        """
        ...


def hybrid_backend(backend: Backend) -> HybridBackend:
    """Return the backend if its engine takes both searches, else raise `UnsupportedModeError`."""
    if not isinstance(backend, HybridBackend):
        raise UnsupportedModeError(
            f"the features of {type(backend).__name__} promise both searches in one request; "
            "implement HybridBackend, or declare neither one_round_trip nor fusions"
        )
    return backend


def scored_ids(ranking: Sequence[Candidate]) -> list[ScoredId]:
    """Return the ids and scores of a ranking."""
    return [(candidate.node_id, candidate.score) for candidate in ranking]


def fuse_candidates(
    vector: Sequence[Candidate],
    keyword: Sequence[Candidate],
    fusion: Fusion,
    *,
    top_k: int,
    weights: Sequence[float] | None = None,
) -> list[Candidate]:
    """Return the fused ranking of a vector search and a keyword search."""
    top = fusion.fuse_ids(
        {leg: scored_ids(ranking) for leg, ranking in zip(LEGS, (vector, keyword), strict=True)},
        weights=None if weights is None else dict(zip(LEGS, weights, strict=True)),
        top_k=top_k,
    )
    by_id = {candidate.node_id: candidate for candidate in (*keyword, *vector)}
    return [by_id[hit.node_id].rescored(hit.score) for hit in top]
