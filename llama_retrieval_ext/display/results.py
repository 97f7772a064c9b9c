"""Views of search results, hits and traces: short text, HTML, rich console."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from llama_retrieval_ext.display.html import Markup, bars, chip, highlighted, join, page, tag
from llama_retrieval_ext.results import Contribution, Hit, SearchResult
from llama_retrieval_ext.text.highlighting import excerpt
from llama_retrieval_ext.trace import Trace

# Limits of hits and of text in the short form of a result.
_SHOWN_HITS: Final = 5
_SHORT_TEXT: Final = 50
_LONG_TEXT: Final = 200
_SHOWN_METADATA: Final = 60
_SHOWN_KEYS: Final = 12
_SHOWN_PARTS: Final = 10
_SHOWN_STEPS: Final = 60
_CARD_TEXT: Final = 320


def result_text(result: SearchResult) -> str:
    """Return the short form of a result: a summary, and one line for each of the first hits."""
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
    """Return a result on one line: query, number of hits, time, and degraded parts."""
    duration_s = None if result.trace is None else result.trace.duration_s
    return ", ".join(
        [
            *([repr(short(result.query))] if result.query else []),
            f"{len(result)} hit{'' if len(result) == 1 else 's'}",
            *([] if duration_s is None else [f"{duration_s * 1e3:.1f} ms"]),
            *([] if result.confidence is None else [f"confidence {result.confidence:.2f}"]),
            *([f"degraded: {_degraded_parts(result)}"] if result.degraded else []),
        ]
    )


def result_html(result: SearchResult) -> str:
    """Return a result as HTML: one card per hit, missing parts, and times."""
    parts = [tag("h3", result_summary(result)), degraded_html(result), hit_cards(result)]
    if result.trace is not None:
        summary = tag("summary", "steps and times")
        parts.append(tag("details", summary, trace_html(result.trace)))
    return page(*parts)


def result_console(result: SearchResult) -> RenderableType:
    """Return a result for a rich console; its text is not parsed as markup."""
    legs = _legs(result.hits)
    grid = Table(box=None, pad_edge=False)
    for title in ("", "score", "document", *(legs or ["source"]), "text"):
        grid.add_column(Text(title))
    for rank, hit in enumerate(result, start=1):
        found = [_in_leg(part) for part in _by_leg(hit, legs)] or [hit.source]
        text = short(hit.text, _LONG_TEXT)
        cells = (str(rank), hit_score(hit), document_title(hit), *found, text)
        grid.add_row(*map(Text, cells))
    degraded = (Text(f"degraded: {part}") for part in result.degraded)
    return Group(Text(result_summary(result)), *degraded, *([grid] if result else []))


def hit_html(hit: Hit) -> str:
    """Return one hit as an HTML card."""
    return page(hit_cards([hit]))


def hit_console(hit: Hit) -> RenderableType:
    """Return one hit for a rich console."""
    return Text(f"{hit_score(hit)}  {document_title(hit)}  {short(hit.text, _LONG_TEXT)}")


def trace_html(trace: Trace) -> Markup:
    """Return a trace's outline as HTML."""
    lines = list(trace.lines())
    more = [f"… {len(lines) - _SHOWN_STEPS} more"] if len(lines) > _SHOWN_STEPS else []
    shown = [line[:_LONG_TEXT] for line in lines[:_SHOWN_STEPS]]
    return tag("pre", "\n".join([*shown, *more]))


def trace_console(trace: Trace) -> RenderableType:
    """Return a trace's outline for a rich console."""
    return Text(trace.outline())


def document_title(hit: Hit) -> str:
    """Return the document title of a hit: file and page, or the id."""
    metadata = hit.node.metadata
    name = str(metadata.get("file_name") or hit.node.ref_doc_id or hit.node.node_id)
    page = metadata.get("page_label")
    return name if page is None else f"{name} p. {page}"


def hit_score(hit: Hit) -> str:
    """Return the score with four digits; empty without a score."""
    return "" if hit.score is None else f"{hit.score:.4g}"


