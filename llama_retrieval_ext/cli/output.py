"""Output to a terminal or a pipe: messages, tables, passages and hits."""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import TextIOWrapper
from itertools import groupby, islice, pairwise, zip_longest
from textwrap import dedent
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

import llama_retrieval_ext as ext
from llama_retrieval_ext.text.highlighting import matched_spans
from llama_retrieval_ext.text.tokenizer import Tokenizer

_NARROWEST = 100
_UNLIMITED = 1_000_000
_SHOWN = 20
_FOUR_DIGITS = 999.5
_NUMBER = re.compile(r"[\d.,+-]+(?:e[+-]\d+)?|")
# Of hits: columns before a passage, its most lines, the most columns of a title.
_INDENT = 4
_QUOTED_LINES = 3
_TITLE_CELLS = 60
_MATCH = "bold yellow"


def console(*, stderr: bool = False) -> Console:
    """Return a console for plain text: markup in documents is printed literally.

    A pipe gets no colours, and lines of at least 100 columns.
    """
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, TextIOWrapper):
        # In a pipe without UTF-8, a Chinese character must not end the program.
        stream.reconfigure(errors="replace")
    plain = Console(file=stream, markup=False, highlight=False, emoji=False)
    if not plain.is_terminal:
        plain.width = max(_NARROWEST, plain.width)
    return plain


def say(text: str = "", *, style: str | None = None) -> None:
    """Print a paragraph without wrapping its lines."""
    console().print(text, style=style, soft_wrap=True)


def say_json(value: object) -> None:
    """Print a value as JSON."""
    say(json.dumps(value, ensure_ascii=False, indent=2))


def say_aside(text: str, *, style: str | None = None) -> None:
    """Print additional information to standard error."""
    console(stderr=True).print(text, style=style, soft_wrap=True)


def say_wrong(text: str) -> None:
    """Print an error in one line."""
    say_aside(f"error: {one_line(text)}", style="bold red")


def say_left_out(failures: Mapping[Any, str], word: str = "left out") -> None:
    """Print each omitted file or document by name or path, with the reason."""
    for name, reason in islice(failures.items(), _SHOWN):
        say_aside(f"{word} {printable(name)}: {one_line(reason)}", style="yellow")
    if len(failures) > _SHOWN:
        say_aside(f"{word} {len(failures) - _SHOWN} more", style="yellow")


def printable(name: object) -> str:
    r"""Return a name or path on one line, with line ends and control characters escaped.

    Examples:
        >>> print(printable("two\nlines.txt"))
        two\nlines.txt

    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(name)
    )


def say_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table without borders; wide characters count as two, numbers align right.

    A pipe gets each row on one line.
    """
    cells = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title, column in zip_longest(header, zip(*cells, strict=True), fillvalue=()):
        is_numeric = all(map(_NUMBER.fullmatch, column))
        table.add_column(str(title), overflow="fold", justify="right" if is_numeric else "left")
    for row in cells:
        table.add_row(*row)
    plain = console()
    if not plain.is_terminal:
        plain.width = _UNLIMITED
    with plain.capture() as captured:
        plain.print(table)
    for line in captured.get().splitlines():
        plain.file.write(f"{line.rstrip()}\n")


def say_wrapped(text: Text, *, indent: int, wrap: bool = True) -> None:
    """Print a paragraph with every line indented."""
    plain = console()
    lines = text.wrap(plain, plain.width - indent) if wrap else text.split("\n", allow_blank=True)
    for line in lines:
        line.rstrip()
        plain.print(Text(" " * indent if line else "") + line, soft_wrap=True)


def three_digits(number: float) -> str:
    """Return a number with three significant digits.

    Examples:
        >>> [three_digits(number) for number in (1, 0.98765, 15.26, 123.4, 5678.9, 0)]
        ['1.00', '0.988', '15.3', '123', '5679', '0.00']

    """
    if abs(number) >= _FOUR_DIGITS:
        return f"{number:.0f}"
    return f"{number:#.3g}".removesuffix(".")


