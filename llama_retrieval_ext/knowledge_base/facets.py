"""`Faceted`: counts the values of fields, by the columns of what a query can see."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import starmap
from typing import ClassVar, Final, TypeAlias, TypeVar

import numpy as np
from llama_index.core.schema import BaseNode, QueryType
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilters

from llama_retrieval_ext.checks import check_count, checked_methods
from llama_retrieval_ext.dates import Moment
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import asynchronous, blocking
from llama_retrieval_ext.execution.hints import no_key
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.filter_syntax import as_metadata_filters
from llama_retrieval_ext.filters import (
    SCOPE_KEYS,
    AllOf,
    AnyOf,
    Compare,
    Condition,
    both,
    comparisons,
    parse_filters,
)
from llama_retrieval_ext.knowledge_base.browsing import Browsable
from llama_retrieval_ext.knowledge_base.columns import (
    DATE,
    NUMBER,
    Columns,
    Entries,
    Ints,
    Mask,
    Scalar,
    VisibleValues,
    order,
)
from llama_retrieval_ext.knowledge_base.kinds import Kind
from llama_retrieval_ext.knowledge_base.searching import Searchable
from llama_retrieval_ext.lazy import Viewed
from llama_retrieval_ext.pipeline.searching import search_plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, SearchResult
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.scope import KNOWN_NOW, Scope

T = TypeVar("T")
Bound: TypeAlias = float | str
# The ranges of a field: their number, or their bounds.
Ranges: TypeAlias = int | Sequence[Bound] | None

_RANGES: Final = 5
# Passages whose metadata is read to name a field that is there.
_SAMPLE: Final = 200


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value of a field, and the number of documents, or passages, that have it."""

    value: Scalar
    count: int


@dataclass(frozen=True, slots=True)
class FacetRange:
    """A range of numbers or dates: from ``low`` on, below ``high``; None for no bound."""

    low: Bound | None
    high: Bound | None
    count: int


@dataclass(frozen=True, slots=True)
class Facet:
    """The values of a field.

    Attributes:
        field: Its name.
        values: Those of most documents, equal counts by value: numbers, dates, other strings.
        ranges: Of numbers or dates, ascending; a document with values in several counts in each.
        min: The lowest number, or the earliest date; None without.
        max: The highest number, or the latest date.
        distinct: Number of distinct values.
    """

    field: str
    values: tuple[FacetValue, ...] = ()
    ranges: tuple[FacetRange, ...] = ()
    min: Bound | None = None
    max: Bound | None = None
    distinct: int = 0

    def filters(self, part: FacetValue | FacetRange) -> MetadataFilters:
        """Return the filters that find what was counted as one of its values or ranges."""
        parts: list[Condition] = []
        if isinstance(part, FacetRange):
            bounds = ((FilterOperator.GTE, part.low), (FilterOperator.LT, part.high))
            parts = [Compare(self.field, by, bound) for by, bound in bounds if bound is not None]
            return as_metadata_filters(AllOf(tuple(parts)))
        if isinstance(part.value, bool):
            is_true = "true" if part.value else "false"
            return as_metadata_filters(Compare(self.field, FilterOperator.EQ, is_true))
        either = (FilterOperator.EQ, FilterOperator.CONTAINS)
        return as_metadata_filters(
            AnyOf(tuple(Compare(self.field, by, part.value) for by in either))
        )


@dataclass(frozen=True, slots=True, repr=False)
class Facets(Viewed, Mapping[str, Facet]):
    """The facets of some fields, by name.

    Attributes:
        facets: One for each field, in the order that they were asked for.
        total: Number of documents, or passages, that were counted.
        counts: What is counted: ``documents`` or ``nodes``.
        reasons: Why counts are approximate; empty if they are exact.
        hints: Sentences on fields that are not there, as for `SearchResult`.
    """

    _view: ClassVar[str] = "reports.facets"

    facets: Mapping[str, Facet]
    total: int
    counts: str = "documents"
    reasons: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def approximate(self) -> bool:
        """Whether counts may be too low."""
        return bool(self.reasons)

    def __getitem__(self, name: str) -> Facet:
        return self.facets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.facets)

    def __len__(self) -> int:
        return len(self.facets)

    def __repr__(self) -> str:
        text: str = self._shown("text")
        return text

    def to_dict(self) -> dict[str, object]:
        """Return the facets as JSON."""
        return {
            "facets": {name: asdict(facet) for name, facet in self.facets.items()},
            "total": self.total,
            "counts": self.counts,
            "approximate": self.approximate,
            "reasons": [*self.reasons],
            "hints": [*map(str, self.hints)],
        }