def short(text: str, length: int = _SHORT_TEXT) -> str:
    """Return text on one line, cut to a number of characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[:length]}…"


def _degraded_parts(result: SearchResult) -> str:
    return ", ".join(dict.fromkeys(part.where for part in result.degraded))


def _legs(hits: Sequence[Hit]) -> list[str]:
    return list(dict.fromkeys(part.leg for hit in hits for part in hit.contributions))


def _by_leg(hit: Hit, legs: Sequence[str]) -> Iterator[Contribution | None]:
    """Yield the contribution of each leg to a hit, in the order of the legs."""
    given = {part.leg: part for part in hit.contributions}
    return (given.get(leg) for leg in legs)


def _in_leg(part: Contribution | None) -> str:
    if part is None:
        return "—"
    rank = "not found" if part.rank is None else f"#{part.rank}"
    return rank if part.score is None else f"{rank} ({part.score:.4g})"


def degraded_html(result: SearchResult) -> Markup:
    """Return the missing parts of a result as HTML; empty if there are none."""
    missing = result.degraded[:_SHOWN_PARTS]
    return join(
        tag("p", f"degraded: {part.where}: {short(part.reason, _LONG_TEXT)}", class_="bad")
        for part in missing
    )


def hit_cards(
    hits: Sequence[Hit], *, query: str | None = None, more: Sequence[Sequence[Markup]] = ()
) -> Markup:
    """Return one card per hit: document, score shares by leg, text, metadata, path and proof.

    With ``more``, further chips of each hit, the contributions of legs are written in full.
    """
    if query is None:
        query = hits.query if isinstance(hits, SearchResult) else ""
    colours = {leg: number for number, leg in enumerate(_legs(hits) or [""])}
    whole = max((_positive(hit) for hit in hits), default=0.0)
    cards = [
        _card(rank, hit, query, _Scale(colours, whole), chips)
        for rank, (hit, chips) in enumerate(zip_longest(hits, more), start=1)
        if hit is not None
    ]
    return join(cards)


class _Scale(NamedTuple):
    """Colour of each leg, and score of a full bar."""

    colours: Mapping[str, int]
    whole: float


def _positive(hit: Hit) -> float:
    shares = [part.share for part in hit.contributions] or [hit.score or 0.0]
    return sum(max(share, 0.0) for share in shares)


def _card(rank: int, hit: Hit, query: str, scale: _Scale, more: Sequence[Markup] | None) -> Markup:
    head = tag(
        "div",
        tag("span", str(rank), class_="rank num"),
        tag("b", document_title(hit)),
        tag("small", hit.source),
        tag("span", hit_score(hit), class_="num"),
        class_="head",
    )
    chips = [
        chip(
            in_leg(part, hit.score) if more is not None else _in_short(part),
            colour=scale.colours[part.leg],
        )
        for part in hit.contributions
    ]
    text = highlighted(excerpt(hit.text, query, length=_CARD_TEXT), query)
    return tag(
        "div",
        head,
        _score_bar(hit, scale),
        tag("div", *chips, *(more or []), class_="chips"),
        tag("p", text, class_="text"),
        *(tag("p", line, class_="dim") for line in _origins(hit)),
        class_="card",
    )


def _score_bar(hit: Hit, scale: _Scale) -> Markup:
    shares = [(scale.colours[part.leg], part.share) for part in hit.contributions]
    whole = scale.whole or 1.0
    return bars((colour, share / whole) for colour, share in shares or [(0, hit.score or 0.0)])


def _origins(hit: Hit) -> Iterator[str]:
    """Yield the path in a graph, the proof of a rule, and the metadata."""
    if hit.path:
        yield f"path: {short(hit.path, _LONG_TEXT)}"
    if hit.proof:
        yield f"proof: {short('; '.join(map(str, hit.proof)), _LONG_TEXT)}"
    metadata = [
        f"{short(str(key))}: {short(str(value), _SHOWN_METADATA)}"
        for key, value in hit.node.metadata.items()
        if value not in ("", None)
    ]
    if metadata:
        yield " · ".join(metadata[:_SHOWN_KEYS])


def in_leg(part: Contribution, score: float | None) -> str:
    """Return a leg's contribution to a hit: rank, score, weight and share."""
    scaled = "" if part.normalised is None else f", normalised {part.normalised:.4g}"
    of_all = f" ({100 * part.share / score:.0f} %)" if score else ""
    added = f", weight {part.weight:.4g}, adds {part.share:.4g}{of_all}" if part.share else ""
    return f"{short(part.leg)} {_in_leg(part)}{scaled}{added}"


def _in_short(part: Contribution) -> str:
    return f"{short(part.leg)} {_in_leg(part)}{f' +{part.share:.3g}' if part.share else ''}"
