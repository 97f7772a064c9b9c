"""Hints: sentences on what was looked for and is not there, with the nearest that is.

Parts of an answer note what may be missing (`note_hint`, `note_inquiry`). What costs a request is
asked once, after the search, and only if the answer is empty or the part is suspicious itself.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.dates import KNOWN_TO
from llama_retrieval_ext.execution.context import current_context, note_hint, note_inquiry
from llama_retrieval_ext.execution.drivers import within
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.filters import (
    MEMBERSHIP_OPERATORS,
    SCOPE_KEYS,
    AllOf,
    AnyOf,
    Compare,
    Condition,
    Not,
    both,
    comparisons,
    matches,
)
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.wording import is_field_name, nearest, quoted

T = TypeVar("T")
Metadata: TypeAlias = Mapping[str, object]

_log = logging.getLogger(__name__)
# Seconds for all hints of an answer; one that takes longer is left out.
_TIME_S: Final = 2.0
# Passages whose metadata is read at first, and of those with a key.
_SAMPLE: Final = 200
_FEW: Final = 20
_MOST_PARTS: Final = 5


def conclude(*, has_hits: bool, since: int = 0) -> Plan[tuple[str, ...]]:
    """Return the plan for the hints of the current answer, each once.

    Args:
        has_hits: Whether the answer has hits; if not, what is missing is looked up.
        since: Number of earlier hints of the session to leave out.
    """
    session = current_context().session
    inquiries = [*session.inquiries.values()]
    session.inquiries.clear()
    for inquiry in inquiries:
        if has_hits and not inquiry.always:
            continue
        try:
            session.hints += yield from within("hints", _texts(inquiry.plan()), _TIME_S)
        except Exception:  # noqa: BLE001 - the answer is complete without it
            _log.debug("a hint could not be made", exc_info=True)
    return tuple(dict.fromkeys(session.hints[since:]))


def _texts(plan: Plan[Iterable[str]]) -> Plan[tuple[str, ...]]:
    return tuple((yield from plan))  # a list would be a ranking, for the trace


@dataclass(frozen=True, slots=True)
class Passages:
    """The passages that a search can find, for hints.

    Attributes:
        read: Returns the metadata of a number of passages that satisfy a condition.
        is_exact: Whether it finds one wherever there is one, for every condition.
        by_words: Whether the search finds only passages that share words with the query.
    """

    read: Callable[[Condition | None, int], Plan[Sequence[Metadata]]]
    is_exact: bool = True
    by_words: bool = False

    def hints(self, query: Query) -> Plan[list[str]]:
        """Return the plan for the hints why a query found nothing.

        Only passages in the query's scope are looked at. A condition of the filters that some
        passage satisfies gets no hint, nor does a negated one; see `note_keys`.
        """
        scope = None if query.scope is None else query.scope.condition
        sample = yield from self._visible(scope, scope, _SAMPLE)
        where = "no passage" if scope is None else "no passage in this scope"
        if not sample:
            return [f"{where} can be found: there is none"]
        if len(sample) == _SAMPLE and not self.is_exact:
            where = f"none of {_SAMPLE} passages looked at"
        hints: list[str] = []
        for part in islice(_required(query.filter), _MOST_PARTS):
            if not (yield from self._having(part, scope, sample)):
                has_key = Not(Compare(part.key, FilterOperator.IS_EMPTY, None))
                with_key = yield from self._having(has_key, scope, sample)
                values = [metadata[part.key] for metadata in with_key]
                hints += (
                    _difference(part, values, where)
                    if values
                    else [no_key(part.key, sample, where)]
                )
        if hints or not self.by_words:
            return hints
        if query.filter is None:
            return [f"{where} has a word of the query"]
        allowed = yield from self._having(query.filter, scope, sample)
        return [f"{where} that the filters allow has a word of the query"] if allowed else []

    def without(self, query: Query, keys: Sequence[str]) -> Plan[list[str]]:
        """Return the plan for the hints that no passage in the query's scope has a key."""
        scope = None if query.scope is None else query.scope.condition
        sample = yield from self._visible(scope, scope, _SAMPLE)
        where = "no passage" if scope is None else "no passage in this scope"
        hints: list[str] = []
        for key in keys if sample else ():
            has_key = Not(Compare(key, FilterOperator.IS_EMPTY, None))
            if not (yield from self._having(has_key, scope, sample)):
                hints.append(no_key(key, sample, where))
        return hints

    def _having(
        self, condition: Condition, scope: Condition | None, sample: Sequence[Metadata]
    ) -> Plan[Sequence[Metadata]]:
        """Return the metadata of some passages in the scope that satisfy a condition."""
        fitting = [metadata for metadata in sample if matches(condition, metadata)]
        if fitting or len(sample) < _SAMPLE or not self.is_exact:
            return fitting
        return (yield from self._visible(both(scope, condition), scope, _FEW))

    def _visible(
        self, condition: Condition | None, scope: Condition | None, limit: int
    ) -> Plan[list[Metadata]]:
        read = yield from self.read(condition, limit)
        return [metadata for metadata in read if matches(scope, metadata)]  # engines have bugs


