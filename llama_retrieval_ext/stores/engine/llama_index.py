"""Backends over collections of LlamaIndex's own stores, which filter in part.

A layout says which fields it has, which filters its engine decides exactly, and which keyword
search it has. Other filters are decided here on the best hits, or refused.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, FilterOperator

from llama_retrieval_ext.errors import ConfigurationError, UnsupportedFilterError
from llama_retrieval_ext.filters import ORDER_OPERATORS, Condition, Scalar, matches
from llama_retrieval_ext.stores.engine.backend import Candidate, Search
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.filters import Comparison, FilterLanguage
from llama_retrieval_ext.stores.engine.search import EngineBackend, NativeSearch, S

B = TypeVar("B", bound=BasePydanticVectorStore)
E = TypeVar("E")
H = TypeVar("H")


class LlamaIndexBackend(EngineBackend[S, H], Generic[B, S, H]):
    """Backend over the collection of a LlamaIndex store, with the store's client.

    Args:
        store: LlamaIndex's store.
        where: The collection, for messages; no URL, because it may contain a key.
        drop_violations: Whether hits outside scope or filters degrade the answer instead of
            raising.
    """

    def __init__(self, store: B, where: str, *, drop_violations: bool = False) -> None:
        self._store = store
        self.where = where
        self.drop_violations = drop_violations

    @property
    def store(self) -> B:
        """LlamaIndex's store."""
        return self._store

    def describe(self) -> dict[str, object]:
        """Return the engine, the class of the store and its collection, without secrets."""
        store = type(self._store).__name__
        return {"engine": self.engine, "store": store, "collection": self.where}


@dataclass(frozen=True, slots=True)
class Prefilter(Generic[E]):
    """An expression that every matching node satisfies; if exact, no other node does."""

    expression: E
    exact: bool = False


