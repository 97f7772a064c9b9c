"""Views of two explanations side by side: text, HTML, rich console."""

from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from llama_retrieval_ext.display.html import Markup, arrow, page, table, tag, tile
from llama_retrieval_ext.display.results import document_title, result_summary, short
from llama_retrieval_ext.pipeline.explanation import ExplanationComparison, RankPair

# Limits of hits, and of the characters of a title and of a text.
_HITS: Final = 40
_TITLE: Final = 40
_TEXT: Final = 120


def comparison_text(comparison: ExplanationComparison) -> str:
    """Return a comparison as text: one line for each hit in either explanation.

    Args:
        comparison: Comparison of two explanations.
    """
    lines = (
        f"  {_rank(pair.first):>4} {_rank(pair.second):>4} {_move(pair):>8}  "
        f"{short(document_title(pair.hit), _TITLE)}"
        for pair in comparison.pairs
    )
    return "\n".join([_comparison_summary(comparison), *lines])


def comparison_console(comparison: ExplanationComparison) -> RenderableType:
    """Return a comparison as a table for a rich console.

    Args:
        comparison: Comparison of two explanations.
    """
    grid = Table(box=None, pad_edge=False)
    for title in ("first", "second", "moved", "document", "text"):
        grid.add_column(title)
    for pair in comparison.pairs:
        texts = (document_title(pair.hit), short(pair.hit.text))
        grid.add_row(*map(Text, (_rank(pair.first), _rank(pair.second), _move(pair), *texts)))
    return Group(Text(_comparison_summary(comparison)), grid)


def comparison_html(comparison: ExplanationComparison) -> str:
    """Return a comparison as HTML: both summaries, and the rank of each hit in both.

    Args:
        comparison: Comparison of two explanations.
    """
    rows = (
        (
            _rank(pair.first),
            _rank(pair.second),
            _moved(pair),
            document_title(pair.hit),
            short(pair.hit.text, _TEXT),
        )
        for pair in comparison.pairs[:_HITS]
    )
    sides = (comparison.first, comparison.second)
    tiles = (
        tile(f"{100 * comparison.overlap:.0f} %", "in both"),
        tile(str(len(comparison.only_first)), "only in the first"),
        tile(str(len(comparison.only_second)), "only in the second"),
    )
    return page(
        tag("h3", "Two explanations side by side"),
        *(tag("p", tag("b", f"{n}. "), result_summary(each)) for n, each in enumerate(sides, 1)),
        tag("div", *tiles, class_="tiles"),
        table(("first", "second", "moved", "document", "text"), rows),
    )


def _rank(rank: int | None) -> str:
    return "—" if rank is None else f"#{rank}"


def _move(pair: RankPair) -> str:
    if pair.moved is None:
        return "new" if pair.first is None else "gone"
    return "=" if pair.moved == 0 else f"{'▲' if pair.moved > 0 else '▼'}{abs(pair.moved)}"


def _moved(pair: RankPair) -> Markup:
    if pair.moved is None:
        return tag("span", _move(pair), class_="good" if pair.first is None else "bad")
    return arrow(pair.moved)


def _comparison_summary(comparison: ExplanationComparison) -> str:
    sides = [result_summary(each) for each in (comparison.first, comparison.second)]
    return f"{sides[0]} | {sides[1]}: {100 * comparison.overlap:.0f} % in both"
