"""Self-contained, escaped HTML without scripts, in the colours of the notebook or system theme."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Final

from llama_retrieval_ext.text.highlighting import matched_spans

# Number of colours for legs and hits, ``c0`` to ``c7`` in the style sheet.
N_COLOURS: Final = 8
_STYLE: Final = (
    files("llama_retrieval_ext.display")
    .joinpath("style.css")
    .read_text(encoding="utf-8")
    .replace("\n", "")
)


class Markup(str):
    """String of HTML, which is not escaped again."""

    __slots__ = ()


def tag(name: str, *contents: str, **attributes: str | int) -> Markup:
    """Return an element around its contents; strings that are not `Markup` are escaped.

    Of the attributes, ``class_`` is ``class``, and ``data_document`` is ``data-document``.

    Examples:
        >>> print(tag("p", "a < b ", tag("b", "!"), class_="x"))
        <p class="x">a &lt; b <b>!</b></p>

    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{written}>{join(contents)}</{name}>")


def page(*contents: str) -> Markup:
    """Return a view: contents with their styles, which follow the notebook's theme."""
    return tag("div", tag("style", Markup(_STYLE)), *contents, class_="lre")


def highlighted(text: str, query: str) -> Markup:
    """Return text with the terms of a query marked.

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
    """Return a bar of parts in order, each with its colour and its share of the width in [0, 1]."""
    filled = (
        tag("i", class_=f"c{colour % N_COLOURS}", style=f"width:{100 * width:.1f}%")
        for colour, width in parts
        if width > 0
    )
    return tag("div", *filled, class_="bar")


def arrow(moved: int) -> Markup:
    """Return a rank change as an arrow with its number: up if positive, down if negative."""
    if moved == 0:
        return tag("span", "=", class_="dim")
    is_up = moved > 0
    return tag("span", f"{'▲' if is_up else '▼'}{abs(moved)}", class_="good" if is_up else "bad")


def tile(number: str, words: str) -> Markup:
    """Return a number in large type above its label."""
    return tag("div", tag("b", number), tag("small", words), class_="tile")


def chip(*contents: str, colour: int | None = None, title: str = "") -> Markup:
    """Return a small label."""
    dot = [] if colour is None else [tag("i", class_=f"dot c{colour % N_COLOURS}")]
    return tag("span", *dot, *contents, class_="chip", **({"title": title} if title else {}))


def join(contents: Iterable[str]) -> Markup:
    """Return text and elements in order, as one piece of HTML."""
    return Markup("".join(c if isinstance(c, Markup) else escape(c) for c in contents))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return a table."""
    head = tag("tr", *(tag("th", title) for title in header))
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    return tag("table", tag("thead", head), tag("tbody", *body))


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """Return facts about a value as an HTML table of two columns."""
    rows = [(name, str(fact)) for name, fact in facts.items()]
    return page(tag("div", table((title, ""), rows), class_="card"))
