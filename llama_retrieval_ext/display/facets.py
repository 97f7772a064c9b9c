"""Views of `Facets`: the values of each field, with bars by count."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from llama_retrieval_ext.display.html import bars, page, table, tag
from llama_retrieval_ext.knowledge_base.facets import FacetRange, Facets, FacetValue
from llama_retrieval_ext.wording import counted, on_one_line


def facets_text(facets: Facets) -> str:
    """Return facets as plain text: a line for each field, and one for its ranges."""
    return "\n".join([_summary(facets), *_lines(facets)])


def facets_console(facets: Facets) -> RenderableType:
    """Return facets for a rich console."""
    return Group(Text(_summary(facets)), *map(Text, _lines(facets)))


def facets_html(facets: Facets) -> str:
    """Return facets as HTML: a table for each field, with bars by count."""
    parts = [tag("h3", _summary(facets))]
    parts += [tag("p", note) for note in _notes(facets)]
    for facet in facets.values():
        more = facet.distinct - len(facet.values)
        shown: list[FacetValue | FacetRange] = [*facet.values, *facet.ranges]
        most = max((part.count for part in shown), default=1)
        rows = [(name_of(part), str(part.count), bars([(0, part.count / most)])) for part in shown]
        left = [tag("p", f"and {more:,} more values", class_="dim")] if more else []
        parts += [tag("h4", facet.field), table(("", facets.counts, ""), rows), *left]
    return page(*parts)


def name_of(part: FacetValue | FacetRange) -> str:
    """Return a value, or a range in words."""
    if isinstance(part, FacetValue):
        return on_one_line(part.value)
    if part.low is None or part.high is None:
        return f"below {part.high}" if part.low is None else f"from {part.low}"
    return f"{part.low} to below {part.high}"


def _summary(facets: Facets) -> str:
    noun = "document" if facets.counts == "documents" else "passage"
    about = ", approximate" if facets.approximate else ""
    return f"Facets of {counted(facets.total, noun)}{about}"


def _notes(facets: Facets) -> list[str]:
    reasons = [f"approximate: {reason}" for reason in facets.reasons]
    return [*reasons, *(f"hint: {hint}" for hint in facets.hints)]


def _lines(facets: Facets) -> Iterator[str]:
    for note in _notes(facets):
        yield f"  {note}"
    for facet in facets.values():
        for parts in (facet.values, facet.ranges):
            listed = ", ".join(f"{name_of(part)} {part.count}" for part in parts)
            more = facet.distinct - len(parts) if parts is facet.values else 0
            if parts:
                yield f"  {facet.field}: {listed}{f', and {more:,} more' if more else ''}"
