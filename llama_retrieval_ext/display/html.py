"""Self-contained HTML: inline styles that suit light and dark themes, no scripts, all escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

# Colours are those of the page: lines and shades are drawn in its text colour, half transparent.
_STYLES: Final = {
    "table": "border-collapse:collapse;margin:0.3em 0;",
    "th": "text-align:left;font-weight:600;padding:0.2em 0.8em 0.2em 0;"
    "border-bottom:1px solid rgba(128,128,128,0.5);",
    "td": "text-align:left;vertical-align:top;padding:0.2em 0.8em 0.2em 0;"
    "border-bottom:1px solid rgba(128,128,128,0.2);",
    "pre": "background:none;color:inherit;margin:0.3em 0;white-space:pre-wrap;",
    "small": "opacity:0.7;",
    "ul": "margin:0.3em 0;",
}


class Markup(str):
    """A string that is HTML already."""

    __slots__ = ()


def tag(name: str, *contents: str) -> Markup:
    """Return an element around its contents; strings that are not `Markup` are escaped.

    Args:
        name: Of the element.
        contents: Text and elements, in their order.

    Examples:
        >>> print(tag("p", "a < b ", tag("b", "!")))
        <p>a &lt; b <b>!</b></p>

    """
    style = f' style="{_STYLES[name]}"' if name in _STYLES else ""
    return Markup(f"<{name}{style}>{join(contents)}</{name}>")


def join(contents: Iterable[str]) -> Markup:
    """Return text and elements one behind the other, as one piece of HTML.

    Args:
        contents: Strings that are not `Markup` are escaped.
    """
    return Markup("".join(c if isinstance(c, Markup) else escape(c) for c in contents))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return a table.

    Args:
        header: Titles of the columns.
        rows: Cells, as many as titles.
    """
    head = tag("tr", *(tag("th", title) for title in header))
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    return tag("table", tag("thead", head), tag("tbody", *body))
