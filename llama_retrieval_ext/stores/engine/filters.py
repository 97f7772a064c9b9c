"""`FilterLanguage`: translates a condition on metadata to an engine's filter."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NoReturn, TypeAlias, TypeVar

from llama_index.core.vector_stores.types import FilterOperator, MetadataFilters

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import (
    MEMBERSHIP_OPERATORS,
    ORDER_OPERATORS,
    SCOPE_KEYS,
    AllOf,
    AnyOf,
    Compare,
    Condition,
    Not,
    in_all_spellings,
    meanings,
    parse_filters,
)
from llama_retrieval_ext.scope import ALLOWED_KEY, DOCUMENT_FIELD, START_FIELD
from llama_retrieval_ext.stores.encoding.node_json import rows_of
from llama_retrieval_ext.stores.encoding.values import is_float
from llama_retrieval_ext.text.normalization import valid_text

E = TypeVar("E")
# Any: `parse_filters` has checked that each operator has a value of its kind.
Comparison: TypeAlias = Callable[[str, Any], E]

_EQUALITY: Final = (FilterOperator.EQ, FilterOperator.NE, FilterOperator.IN, FilterOperator.NIN)
# Fields of a node beside its metadata, which the filters of a selection may name.
_FIELDS: Final = {DOCUMENT_FIELD: _EQUALITY, START_FIELD: (*_EQUALITY, *ORDER_OPERATORS)}
_NEGATIONS: Final = {FilterOperator.NE: FilterOperator.EQ, FilterOperator.NIN: FilterOperator.IN}


@dataclass(frozen=True, slots=True)
class Target:
    """A selection of nodes that satisfy all its parts.

    Attributes:
        node_ids: Ids of the nodes; None for any, an empty list for no node.
        doc_ids: Ids of their documents; None for any.
        filters: Conditions on their metadata; None for any.
        rows: Ids of their rows, see `row_id`; None for any.
    """

    node_ids: Sequence[str] | None = None
    doc_ids: Sequence[str] | None = None
    filters: MetadataFilters | None = None
    rows: Sequence[str] | None = None

    @property
    def condition(self) -> Condition | None:
        """The parsed filters; None without filters."""
        return None if self.filters is None else parse_filters(self.filters, fields=_FIELDS)


def _no_selection(ids: Sequence[str]) -> NoReturn:
    raise NotImplementedError(ids)  # a layout of LlamaIndex, which is only searched


@dataclass(frozen=True, slots=True)
class FilterLanguage(Generic[E]):
    """An engine's filter syntax; semantics of `llama_retrieval_ext.filters.matches`.

    Attributes:
        comparisons: Functions by operator; each returns the comparison of a key with a value. NE
            and NIN become negations of EQ and IN. The values of IN may have booleans.
        all_of: Returns the conjunction of expressions; true for an empty list.
        any_of: Returns the disjunction of expressions; false for an empty list.
        negated: Returns the negation of an expression.
        in_choice: Language for the parts of `any_of`; None for this language.
        visible: Returns the expression for nodes that name none or one of the principals in
            `ALLOWED_KEY`; None to compose it of the comparisons.
        ids: Returns the expression for rows with one of these ids; the list may be empty.
        documents: Returns the expression for nodes of these documents; the list may be empty.
        whole: Returns the engine's filter of an expression.
        check: Raises `UnsupportedFilterError` if a condition, or its expression, exceeds a limit.

    Examples:
        >>> from llama_retrieval_ext.filters import Compare
        >>> language = FilterLanguage(
        ...     {FilterOperator.EQ: "{}={}".format}, " and ".join, " or ".join, "not {}".format
        ... )
        >>> language.write(Compare("lang", FilterOperator.NE, "en"))
        'not lang=en'

    """

    comparisons: Mapping[FilterOperator, Comparison[E]]
    all_of: Callable[[Sequence[E]], E]
    any_of: Callable[[Sequence[E]], E]
    negated: Callable[[E], E]
    in_choice: "FilterLanguage[E] | None" = None
    visible: Callable[[Sequence[str]], E] | None = None
    ids: Callable[[Sequence[str]], E] = _no_selection
    documents: Callable[[Sequence[str]], E] = _no_selection
    check: Callable[[Condition, E], None] = lambda *_: None
    whole: Callable[[E], Any] = lambda written: written

    def compile(self, condition: Condition) -> Any:  # noqa: ANN401 - the engine's filter
        """Return the engine's filter for a whole condition, or raise if it exceeds a limit."""
        written = self.write(condition)
        self.check(condition, written)
        return self.whole(written)

    def select(self, target: Target) -> Any | None:  # noqa: ANN401 - the engine's filter
        """Return the engine's filter for a selection; None for all nodes."""
        parts = []
        if target.node_ids is not None:
            parts.append(self.ids(rows_of(map(valid_text, target.node_ids))))
        if target.rows is not None:
            parts.append(self.ids([*map(valid_text, target.rows)]))
        if target.doc_ids is not None:
            parts.append(self.documents([*map(valid_text, target.doc_ids)]))
        if (condition := target.condition) is not None:
            parts.append(self.write(condition))
            self.check(condition, parts[-1])
        return self.whole(self.all_of(parts)) if parts else None

    def write(self, condition: Condition) -> E:  # noqa: PLR0911 - one per kind
        """Return the engine's expression for a condition."""
        match condition:
            case Compare(key, operator, value):
                positive = _NEGATIONS.get(operator, operator)
                spelled = in_all_spellings(Compare(key, positive, value))
                language = (self.in_choice or self) if len(spelled) > 1 else self
                parts = [language._comparison(part) for part in spelled]  # noqa: SLF001 - its own
                written = parts[0] if len(parts) == 1 else self.any_of(parts)
                return written if positive is operator else self.negated(written)
            case AnyOf(
                (
                    Compare(key, FilterOperator.IS_EMPTY),
                    Compare(listed, FilterOperator.ANY, tuple(names)),
                )
            ) if (
                self.visible
                and key == listed == ALLOWED_KEY
                and all(isinstance(n, str) for n in names)
            ):
                return self.visible([*map(str, names)])
            case AllOf(parts):
                return self.all_of([self.write(part) for part in parts])
            case AnyOf(parts):
                language = (self.in_choice or self) if len(parts) > 1 else self
                return self.any_of([language.write(part) for part in parts])
            case Not(Not(part)):
                return self.write(part)
            case Not(part):
                return self.negated(self.write(part))

    def _comparison(self, compare: Compare) -> E:
        key, operator, value = compare.key, compare.operator, compare.value
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, int) and not is_float(part):
                raise UnsupportedFilterError(
                    f"{operator.name} on {key!r} has the number {part}, which engines round; store "
                    "such numbers as strings, or divided by a power of ten",
                    operator.name,
                )
        if operator in MEMBERSHIP_OPERATORS and key not in SCOPE_KEYS:
            values: Any = value if isinstance(value, tuple) else (value,)
            meant = meanings(values)
            if meant != [*values]:  # a value stands for a boolean
                return self.comparisons[FilterOperator.IN](key, meant)
        return self.comparisons[operator](key, value)
