"""`Query`: the text, filters and limits of a search."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypedDict

from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores.types import FilterCondition, MetadataFilters

from llama_retrieval_ext.checks import (
    check_count,
    check_seconds,
    check_weights,
    checked_arguments,
    of_type,
)
from llama_retrieval_ext.dates import Moment
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.filter_syntax import describe_filters
from llama_retrieval_ext.filters import Condition, both, parse_filters
from llama_retrieval_ext.scope import Scope, at_time, check_scope
from llama_retrieval_ext.text.normalization import valid_text


@checked_arguments
@dataclass
class Query(QueryBundle):
    """A LlamaIndex ``QueryBundle`` with filters, scope, limits and context.

    Every retriever accepts it in place of a string or a ``QueryBundle``. Treat it as immutable: use
    `but` for a changed copy.

    Args:
        filters: Further conditions on metadata, in addition to the retriever's own.
        scope: The accessible nodes; narrows the scope of the retriever.
        top_k: Number of hits to return, at least 1; None for the retriever's own number.
        timeout_s: Seconds for the whole answer, including composites; None for no limit.
        context: Values for the application's own stages, by name.
        at_least: Minimum number of hits that a composite requests from each leg, so that it can
            return ``top_k``; a leg returns its own number if that is larger. Set by composites.
        exact: Whether vector searches compare every embedding instead of using an approximate
            index; keyword searches are always exact.
        fields: The fields of keyword searches, with weights; None for those of the retriever, or of
            the `Schema`.
        correct: Whether a knowledge base corrects typing errors: a word that no visible node has is
            replaced by the nearest that one has, which ``corrected`` of the result says. Words in
            quotation marks, in capitals, with digits and in code stay.
        interpret: Whether a knowledge base makes filters of the words that state them, such as
            "after 2010", which ``hints`` and ``details`` of the result say; see
            `KnowledgeBase.interpret`.
        is_recorded: Whether it is a part of a query that the log of a knowledge base has.
        is_curated: Whether it is a part of a query that a knowledge base has corrected, and whose
            hits it will order. Set by it.
        synonyms: What keyword searches also look for, with half of the weight. Set by it.
        cutoff: A rank and a share: hits with less than this share of the score at the rank need not
            be returned. Set by it, for the retriever whose hits it orders.
        kept: Where a retriever keeps the rankings that it fuses, by their depth, for the same query
            with another ``top_k``. Set by a knowledge base, for the retriever whose hits it orders.
        as_of: The time for which it asks, as of `Scope`; it becomes part of the scope. With None a
            knowledge base ranks what holds now before what no longer does.
        known_at: The time at which it was known, as of `Scope`; likewise.

    Raises:
        ConfigurationError: A value is out of range.
        InvalidFilterError: The filters are invalid.

    Examples:
        >>> Query("annual leave", top_k=3).top_k
        3

    """

    filters: MetadataFilters | None = None
    scope: Scope | None = None
    top_k: int | None = None
    timeout_s: float | None = None
    context: Mapping[str, object] = field(default_factory=dict)
    at_least: int | None = None
    exact: bool = False
    fields: Mapping[str, float] | None = None
    correct: bool = True
    interpret: bool = False
    is_curated: bool = False
    is_recorded: bool = False
    synonyms: tuple[str, ...] = ()
    cutoff: tuple[int, float] | None = None
    kept: dict[int, Any] | None = field(default=None, repr=False, compare=False)
    as_of: Moment | None = None
    known_at: Moment | None = None

    def __post_init__(self) -> None:  # noqa: C901 - a check of each value
        if not isinstance(self.query_str, str):
            raise ConfigurationError(
                f"a query is a string, or a QueryBundle or Query of one, got {self.query_str!r}; "
                "several queries go to retrieve_many"
            )
        if not self.query_str.isascii():
            self.query_str = valid_text(self.query_str)  # as stored texts are
        for number in (self.top_k, self.at_least):
            if number is not None:
                check_count(number, "top_k")
        if self.timeout_s is not None:
            check_seconds(self.timeout_s, "timeout_s", otherwise="for no limit leave it out")
        if self.scope is not None:
            check_scope(self.scope)
        if self.as_of is not None or self.known_at is not None:
            self.scope = at_time(self.scope, self.as_of, self.known_at)
        of_type(self.context, Mapping, "context")
        if self.fields is not None:
            check_weights(self.fields, "fields")
        of_type(self.correct, bool, "correct")
        of_type(self.interpret, bool, "interpret")
        self.filter = None if self.filters is None else parse_filters(self.filters)

    if not TYPE_CHECKING:  # which would otherwise accept any name

        def __getattr__(self, name: str) -> object:
            """Raise the error of an unknown attribute, with the right name of the text."""
            advice = "; write query_str" if name == "text" else ""
            message = f"{type(self).__name__!r} object has no attribute {name!r}{advice}"
            raise AttributeError(message, name=name, obj=self)

    @classmethod
    def of(cls, query: str | QueryBundle) -> "Query":
        """Return the query as a `Query`; a `Query` is returned unchanged."""
        if isinstance(query, Query):
            return query
        if isinstance(query, QueryBundle):
            return cls(
                query.query_str, query.image_path, query.custom_embedding_strs, query.embedding
            )
        return cls(query)

    def but(  # noqa: PLR0913 - what a search takes
        self,
        *,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        top_k: int | None = None,
        timeout_s: float | None = None,
        context: Mapping[str, object] | None = None,
        fields: Mapping[str, float] | None = None,
        correct: bool | None = None,
        interpret: bool | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
    ) -> "Query":
        """Return a copy; filters and scope are narrowed, other arguments replace values."""
        given: dict[str, object] = {"fields": fields, "correct": correct, "interpret": interpret}
        given |= {"top_k": top_k, "timeout_s": timeout_s, "as_of": as_of, "known_at": known_at}
        changes: dict[str, Any] = {name: v for name, v in given.items() if v is not None}
        if filters is not None:
            changes["filters"] = narrowed_filters(self.filters, filters)
        if scope is not None:
            changes["scope"] = check_scope(scope).narrowed(self.scope)
        if context is not None:
            changes["context"] = {**self.context, **of_type(context, Mapping, "context")}
        return replace(self, **changes) if changes else self.unchecked()

    def for_child(self, *, top_k: int | None = None) -> Self:
        """Return a copy for a leg of a composite, without the caller's ``top_k`` and time limit.

        A leg returns ``top_k`` hits if given, else its own number, but at least ``at_least``.
        """
        # The deadline is part of the execution context.
        return self.unchecked(top_k=top_k, timeout_s=None, kept=None)

    def unchecked(self, **values: object) -> Self:
        """Return a copy with values that are known to be valid, other than filters."""
        copy = object.__new__(type(self))
        vars(copy).update(vars(self), **values)
        return copy

    @property
    def condition(self) -> Condition | None:
        """The condition that every hit must satisfy: the scope and the filters."""
        return self.filter if self.scope is None else both(self.scope.condition, self.filter)

    @property
    def restricts_passages(self) -> bool:
        """Whether filters or a time leave out passages that the scope sees in a graph."""
        scope = self.scope
        is_timed = scope is not None and (scope.as_of is not None or scope.known_at is not None)
        return self.filters is not None or is_timed

    @property
    def is_blank(self) -> bool:
        """Whether the query has neither text nor embedding."""
        return self.embedding is None and not "".join(self.embedding_strs).strip()


class SearchOptions(TypedDict, total=False):
    """Options of one search; see ``Retriever.search``."""

    filters: MetadataFilters | None
    scope: Scope | None
    top_k: int | None
    timeout_s: float | None
    context: Mapping[str, object] | None
    fields: Mapping[str, float] | None
    correct: bool | None
    interpret: bool | None
    as_of: Moment | None
    known_at: Moment | None


def described_binding(query: Query) -> list[str]:
    """Return the scope and the filters of a query in words, one line each."""
    return [
        *([] if query.scope is None else [repr(query.scope)]),
        *([] if query.filters is None else [describe_filters(query.filters)]),
        *([] if query.fields is None else [f"fields {dict(query.fields)}"]),
    ]


def reworded(query: Query, text: str) -> Query:
    """Return the query with another text and without the embedding of the first text."""
    return replace(query, query_str=text, custom_embedding_strs=None, embedding=None)


def narrowed_filters(
    first: MetadataFilters | None, second: MetadataFilters | None
) -> MetadataFilters | None:
    """Return the conjunction of two LlamaIndex filters."""
    if first is None or second is None:
        return first or second
    return MetadataFilters(filters=[first, second], condition=FilterCondition.AND)
