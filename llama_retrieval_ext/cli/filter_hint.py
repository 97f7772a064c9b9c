"""Why a filter matched nothing: a key that no passage has, or a value of another type."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from llama_index.core.vector_stores.types import FilterOperator, MetadataFilters

from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, parse_filters

_EQUALITY = {FilterOperator.EQ, FilterOperator.IN}
_POSITIVE = {
    *_EQUALITY,
    FilterOperator.GT,
    FilterOperator.GTE,
    FilterOperator.LT,
    FilterOperator.LTE,
    FilterOperator.TEXT_MATCH_INSENSITIVE,
}
_KINDS = {"str": "text", "int": "a number", "float": "a number", "bool": "true or false"}
_SHOWN_KEYS = 10


def filter_hints(
    filters: MetadataFilters, fields: Mapping[str, Mapping[str, int]], *, n_passages: int
) -> Iterator[str]:
    r"""What in filters can match nothing, one line for each condition.

    Args:
        filters: The filters.
        fields: How many passages have a value of which type, by metadata key, as
            ``KnowledgeBase.metadata_fields`` returns it.
        n_passages: How many passages it looked at.

    Examples:
        >>> from llama_retrieval_ext.cli.filter_notation import parse_filter_options
        >>> filters = parse_filter_options(["page_label=1", "pagelabel=1"])
        >>> fields = {"page_label": {"str": 120}}
        >>> print(*filter_hints(filters, fields, n_passages=500), sep="\n")
        page_label is text in 120 of 120 passages that have it; you wrote a number: page_label="1"
        none of 500 passages looked at has the key 'pagelabel'; did you mean 'page_label'?

    """
    for part in _required(parse_filters(filters)):
        if part.key in fields:
            yield from _of_types(part, fields[part.key])
        else:
            alternatives = _alternatives(part.key, list(fields))
            yield (
                f"none of {n_passages:,} passages looked at has the key {part.key!r}; "
                f"{alternatives}"
            )


def _required(condition: Condition) -> Iterator[Compare]:
    """The comparisons that have to be true of a hit; what is negated may well match nothing."""
    match condition:
        case Compare():
            if condition.operator in _POSITIVE:
                yield condition
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _required(part)


def _of_types(part: Compare, types: Mapping[str, int]) -> Iterator[str]:
    counts: dict[str, int] = {}
    for name, count in types.items():
        kind = _KINDS.get(name, f"a {name}")
        counts[kind] = counts.get(kind, 0) + count
    value = part.value[0] if isinstance(part.value, tuple) else part.value
    written = "text" if isinstance(value, str) else "a number"
    if written in counts:
        return
    kind, count = max(counts.items(), key=lambda each: each[1])
    instead = f': {part.key}="{value}"' if kind == "text" and part.operator in _EQUALITY else ""
    yield (
        f"{part.key} is {kind} in {count:,} of {sum(counts.values()):,} passages that have it; "
        f"you wrote {written}{instead}"
    )


def _alternatives(key: str, keys: list[str]) -> str:
    if not keys:
        return "they have none"
    close = get_close_matches(key, keys, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    more = " ..." if len(keys) > _SHOWN_KEYS else ""
    return f"there are: {', '.join(sorted(keys)[:_SHOWN_KEYS])}{more}"