@checked_methods
class Faceted(Searchable, Browsable):
    """The methods of a knowledge base that count."""

    @blocking
    def facets(  # noqa: PLR0913 - as `search`
        self,
        fields: Sequence[str] | Mapping[str, Ranges],
        query: QueryType | None = None,
        mode: Kind = "keyword",
        *,
        first: int | None = None,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        top: int = 10,
        nodes: bool = False,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
    ) -> Plan[Facets]:
        """Return the values of fields with the number of documents that have them.

        Counts are exact on every engine, and only of what the scope can see; if a search that they
        are among is cut off or degraded, they are ``approximate``, and ``reasons`` says why. A list
        counts by its items. Numbers and dates (of fields that the `Schema` declares as such, or
        with nothing else) have ranges, too: with about equal counts, or by given bounds.

        On the embedded engine, and where only this process writes, the fields are read once, and
        then what has changed; three fields of 100,000 nodes then take some milliseconds. From a
        server all nodes in the scope that satisfy the filters are read each time.

        Args:
            fields: Metadata keys; or each with its ranges: a number of them, or ascending bounds,
                such as ``{"genres": None, "year": [1990, 2000]}``, which are three ranges.
            query: Count only among the passages that a search finds; None for all.
            mode: The kind of retriever that searches, as for `search`.
            first: Number of its best passages to count among; None for all that share a word with
                the query, which only ``keyword`` finds.
            filters: Metadata conditions of what is counted.
            scope: The scope of the caller.
            top: Maximum number of values per field, at least 1.
            nodes: Whether to count passages instead of documents.
            as_of: Count only what holds then, as for `Query`; None for everything.
            known_at: Count only what was known then; None for what is known now.

        Raises:
            ConfigurationError: A field, bound or number is invalid, or ``first`` is missing.
            ScopeRequiredError: The knowledge base requires a scope.

        Examples:
            >>> from llama_index.core import Document, MockEmbedding
            >>> from llama_retrieval_ext import KnowledgeBase
            >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
            ...     _ = kb.add([Document(text="a", metadata={"tags": ["x", "y"], "year": 2020})])
            ...     _ = kb.add([Document(text="b", metadata={"tags": ["y"], "year": 2024})])
            ...     kb.facets(["tags"])
            Facets of 2 documents
              tags: y 2, x 1

        """
        asked = _checked_fields(fields)
        check_count(top, "top")
        bound = Query.of("" if query is None else query).but(
            filters=filters, scope=scope, as_of=as_of, known_at=known_at
        )
        self._access.check(bound.scope)
        reasons: list[str] = []
        hints: tuple[str, ...] = ()

        def counted(columns: Columns, mask: Mask) -> Facets:
            return facets_of(columns, mask, asked, self.schema, top=top, nodes=nodes)

        if query is not None:
            result = yield from self._found(bound, mode, first, reasons)
            hints = result.hints
            made: Facets = yield Call(lambda: self._among(asked, result.hits, counted))
        elif first is not None:
            raise ConfigurationError("first counts among the hits of a query; pass a query")
        else:
            condition = bound.condition
            made = yield Call(
                lambda: self._with_columns(
                    asked, bound, lambda all_: counted(all_, all_.mask(condition))
                )
            )
        unseen = [name for name, facet in made.items() if not facet.distinct]
        if unseen:
            hints += yield Call(lambda: self._unknown(unseen, bound.scope))
        return replace(made, reasons=tuple(reasons), hints=hints)

    afacets = asynchronous(facets)

    def visible_values(self, fields: Sequence[str], *, scope: Scope | None = None) -> VisibleValues:
        """Return all values of fields that a scope can see: numbers, dates, strings, booleans.

        It is the same object for the same question until something changes.

        Raises:
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._access.check(scope)
        query = Query("", scope=scope)
        return self._with_columns(
            fields, query, lambda columns: columns.visible_values(fields, query.condition)
        )

    def _among(
        self,
        asked: Collection[str],
        hits: Sequence[Hit],
        counted: Callable[[Columns, Mask], Facets],
    ) -> Facets:
        """Return what is counted among hits: in the columns of all nodes, if there are any."""

        def of_rows(columns: Columns) -> Facets | None:
            mask = columns.rows(hit.node_id for hit in hits)
            return None if mask is None else counted(columns, mask)

        made: Facets | None = None
        if self._storage.is_exclusive:
            made = self._with_columns(asked, Query(""), of_rows)
        if made is None:  # read from a server, or no longer there
            columns = Columns.of(asked, (hit.node for hit in hits))
            made = counted(columns, columns.mask(None))
        return made

    def _with_columns(self, keys: Iterable[str], query: Query, use: Callable[[Columns], T]) -> T:
        """Return what a function makes of the columns of all nodes, or of those it may count."""
        storage, condition = self._storage, query.condition
        filtered = () if condition is None else comparisons(condition)
        keys = {*keys, *(compare.key for compare in filtered)}
        if not storage.is_exclusive:
            if getattr(self._backend, "keeps_history", False):
                condition = both(condition, parse_filters(KNOWN_NOW))
            filters = None if condition is None else as_metadata_filters(condition)
            nodes = storage.store.read_nodes(filters=filters)
            return use(Columns.of(keys, nodes))

        def read(ids: Collection[str] | None) -> Iterator[BaseNode]:
            wanted = self._ledger.visible_ids(None) if ids is None else [*ids]
            return storage.nodes(wanted, embeddings=False)

        stored, schema = storage.words.columns, self.schema
        with stored.lock:
            keys = {*keys, *schema.facets, *schema.numbers, *schema.dates}
            return use(stored.of(keys, read))

    def _found(
        self, query: Query, mode: Kind, first: int | None, reasons: list[str]
    ) -> Plan[SearchResult]:
        """Return the plan for the hits to count among; add why they may be too few."""
        if first is None and mode != "keyword":
            raise ConfigurationError(
                f"{mode!r} ranks every passage; pass first= to count among the best, or leave mode "
                "out to count among all that share a word with the query"
            )
        most = self._backend.features.most_hits
        count = check_count(first, "first") if first else max(1, self._ledger.count()[1])
        top_k = count if most is None else min(count, most)
        asked = replace(query, top_k=None)
        result = yield from search_plan(self.retriever(mode, top_k=top_k), asked)
        if top_k < count and len(result) == top_k:
            reasons.append(
                f"among the first {top_k:,} passages: the engine returns no more at once"
            )
        # Without messages of errors, which may name servers.
        kinds = ((part.where, part.reason.partition(":")[0]) for part in result.degraded)
        reasons += [f"{where} failed: {kind}" for where, kind in kinds]
        return result

    def _unknown(self, names: Sequence[str], scope: Scope | None) -> tuple[str, ...]:
        """Return a hint for each field that no passage in a scope has."""
        sample = [node.metadata for node in self.nodes(scope=scope, limit=_SAMPLE)]
        where = "no passage" if scope is None else "no passage in this scope"
        if len(sample) == _SAMPLE:
            where = f"none of {_SAMPLE} passages looked at"
        there = {key for metadata in sample for key in metadata}
        return tuple(no_key(name, sample, where) for name in names if sample and name not in there)


def _checked_fields(fields: Sequence[str] | Mapping[str, Ranges]) -> dict[str, Ranges]:
    """Return the ranges by field, or raise `ConfigurationError`."""
    if isinstance(fields, str) or not isinstance(fields, Mapping | Sequence) or not fields:
        raise ConfigurationError(
            f"fields must be a list of metadata keys, such as ['genres', 'year'], got {fields!r}"
        )
    asked = dict(fields) if isinstance(fields, Mapping) else dict.fromkeys(fields)
    for name, ranges in asked.items():
        if not isinstance(name, str) or name in SCOPE_KEYS:
            raise ConfigurationError(f"a field is a metadata key, and not of a scope; got {name!r}")
        if isinstance(ranges, Sequence):
            bounds = [order(bound)[:2] for bound in ranges if isinstance(bound, str | int | float)]
            kinds = {kind for kind, _ in bounds}
            is_valid = kinds in ({NUMBER}, {DATE}) and len(bounds) == len(ranges)
            if isinstance(ranges, str) or not is_valid or bounds != sorted({*bounds}):
                raise ConfigurationError(
                    f"bounds of {name!r} must be ascending numbers, or dates such as '2024-01-31', "
                    f"got {ranges!r}"
                )
        elif ranges is not None:
            check_count(ranges, f"the number of ranges of {name!r}")
    return asked


def facets_of(
    columns: Columns,
    mask: Mask,
    asked: Mapping[str, Ranges],
    schema: Schema,
    *,
    top: int,
    nodes: bool,
) -> Facets:
    """Return the facets of some rows; see `Faceted.facets`."""
    facets: dict[str, Facet] = {}
    for name, ranges in asked.items():
        kind = NUMBER if name in schema.numbers else DATE if name in schema.dates else None
        entries = columns.entries(name)
        counts = entries.counted(mask, nodes=nodes)
        facets[name] = _facet(name, entries, counts, ranges, kind, top)
    total = columns.total(mask, nodes=nodes)
    return Facets(facets, total, "nodes" if nodes else "documents")


def _facet(
    name: str,
    entries: Entries,
    counted: tuple[Ints, Ints],
    ranges: Ranges,
    kind: int | None,
    top: int,
) -> Facet:
    """Return the facet of values that were counted, each once for a unit."""
    units, values = counted
    counts = np.bincount(values, minlength=len(entries.values))
    seen = np.flatnonzero(counts)
    best = seen[np.argsort(-counts[seen], kind="stable")[:top]]
    facet = Facet(
        name,
        tuple(FacetValue(entries.values[at], int(counts[at])) for at in best),
        distinct=len(seen),
    )
    if isinstance(ranges, Sequence):
        kind = order(ranges[0])[0]
    elif kind is None:
        ends = {entries.keys[at][0] for at in (*seen[:1], *seen[-1:])}
        kind = next((kind for kind in (NUMBER, DATE) if ends == {kind}), None)
    if kind is None:
        return facet
    of_kind = entries.of_kind(kind)
    inside = seen[(seen >= of_kind.start) & (seen < of_kind.stop)]
    shown = [entries.values[at] for at in inside[[0, -1]]] if len(inside) else [None, None]
    if isinstance(ranges, Sequence):
        starts = [bisect_left(entries.keys, order(bound)[:2]) for bound in ranges]
        bounds = [None, *ranges, None]
    elif len(inside):
        starts = _starts(entries, inside, counts[inside], ranges or _RANGES)
        bounds = [shown[0], *(entries.values[at] for at in starts), None]
    else:
        return facet
    is_inside = (values >= of_kind.start) & (values < of_kind.stop)
    marks = np.zeros((units.max(initial=-1) + 1, len(starts) + 1), dtype=bool)
    range_of = np.searchsorted(starts, np.arange(len(entries.values)), side="right")
    marks[units[is_inside], range_of[values[is_inside]]] = True
    numbers = zip(bounds, bounds[1:], marks.sum(axis=0).tolist(), strict=False)
    return replace(facet, ranges=tuple(starmap(FacetRange, numbers)), min=shown[0], max=shown[1])


def _starts(entries: Entries, inside: Ints, counts: Ints, number: int) -> list[int]:
    """Return the values that begin the ranges of about equal counts, except for the first.

    A range ends with the value by which its share of all counts is reached.
    """
    sums = np.cumsum(counts)
    starts: dict[int, None] = {}
    for part in range(1, number):
        at = int(np.searchsorted(sums * number, sums[-1] * part)) + 1
        while at < len(inside) and entries.keys[inside[at]][:2] == entries.keys[inside[at - 1]][:2]:
            at += 1  # another notation of the same date
        if at < len(inside):
            starts[int(inside[at])] = None
    return [*starts]