def note_keys(query: Query, sample: Sequence[Metadata], passages: Callable[[], Passages]) -> None:
    """Note keys of the filters that no hit has: they are inside a dict, or nowhere in the scope.

    A hit can be without a key if the filter negates, or has alternatives; a key that is misspelt in
    them excludes nothing. Only then are other passages looked at.

    Args:
        query: The query.
        sample: The metadata of the hits.
        passages: Returns what the search can find.
    """
    if query.filter is None:
        return
    keys = {comparison.key for comparison in comparisons(query.filter)} - {KNOWN_TO}  # added to all
    missing = sorted(key for key in keys if not any(key in metadata for metadata in sample))
    nested = {key for key in missing if any(_is_nested(key, metadata) for metadata in sample)}
    for key in sorted(nested):
        note_hint(f"{_nested(key)}; the filter on it has no effect")
    others = [key for key in missing if key not in nested]
    if sample and others:
        inquiry = ("keys", *others, query.condition)
        note_inquiry(inquiry, lambda: passages().without(query, others), always=True)


def _is_nested(key: str, metadata: Metadata) -> bool:
    return key not in metadata and isinstance(metadata.get(key.partition(".")[0]), dict)


def _nested(key: str) -> str:
    outer = quoted(key.partition(".")[0])
    advice = f"store {quoted(key)} as a key of its own"
    return f"{outer} is a dict, into which filters do not look: {advice}"


def _required(condition: Condition | None) -> Iterator[Compare]:
    """Yield the comparisons that a passage must satisfy; a negated one may match nothing."""
    match condition:
        case Compare():
            if condition.operator not in _NEGATIVE:
                yield condition
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _required(part)


_NEGATIVE: Final = {FilterOperator.NE, FilterOperator.NIN, FilterOperator.IS_EMPTY}


def no_key(key: str, sample: Sequence[Metadata], where: str) -> str:
    """Return the hint that no passage in a sample has a key, with the nearest that is there."""
    keys = {key for metadata in sample for key in metadata} - {*SCOPE_KEYS}
    missing = f"{where} has the key {quoted(key)}"
    if any(_is_nested(key, metadata) for metadata in sample):
        return f"{missing}; {_nested(key)}"
    if not keys:
        return f"{missing}, nor any other"
    names = [*filter(is_field_name, keys)]  # models read hints: another key may be prose
    if not names:
        return missing
    return f"{missing}; there {'is' if len(names) == 1 else 'are'} {nearest(key, names)}"


def _difference(part: Compare, values: Sequence[object], where: str) -> list[str]:
    """Return the hint that a field has other types or other words than the filter."""
    kinds = {_kind(value) for value in values}
    operand = part.value[0] if isinstance(part.value, tuple) and part.value else part.value
    if part.operator in _OF_LISTS:
        if "a list" in kinds:
            return []
        instead = f"{part.operator.name} is for lists"
    elif _kind(operand) in kinds:
        texts = {value for value in values if isinstance(value, str)}
        if part.operator not in MEMBERSHIP_OPERATORS or not isinstance(operand, str) or not texts:
            return []
        there = f"there {'is' if len(texts) == 1 else 'are'} {nearest(operand, texts)}"
        return [f"{where} has {quoted(operand)} as {quoted(part.key)}; {there}"]
    elif kinds == {"a list"}:
        instead = "CONTAINS, ANY and ALL look into lists"
    else:
        instead = f"the filter has {_kind(operand).replace('a ', 'the ', 1)} {quoted(operand)}"
    return [f"{quoted(part.key)} is {' or '.join(sorted(kinds))} here, and {instead}"]


_OF_LISTS: Final = {FilterOperator.CONTAINS, FilterOperator.ANY, FilterOperator.ALL}
_KINDS: Final = ((bool, "true or false"), (str, "a string"), (int | float, "a number"))


def _kind(value: object) -> str:
    if isinstance(value, list | tuple):
        return "a list"
    return next((name for type_, name in _KINDS if isinstance(value, type_)), "a dict")
