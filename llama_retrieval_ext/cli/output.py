"""What the terminal, or the pipe, gets to see."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from io import TextIOWrapper
from itertools import islice
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table

_NARROWEST = 100
_SHOWN = 20


def console(*, stderr: bool = False) -> Console:
    """A console for plain text: markup in documents is shown, not obeyed.

    Into a pipe there go no colours, and lines of at least 100 columns.
    """
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, TextIOWrapper):
        # A pipe of a system without UTF-8 must not end the program at the first Chinese letter.
        stream.reconfigure(errors="replace")
    plain = Console(file=stream, markup=False, highlight=False, emoji=False)
    if not plain.is_terminal:
        plain.width = max(_NARROWEST, plain.width)
    return plain


def say(text: str = "", *, style: str | None = None) -> None:
    """Print a paragraph; a line of it stays a line, however long."""
    console().print(text, style=style, soft_wrap=True)


def say_aside(text: str, *, style: str | None = None) -> None:
    """Print to standard error what is not the answer itself."""
    console(stderr=True).print(text, style=style, soft_wrap=True)


def say_wrong(text: str) -> None:
    """Print an error in one line."""
    say_aside(f"error: {one_line(text)}", style="bold red")


def say_left_out(failures: Mapping[Any, str]) -> None:
    """Say what was left out, by its name or path, and why."""
    for name, reason in islice(failures.items(), _SHOWN):
        say_aside(f"left out {name}: {one_line(reason)}", style="yellow")
    if len(failures) > _SHOWN:
        say_aside(f"left out {len(failures) - _SHOWN} more", style="yellow")


def say_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table without lines, its columns aligned, wide letters counted as two."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in header:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*row)
    plain = console()
    with plain.capture() as captured:
        plain.print(table)
    for line in captured.get().splitlines():
        plain.file.write(f"{line.rstrip()}\n")


def one_line(text: str, *, cells: int | None = None) -> str:
    r"""Text on one line, cut to a number of columns.

    Examples:
        >>> print(one_line("of a\nlong   text", cells=8))
        of a lo…
        >>> print(one_line("安全生产许可证", cells=8))
        安全生…

    """
    line = " ".join(text.split())
    if cells is None or cell_len(line) <= cells:
        return line
    return set_cell_size(line, cells - 1).rstrip() + "…"
