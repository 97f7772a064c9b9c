"""Views of search results, hits and traces: short text, HTML, rich console."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from llama_retrieval_ext.display.html import Markup, bars, chip, highlighted, join, page, tag
from llama_retrieval_ext.hits import document_title
from llama_retrieval_ext.results import Contribution, Hit, SearchResult
from llama_retrieval_ext.scope import without_allowed
from llama_retrieval_ext.text.highlighting import excerpt
from llama_retrieval_ext.text.normalization import language_of
from llama_retrieval_ext.trace import Trace
from llama_retrieval_ext.wording import counted, short

# Limits of hits and of text in the short form of a result.
_SHOWN_HITS: Final = 5
_LONG_TEXT: Final = 200
_SHOWN_METADATA: Final = 60
_SHOWN_KEYS: Final = 12
_SHOWN_PARTS: Final = 10
_SHOWN_STEPS: Final = 60
_CARD_TEXT: Final = 320
# Numbers of folders that a title may have.
_FOLDERS: Final = range(6)
# Signs of headings, quotes, emphasis and code in Markdown.
_MARKDOWN: Final = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?)|\*\*|`{1,3}", re.MULTILINE)


def result_text(result: SearchResult) -> str:
    """Return the short form of a result: a summary, and one line for each of the first hits."""
    more = len(result) - _SHOWN_HITS
    titles = document_titles(result)
    return "\n".join(
        [
            f"SearchResult({result_summary(result)})",
            *(
                f"  {rank}. {hit_score(hit)}  {titles[hit.node_id]}  {short(hit.text)!r}"
                for rank, hit in enumerate(result[:_SHOWN_HITS], start=1)
            ),
            *([f"  … {more} more"] if more > 0 else []),
            *(f"  hint: {hint}" for hint in result.hints[:_SHOWN_PARTS]),
        ]
    )


def result_summary(result: SearchResult) -> str:
    """Return a result on one line: query, number of hits, time, and degraded parts."""
    duration_s = None if result.trace is None else result.trace.duration_s
    degraded = dict.fromkeys(part.where for part in result.degraded)
    return ", ".join(
        [
            *([repr(short(result.query))] if result.query else []),
            counted(len(result), "hit"),
            *([] if duration_s is None else [f"{duration_s * 1e3:.1f} ms"]),
            *([f"degraded: {', '.join(degraded)}"] if degraded else []),
        ]
    )


def result_html(result: SearchResult) -> str:
    """Return a result as HTML: one card per hit, missing parts, and times."""
    parts = [tag("h3", result_summary(result)), notes_html(result)]
    parts.append(hit_cards(result) if result else nothing_found())
    if result.trace is not None:
        summary = tag("summary", "steps and times")
        parts.append(tag("details", summary, _steps(result.trace)))
    return page(*parts)


def result_console(result: SearchResult) -> RenderableType:
    """Return a result for a rich console; its text is not parsed as markup."""
    legs, titles = _legs(result.hits), document_titles(result)
    header = ("", "score", "document", *(legs or ["source"]), "text")
    rows = [
        (
            *(str(rank), hit_score(hit), titles[hit.node_id]),
            *([_in_leg(parts.get(leg)) for leg in legs] or [hit.source]),
            short(hit.text, _LONG_TEXT),
        )
        for rank, hit in enumerate(result, start=1)
        for parts in [{part.leg: part for part in hit.contributions}]
    ]
    notes = [f"degraded: {part}" for part in result.degraded]
    notes += [f"hint: {hint}" for hint in result.hints]
    shown = [console_table(header, rows)] if rows else []
    return Group(Text(result_summary(result)), *map(Text, notes), *shown)


def console_table(header: Iterable[str], rows: Iterable[Iterable[str]], *, bold: str = "") -> Table:
    """Return a table for a rich console, with cells that contain ``bold`` in bold type."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in header:
        grid.add_column(Text(title), overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell, "bold" if bold and bold in cell else "") for cell in row))
    return grid


def hit_html(hit: Hit) -> str:
    """Return one hit as an HTML card."""
    return page(hit_cards([hit]))