def one_line(text: str, *, cells: int | None = None) -> str:
    r"""Return text on one line, cut to a number of columns, at the end of a word if near.

    Examples:
        >>> print(one_line("of a\nlong   text", cells=8))
        of a…
        >>> print(one_line("安全生产许可证", cells=8))
        安全生…

    """
    line = " ".join(text.split())
    if cells is None or cell_len(line) <= cells:
        return line
    cut = set_cell_size(line, cells - 1).rstrip()
    is_in_word = line[len(cut) :][:1].isalnum() and cut[-1:].isascii()
    end = cut.rfind(" ") if is_in_word else -1
    return cut[: end if end >= len(cut) // 2 else None].rstrip() + "…"


_SENTENCE_END = re.compile(r"[.!?:][\"')\]]*\s+|[。！？；]")  # noqa: RUF001 - Chinese punctuation
_BLOCK = re.compile(r"(?:^[^\S\n]*+\S[^\n]*\n?)+", re.MULTILINE)
_TOKENIZER = Tokenizer()


def quote(text: str, question: str, *, width: int, lines: int) -> list[str]:
    """Return a short passage as it is, or lines from the sentence with most terms of a question.

    Lines of prose are filled and end with a whole word; code keeps its lines.

    Args:
        text: The passage.
        question: The query.
        width: Maximum number of columns in a line of prose.
        lines: Maximum number of lines.

    Examples:
        >>> quote("Welcome. Leave is 25 days. Lunch is free.", "days of leave", width=25, lines=1)
        ['Leave is 25 days. Lunch …']

    """
    text_lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if len(text_lines) <= lines and all(cell_len(line) <= width for line in text_lines):
        return text_lines
    pieces = list(_pieces(text))
    shown = _lines(pieces, width)
    if len(shown) > lines:
        terms = set(_TOKENIZER.query_tokens(question))
        shared = [len(terms.intersection(_TOKENIZER.tokens(piece))) for piece, _ in pieces]
        shown = _lines(pieces[shared.index(max(shared)) :], width)
    if len(shown) > lines:
        last = f"{shown[lines - 1]} …"
        shown[lines - 1 :] = [last if cell_len(last) <= width else one_line(last, cells=width)]
    return shown


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield sentences and blocks of code, each with whether it is code."""
    before, is_code = "", False
    for match in _BLOCK.finditer(text):
        block = match[0]
        is_example = is_code or before.rstrip().endswith(":")
        is_code = block.lstrip().startswith((">>>", "```")) or (is_example and block[0] in " \t")
        before = block
        ends = [] if is_code else [match.end() for match in _SENTENCE_END.finditer(block)]
        for start, end in pairwise(sorted({0, *ends, len(block)})):
            yield block[start:end], is_code


def _lines(pieces: Sequence[tuple[str, bool]], width: int) -> list[str]:
    lines: list[str] = []
    for is_code, group in groupby(pieces, key=lambda piece: piece[1]):
        if is_code:
            lines += dedent("".join(piece for piece, _ in group)).rstrip().split("\n")
        else:
            prose = one_line("".join(piece for piece, _ in group))
            lines += [line.plain.rstrip() for line in Text(prose).wrap(console(), width)]
    return lines


def show_hits(hits: Sequence["ext.Hit"], query: str, *, full: bool) -> None:
    """Print hits, best first, each with its whole passage or with its best lines.

    Terms of the query are highlighted on a terminal.
    """
    scores = [three_digits(hit.score or 0.0) for hit in hits]
    width = max(map(len, scores), default=0)
    # The import of LlamaIndex takes two seconds; --help does not need it.
    from llama_retrieval_ext.display.results import document_titles, marked_words  # noqa: PLC0415

    titles = document_titles(hits)
    for rank, (hit, score) in enumerate(zip(hits, scores, strict=True), start=1):
        head = Text(f"{rank:>{_INDENT - 2}}  {score:>{width}}  ")
        head.append(one_line(titles[hit.node_id], cells=_TITLE_CELLS), style="bold")
        if hit.contributions:
            head.append(f"  ({_legs(hit)})", style="dim")
        head.append(f"  {hit.node_id}", style="dim")
        console().print(head, soft_wrap=True)
        show_passage(hit.text, marked_words(hit, query), full=full)
        if full:
            say()


def show_passage(text: str, query: str, *, full: bool) -> None:
    """Print a passage, with matching terms highlighted on a terminal."""
    terminal = console()
    if not full:
        text = "\n".join(quote(text, query, width=terminal.width - _INDENT, lines=_QUOTED_LINES))
    shown = Text(text)
    for start, end in matched_spans(text, query):
        shown.stylize(_MATCH, start, end)
    say_wrapped(shown, indent=_INDENT, wrap=terminal.is_terminal and full)


def _legs(hit: "ext.Hit") -> str:
    return ", ".join(f"{part.leg} {part.rank or '-'}" for part in hit.contributions)
