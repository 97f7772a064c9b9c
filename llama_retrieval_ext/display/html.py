"""Self-contained, escaped HTML without scripts, with styles for light and dark themes."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from llama_retrieval_ext.display.style import N_COLOURS, STYLE
from llama_retrieval_ext.text.highlighting import matched_spans

# Lines and shades use the text colour of the page, half transparent.
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
    """String of HTML, which is not escaped again."""

    __slots__ = ()


def tag(name: str, *contents: str, **attributes: str | float) -> Markup:
    """Return an element around its contents; strings that are not `Markup` are escaped.

    Args:
        name: Name of the element.
        contents: Text and elements, in order.
        attributes: Also escaped; ``class_`` is ``class``, and ``stroke_width`` ``stroke-width``.

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
    """Return a view: contents with their styles, which follow the notebook's theme.

    Args:
        contents: Text and elements, in order.
    """
    return tag("div", tag("style", Markup(STYLE)), *contents, class_="lre")


def highlighted(text: str, query: str) -> Markup:
    """Return text with the terms of a query marked.

    Args:
        text: Text to show.
        query: Query of the search; may be Chinese.

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
    """Return a bar of coloured parts, in order.

    Args:
        parts: Colour number, and width as a share of the whole in ``[0, 1]``.
    """
    filled = (
        tag("i", class_=f"c{colour % N_COLOURS}", style=f"width:{100 * width:.1f}%")
        for colour, width in parts
        if width > 0
    )
    return tag("div", *filled, class_="bar")


def arrow(moved: int) -> Markup:
    """Return a rank change as an arrow with its number: up if positive, down if negative.

    Args:
        moved: Number of ranks.
    """
    if moved == 0:
        return tag("span", "=", class_="dim")
    is_up = moved > 0
    return tag("span", f"{'▲' if is_up else '▼'}{abs(moved)}", class_="good" if is_up else "bad")


def tile(number: str, words: str) -> Markup:
    """Return a number in large type above its label.

    Args:
        number: The number.
        words: Label of the number.
    """
    return tag("div", tag("b", number), tag("small", words), class_="tile")


def chip(*contents: str, colour: int | None = None, title: str = "") -> Markup:
    """Return a small label.

    Args:
        contents: Text and elements.
        colour: Colour number of the dot before the label; None for no dot.
        title: Tooltip of the label.
    """
    dot = [] if colour is None else [tag("i", class_=f"dot c{colour % N_COLOURS}")]
    return tag("span", *dot, *contents, class_="chip", **({"title": title} if title else {}))


def join(contents: Iterable[str]) -> Markup:
    """Return text and elements in order, as one piece of HTML.

    Args:
        contents: Strings that are not `Markup` are escaped.
    """
    return Markup("".join(c if isinstance(c, Markup) else escape(c) for c in contents))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return a table.

    Args:
        header: Column titles.
        rows: Rows with one cell per title.
    """
    head = tag("tr", *(tag("th", title) for title in header))
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    return tag("table", tag("thead", head), tag("tbody", *body))
