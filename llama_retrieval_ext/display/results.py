"""Views of search results, hits and traces: short text, HTML, and tables for a rich console."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from llama_retrieval_ext.display.html import Markup, join, table, tag
from llama_retrieval_ext.results import Contribution, Hit, SearchResult
from llama_retrieval_ext.trace import Trace

# How many hits the short form of a result shows, and how much of each text.
_SHOWN_HITS: Final = 5
_SHORT_TEXT: Final = 50
_LONG_TEXT: Final = 200
_SHOWN_METADATA: Final = 60


def result_text(result: SearchResult) -> str:
    """Return the short form of a result: a summary, and a line for each of the first hits.

    Args:
        result: Of a search.
    """
    more = len(result) - _SHOWN_HITS
    return "\n".join(
        [
            f"SearchResult({result_summary(result)})",
            *(
                f"  {rank}. {hit_score(hit)}  {document_title(hit)}  {short(hit.text)!r}"
                for rank, hit in enumerate(result[:_SHOWN_HITS], start=1)
            ),
            *([f"  … {more} more"] if more > 0 else []),
        ]
    )


def result_summary(result: SearchResult) -> str:
    """Return a result in a line: its query, number of hits, time, and what is degraded.

    Args:
        result: Of a search.
    """
    duration_s = None if result.trace is None else result.trace.duration_s
    return ", ".join(
        [
            *([repr(short(result.query))] if result.query else []),
            f"{len(result)} hit{'' if len(result) == 1 else 's'}",
            *([] if duration_s is None else [f"{duration_s * 1e3:.1f} ms"]),
            *([f"degraded: {_degraded_parts(result)}"] if result.degraded else []),
        ]
    )


def result_html(result: SearchResult) -> str:
    """Return a result as HTML: hits with ranks and scores by leg, what is missing, and the times.

    Args:
        result: Of a search.
    """
    missing = [tag("li", f"degraded: {part.where}: {part.reason}") for part in result.degraded]
    steps = [] if result.trace is None else [_folded("steps and times", trace_html(result.trace))]
    hits = [_hit_table(result.hits)] if result else []
    return join(
        [
            tag("p", result_summary(result)),
            *([tag("ul", *missing)] if missing else []),
            *hits,
            *steps,
        ]
    )


def result_console(result: SearchResult) -> RenderableType:
    """Return a result for a rich console; nothing in it is read as markup.

    Args:
        result: Of a search.
    """
    legs = _legs(result.hits)
    grid = Table(box=None, pad_edge=False)
    for title in ("", "score", "document", *(legs or ["source"]), "text"):
        grid.add_column(Text(title))
    for rank, hit in enumerate(result, start=1):
        found = [_in_leg(part) for part in _by_leg(hit, legs)] or [hit.source]
        text = short(hit.text, _LONG_TEXT)
        cells = (str(rank), hit_score(hit), document_title(hit), *found, text)
        grid.add_row(*map(Text, cells))
    degraded = (Text(f"degraded: {part.where}: {part.reason}") for part in result.degraded)
    return Group(Text(result_summary(result)), *degraded, *([grid] if result else []))


def hit_html(hit: Hit) -> str:
    """Return one hit as HTML, as a row of a result's table.

    Args:
        hit: Of a ranking.
    """
    return _hit_table([hit])


def hit_console(hit: Hit) -> RenderableType:
    """Return one hit for a rich console.

    Args:
        hit: Of a ranking.
    """
    return Text(f"{hit_score(hit)}  {document_title(hit)}  {short(hit.text, _LONG_TEXT)}")


def trace_html(trace: Trace) -> Markup:
    """Return a trace's outline as HTML.

    Args:
        trace: Of a search.
    """
    return tag("pre", trace.outline())


def trace_console(trace: Trace) -> RenderableType:
    """Return a trace's outline for a rich console.

    Args:
        trace: Of a search.
    """
    return Text(trace.outline())


def document_title(hit: Hit) -> str:
    """Return what people call the document of a hit: its file and page, or its id.

    Args:
        hit: Of a ranking.
    """
    metadata = hit.node.metadata
    name = str(metadata.get("file_name") or hit.node.ref_doc_id or hit.node.node_id)
    page = metadata.get("page_label")
    return name if page is None else f"{name} p. {page}"


def hit_score(hit: Hit) -> str:
    """Return the score with four digits; empty where there is none.

    Args:
        hit: Of a ranking.
    """
    return "" if hit.score is None else f"{hit.score:.4g}"


def short(text: str, length: int = _SHORT_TEXT) -> str:
    """Return text on one line, cut to a number of characters.

    Args:
        text: Of any length.
        length: How many characters stay.
    """
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[:length]}…"


def _degraded_parts(result: SearchResult) -> str:
    return ", ".join(dict.fromkeys(part.where for part in result.degraded))


def _legs(hits: Sequence[Hit]) -> list[str]:
    return list(dict.fromkeys(part.leg for hit in hits for part in hit.contributions))


def _by_leg(hit: Hit, legs: Sequence[str]) -> Iterator[Contribution | None]:
    """What each leg gave to a hit, in the order of the legs."""
    given = {part.leg: part for part in hit.contributions}
    return (given.get(leg) for leg in legs)


def _in_leg(part: Contribution | None) -> str:
    if part is None:
        return "—"
    rank = "not found" if part.rank is None else f"#{part.rank}"
    return rank if part.score is None else f"{rank} ({part.score:.4g})"


def _hit_table(hits: Sequence[Hit]) -> Markup:
    legs = _legs(hits)
    rows = (
        (str(rank), document_title(hit), hit_score(hit), *_leg_cells(hit, legs), _text_cell(hit))
        for rank, hit in enumerate(hits, start=1)
    )
    return table(("", "document", "score", *(legs or ["source"]), "text"), rows)


def _leg_cells(hit: Hit, legs: Sequence[str]) -> list[str]:
    if not legs:
        return [hit.source]
    return [
        _in_leg(part)
        if part is None
        else join([_in_leg(part), " ", tag("small", f"adds {part.share:.4g}")])
        for part in _by_leg(hit, legs)
    ]


def _text_cell(hit: Hit) -> Markup:
    metadata = (
        f"{key}: {short(str(value), _SHOWN_METADATA)}" for key, value in hit.node.metadata.items()
    )
    return join([short(hit.text, _LONG_TEXT), tag("br"), tag("small", ", ".join(metadata))])


def _folded(title: str, *contents: str) -> Markup:
    """What a click unfolds."""
    return tag("details", tag("summary", title), *contents)
