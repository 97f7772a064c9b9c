"""Self-contained HTML: styles that suit light and dark themes, no scripts, all escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from llama_retrieval_ext.display.style import N_COLOURS, STYLE
from llama_retrieval_ext.text.highlighting import matched_spans

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


def tag(name: str, *contents: str, **attributes: str | float) -> Markup:
    """Return an element around its contents; strings that are not `Markup` are escaped.

    Args:
        name: Of the element.
        contents: Text and elements, in their order.
        attributes: Escaped as well; ``class_`` is ``class``, and ``stroke_width`` ``stroke-width``.

    Examples:
        >>> print(tag("p", "a < b ", tag("b", "!"), class_="x"))
        <p class="x">a &lt; b <b>!</b></p>

    """
    if name in _STYLES and not attributes:
        attributes = {"style": _STYLES[name]}
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{name}{written}>{join(contents)}</{name}>")


def _attribute(key: str, value: str | float) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f' {key.rstrip("_").replace("_", "-")}="{escape(text)}"'


def page(*contents: str) -> Markup:
    """Return a view: its contents with their styles, which follow the theme of the notebook.

    Args:
        contents: Text and elements, in their order.
    """
    return tag("div", tag("style", Markup(STYLE)), *contents, class_="lre")


def highlighted(text: str, query: str) -> Markup:
    """Return text with the terms of a query marked.

    Args:
        text: What is shown.
        query: What was searched for; Chinese, too.

    Examples:
        >>> print(highlighted("Leave < 年假", "leave 年假"))
        <mark>Leave</mark> &lt; <mark>年假</mark>

    """
    parts: list[str] = []
    end_before = 0
    for start, end in matched_spans(text, query):
        parts += [text[end_before:start], tag("mark", text[start:end])]
        end_before = end
    return join([*parts, text[end_before:]])


def bars(parts: Iterable[tuple[int, float]]) -> Markup:
    """Return a bar of coloured parts, one behind the other.

    Args:
        parts: Number of the colour, and width as a share of the whole in ``[0, 1]``.
    """
    filled = (
        tag("i", class_=f"c{colour % N_COLOURS}", style=f"width:{100 * width:.1f}%")
        for colour, width in parts
        if width > 0
    )
    return tag("div", *filled, class_="bar")


def arrow(moved: int) -> Markup:
    """Return how many ranks something moved up, or down where the number is negative.

    Args:
        moved: Number of ranks.
    """
    if moved == 0:
        return tag("span", "=", class_="dim")
    is_up = moved > 0
    return tag("span", f"{'▲' if is_up else '▼'}{abs(moved)}", class_="good" if is_up else "bad")


def tile(number: str, words: str) -> Markup:
    """Return a number in large type above what it counts.

    Args:
        number: The number.
        words: What it counts.
    """
    return tag("div", tag("b", number), tag("small", words), class_="tile")


def chip(*contents: str, colour: int | None = None, title: str = "") -> Markup:
    """Return a small label.

    Args:
        contents: Text and elements.
        colour: Number of the colour of the dot before it; None for no dot.
        title: Shown when the pointer is on it.
    """
    dot = [] if colour is None else [tag("i", class_=f"dot c{colour % N_COLOURS}")]
    return tag("span", *dot, *contents, class_="chip", **({"title": title} if title else {}))


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