def hit_console(hit: Hit) -> RenderableType:
    """Return one hit for a rich console."""
    return Text(f"{hit_score(hit)}  {document_title(hit)}  {short(hit.text, _LONG_TEXT)}")


def trace_html(trace: Trace) -> str:
    """Return a trace's outline as HTML."""
    return page(_steps(trace))


def _steps(trace: Trace) -> Markup:
    lines = list(trace.lines())
    more = [f"… {len(lines) - _SHOWN_STEPS} more"] if len(lines) > _SHOWN_STEPS else []
    shown = [line[:_LONG_TEXT] for line in lines[:_SHOWN_STEPS]]
    return tag("pre", "\n".join([*shown, *more]))


def trace_console(trace: Trace) -> RenderableType:
    """Return a trace's outline for a rich console."""
    return Text(trace.outline())


def document_titles(hits: Iterable[Hit]) -> dict[str, str]:
    """Return the title of each hit's document by node id; files of one name get their folders.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> files = ({"file_name": "x.md", "file_path": f"docs/{each}/x.md"} for each in "ab")
        >>> hits = [Hit(node=TextNode(metadata=each)) for each in files]
        >>> [*document_titles(hits).values()]
        ['a/x.md', 'b/x.md']

    """
    titles, folders = dict[str, str](), dict[str, dict[str, list[str]]]()
    for hit in hits:
        title = titles[hit.node_id] = document_title(hit)
        parts = re.split(r"[/\\]", str(hit.node.metadata.get("file_path", "")))[:-1]
        folders.setdefault(title, {})[hit.node_id] = parts
    for title, by_id in folders.items():
        tails = [{tuple(p[max(0, len(p) - n) :]) for p in by_id.values()} for n in _FOLDERS]
        depth = tails.index(max(tails, key=len))
        for node_id, parts in by_id.items():
            titles[node_id] = "/".join([*parts[max(0, len(parts) - depth) :], title])
    return titles


def hit_score(hit: Hit) -> str:
    """Return the score with four digits; empty without a score."""
    return "" if hit.score is None else f"{hit.score:.4g}"


def _legs(hits: Sequence[Hit]) -> list[str]:
    return list(dict.fromkeys(part.leg for hit in hits for part in hit.contributions))


def leg_colours(hits: Sequence[Hit]) -> dict[str, int]:
    """Return the number of each leg's colour, the same in every view of these hits."""
    return {leg: number for number, leg in enumerate(_legs(hits) or [""])}


def _in_leg(part: Contribution | None) -> str:
    if part is None:
        return "—"
    rank = "not found" if part.rank is None else f"#{part.rank}"
    return rank if part.score is None else f"{rank} ({part.score:.4g})"


def notes_html(result: SearchResult) -> Markup:
    """Return the missing parts and the hints of a result as HTML; empty if there are none."""
    notes = [
        (f"degraded: {part.where}: {short(part.reason, _LONG_TEXT)}", "bad")
        for part in result.degraded[:_SHOWN_PARTS]
    ]
    notes += [(f"hint: {hint}", "dim") for hint in result.hints[:_SHOWN_PARTS]]
    return join(tag("p", text, class_=style) for text, style in notes)


def nothing_found() -> Markup:
    """Return what to try where nothing was found."""
    return tag("p", "Nothing found. Try other words, another mode, or fewer filters.")


def hit_cards(
    hits: Sequence[Hit], *, query: str | None = None, more: Sequence[Sequence[Markup]] = ()
) -> Markup:
    """Return one card per hit: document, score shares by leg, text, metadata, path and proof.

    With ``more``, further chips of each hit, the contributions of legs are written in full.
    """
    if query is None:
        query = hits.query if isinstance(hits, SearchResult) else ""
    whole = max((_positive(hit) for hit in hits), default=0.0)
    view = _View(query, document_titles(hits), leg_colours(hits), whole)
    cards = [
        _card(rank, hit, view, chips)
        for rank, (hit, chips) in enumerate(zip_longest(hits, more), start=1)
        if hit is not None
    ]
    return join(cards)