def prefilters(  # noqa: PLR0913 - one a kind of comparison
    language: FilterLanguage[E],
    everything: E,
    *,
    exists: Callable[[str], E],
    is_empty: Callable[[str], E],
    among: Callable[[str, Sequence[Scalar]], Prefilter[E] | None],
    ordered: Callable[[str, FilterOperator, Scalar], E | None],
    contains: Callable[[str, str], E | None] = lambda *_: None,
    sees_lists: bool = False,
) -> FilterLanguage[Prefilter[E]]:
    """Return the language of the strictest prefilters, with the expressions of an engine.

    An inexact one matches too many nodes, so its negation would match too few. A function returns
    None where the fields tell no more than that the key has a value.

    Args:
        language: Has the engine's conjunction, disjunction and negation.
        everything: The expression that every node satisfies.
        exists: Returns the expression that every node with a value for the key satisfies.
        is_empty: Returns the expression that every node without a value satisfies.
        among: Returns the prefilter for values, of which the key has one.
        ordered: Returns the expression for ``GT``, ``GTE``, ``LT`` and ``LTE``.
        contains: Returns the expression for a part of a string.
        sees_lists: Whether `among` returns nodes with such a value in a list, too.
    """

    def inexact(key: str, expression: E | None = None) -> Prefilter[E]:
        return Prefilter(exists(key) if expression is None else expression)

    def one_of(key: str, values: Sequence[Scalar]) -> Prefilter[E]:
        if not values:
            return Prefilter(language.any_of([]), exact=True)
        return among(key, values) or inexact(key)

    def listed(key: str, values: Sequence[Scalar]) -> Prefilter[E]:
        return inexact(key, one_of(key, values).expression if sees_lists else None)

    def joined(join: Callable[[Sequence[E]], E], parts: Sequence[Prefilter[E]]) -> Prefilter[E]:
        return Prefilter(join([part.expression for part in parts]), all(p.exact for p in parts))

    def negated(part: Prefilter[E]) -> Prefilter[E]:
        expression = language.negated(part.expression) if part.exact else everything
        return Prefilter(expression, part.exact)

    def compare(operator: FilterOperator) -> Comparison[Prefilter[E]]:
        return lambda key, value: inexact(key, ordered(key, operator, value))

    return FilterLanguage(
        {
            FilterOperator.EQ: lambda key, value: one_of(key, [value]),
            FilterOperator.IN: one_of,
            **{operator: compare(operator) for operator in ORDER_OPERATORS},
            FilterOperator.ANY: listed,
            FilterOperator.ALL: lambda key, values: Prefilter(
                language.all_of([listed(key, [value]).expression for value in values])
            ),
            FilterOperator.CONTAINS: lambda key, value: listed(key, [value]),
            FilterOperator.TEXT_MATCH: lambda key, text: inexact(key, contains(key, text)),
            FilterOperator.TEXT_MATCH_INSENSITIVE: lambda key, _: inexact(key),
            FilterOperator.IS_EMPTY: lambda key, _: Prefilter(is_empty(key)),
        },
        partial(joined, language.all_of),
        partial(joined, language.any_of),
        negated,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefilteredSearch(NativeSearch, Generic[H]):
    """A search whose hits may violate its condition, and are checked here.

    Attributes:
        page: Returns at most so many hits, with their nodes.
        condition: The condition to check; None if the engine evaluates it.
    """

    page: Callable[[int], Steps[list[H]]]
    condition: Condition | None = None


class PrefilteredBackend(LlamaIndexBackend[B, PrefilteredSearch[H], H], Generic[B, H]):
    """Backend that requests more hits until enough satisfy the condition.

    Attributes:
        score_field: The field of a hit that has the engine's score.
        prefilters: The filters for the collection, which is known when a search is sent.
    """

    scoped_rarity: ClassVar[bool] = False
    score_field: ClassVar[str]
    prefilters: FilterLanguage[Prefilter[Any]]

    @abstractmethod
    def send(self, body: Any, expression: Any, limit: int) -> Steps[list[H]]:  # noqa: ANN401 - the engine's
        """Send a search with a filter; return at most `limit` hits, with their nodes."""

    @abstractmethod
    def node(self, hit: H) -> BaseNode:
        """Return the node of a hit."""

    def compile(self, condition: Condition) -> Condition:
        """Return the condition unchanged: its compiled form depends on the collection."""
        return condition

    def prefiltered(
        self,
        search: Search,
        body: object,
        *,
        score: Callable[[float], float],
        positive: bool = False,
    ) -> PrefilteredSearch[H]:
        """Return the search that sends a body with the prefilter for its condition."""
        condition: Condition | None = search.filter
        prefilter = None if condition is None else self.prefilters.write(condition)
        expression = None if prefilter is None else prefilter.expression
        return PrefilteredSearch(
            top_k=search.top_k,
            score=score,
            positive=positive,
            page=lambda limit: self.send(body, expression, limit),
            condition=None if prefilter is None or prefilter.exact else condition,
        )

    def pages(
        self, searches: Sequence[PrefilteredSearch[H]], *, with_nodes: bool
    ) -> Steps[list[list[H]]]:
        """Return the hits of each search that satisfy its condition."""
        del with_nodes  # the condition needs them
        pages = []
        for search in searches:
            pages.append((yield from self._page(search)))  # noqa: PERF401 - no generator there
        return pages

    def scores(self, search: PrefilteredSearch[H], hits: Sequence[H]) -> list[float]:
        """Return our scores of hits."""
        return [search.score(float(hit[self.score_field])) for hit in hits]  # type: ignore[index]  # a mapping

    def candidate(self, hit: H, score: float) -> Candidate:
        """Return the candidate of a hit."""
        return Candidate(self.node(hit), score)

    def _page(self, search: PrefilteredSearch[H]) -> Steps[list[H]]:
        """Return the best hits that satisfy the condition; raise if too few can be requested."""
        most = self.most_candidates
        size, condition = min(search.top_k, most), search.condition
        while True:
            hits = yield from search.page(size)
            passed = [hit for hit in hits if matches(condition, self.node(hit).metadata)]
            if len(passed) >= search.top_k or len(hits) < size:
                return passed[: search.top_k]
            if size == most:
                break
            size = min(4 * size, most)
        if condition is None:
            raise ConfigurationError(
                f"{self.where} returns at most {most} hits at once, top_k is {search.top_k}"
            )
        raise UnsupportedFilterError(
            f"{condition} cannot be decided by the fields of {self.where}, and too few of its best "
            f"{most} nodes satisfy it; filter by strings, or copy the nodes into a store opened by "
            "URL, where the engine decides",
            "",
        )
