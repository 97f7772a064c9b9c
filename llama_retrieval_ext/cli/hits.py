"""Output of hits: a line with rank, score, document and legs, and the passage below it."""

from collections.abc import Sequence

from rich.text import Text

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.output import (
    console,
    one_line,
    quote,
    say,
    say_wrapped,
    three_digits,
)
from llama_retrieval_ext.text.highlighting import matched_spans

_INDENT = 4
_QUOTED_LINES = 3
_TITLE_CELLS = 60
_MATCH = "bold yellow"


def show_hits(hits: Sequence["ext.Hit"], query: str, *, full: bool) -> None:
    """Print hits, best first.

    Args:
        hits: The hits of a search.
        query: The query; its words are highlighted on a terminal.
        full: Whether to print whole passages instead of the best lines.
    """
    scores = [three_digits(hit.score or 0.0) for hit in hits]
    width = max(map(len, scores), default=0)
    for rank, (hit, score) in enumerate(zip(hits, scores, strict=True), start=1):
        head = Text(f"{rank:>{_INDENT - 2}}  {score:>{width}}  ")
        head.append(title(hit), style="bold")
        if hit.contributions:
            head.append(f"  ({_legs(hit)})", style="dim")
        console().print(head, soft_wrap=True)
        show_passage(hit.text, query, full=full)
        if full:
            say()


def show_passage(text: str, query: str, *, full: bool) -> None:
    """Print a passage, with matching terms highlighted on a terminal.

    Args:
        text: The passage.
        query: The query; empty for none.
        full: Whether to print the whole passage with its own lines, unwrapped in a pipe.
    """
    terminal = console()
    if not full:
        text = "\n".join(quote(text, query, width=terminal.width - _INDENT, lines=_QUOTED_LINES))
    shown = Text(text)
    for start, end in matched_spans(text, query):
        shown.stylize(_MATCH, start, end)
    say_wrapped(shown, indent=_INDENT, wrap=terminal.is_terminal and full)


def title(hit: "ext.Hit") -> str:
    """Return a readable name of a hit's document: its file and page, or its id."""
    metadata = hit.node.metadata
    name = str(metadata.get("file_name") or hit.node.ref_doc_id or hit.node.node_id)
    page = metadata.get("page_label")
    return one_line(name if page is None else f"{name} p. {page}", cells=_TITLE_CELLS)


def _legs(hit: "ext.Hit") -> str:
    return ", ".join(f"{part.leg} {part.rank or '-'}" for part in hit.contributions)