class _View(NamedTuple):
    """What the cards of a ranking share: ``whole`` is the score of a full bar."""

    query: str
    titles: Mapping[str, str]
    colours: Mapping[str, int]
    whole: float


def _positive(hit: Hit) -> float:
    shares = [part.share for part in hit.contributions] or [hit.score or 0.0]
    return sum(max(share, 0.0) for share in shares)


def _card(rank: int, hit: Hit, view: _View, more: Sequence[Markup] | None) -> Markup:
    document = hit.node.ref_doc_id
    head = tag(
        "div",
        tag("span", str(rank), class_="rank num"),
        tag("b", view.titles[hit.node_id], **({"data_document": document} if document else {})),
        *([] if hit.contributions else [tag("small", hit.source)]),
        tag("span", hit_score(hit), class_="num"),
        class_="head",
    )
    chips = {
        part: chip(
            f"{short(part.leg)} {_in_leg(part)}{f' +{part.share:.3g}' if part.share else ''}"
            if more is None
            else in_leg(part, hit.score),
            colour=view.colours[part.leg],
        )
        for part in hit.contributions
    }
    # A stage that reorders replaces the score: the legs' shares are 0, their ranks still say why.
    empty = [part for part in hit.contributions if not part.share and not part.score]
    shares = [(view.colours[part.leg], part.share) for part in hit.contributions]
    shares = shares or [(0, hit.score or 0.0)]
    marked = marked_words(hit, view.query)
    is_markdown = str(hit.node.metadata.get("file_name", "")).endswith((".md", ".markdown"))
    text = _MARKDOWN.sub("", hit.text) if is_markdown else hit.text
    text = highlighted(excerpt(text, marked, length=_CARD_TEXT), marked)
    return tag(
        "div",
        head,
        bars((colour, share / (view.whole or 1.0)) for colour, share in shares),
        tag("div", *(chips[p] for p in chips if p not in empty), *(more or []), class_="chips"),
        tag("p", text, class_="text"),
        *(tag("p", line, class_="dim") for line in _origins(hit)),
        *_folded([chips[part] for part in empty]),
        class_="card",
    )


def _folded(chips: Sequence[Markup]) -> Iterator[Markup]:
    """Yield the contributions that add nothing to the score, folded; nothing if there are none."""
    if chips:
        summary = tag(
            "summary", f"{len(chips)} that {'adds' if len(chips) == 1 else 'add'} nothing"
        )
        yield tag("details", summary, tag("div", *chips, class_="chips"))


def marked_words(hit: Hit, query: str) -> str:
    """Return the words to mark in a hit: those of its highlights, or of a query without any."""
    by_meaning = [mark.text for mark in hit.highlights if mark.by == "meaning"]
    return next(iter(by_meaning), query if hit.question is None else hit.question.words)


def _origins(hit: Hit) -> Iterator[str]:
    """Yield the path in a graph, the proof of a rule, and the metadata."""
    is_chinese = language_of(hit.text) == "zh"
    if hit.path:
        yield f"{'路径' if is_chinese else 'path'}: {short(hit.path, _LONG_TEXT)}"
    if hit.proof:
        proof = short("; ".join(map(str, hit.proof)), _LONG_TEXT)
        yield f"{'证明' if is_chinese else 'proof'}: {proof}"
    metadata = [
        f"{short(str(key))}: {short(str(value), _SHOWN_METADATA)}"
        for key, value in without_allowed(hit.node.metadata).items()
        if value not in ("", None) and str(value) != document_title(hit)
    ]
    if metadata:
        yield " · ".join(metadata[:_SHOWN_KEYS])


def in_leg(part: Contribution, score: float | None) -> str:
    """Return a leg's contribution to a hit: rank, score, weight and share.

    The weight is the one that the score on the fusion's scale was multiplied by.
    """
    scaled = "" if part.normalised is None else f", normalised {part.normalised:.4g}"
    of_all = f" ({100 * part.share / score:.0f} %)" if score else ""
    weight = part.share / part.normalised if part.normalised else part.weight
    added = f", weight {weight:.4g}, adds {part.share:.4g}{of_all}" if part.share else ""
    return f"{short(part.leg)} {_in_leg(part)}{scaled}{added}"
