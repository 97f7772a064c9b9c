"""Self-contained, escaped HTML without scripts, in the colours of the notebook or system theme."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Final

from llama_retrieval_ext.text.highlighting import matched_spans

# By name: Jupyter's variable if there is one, and the colours in light and dark.
_COLOURS: Final = {
    "fg": ("--jp-content-font-color1", "#1f2328", "#e6e8eb"),
    "dim": ("--jp-content-font-color2", "#5b6470", "#9aa4af"),
    "bg": ("--jp-layout-color0", "#ffffff", "#16191d"),
    "soft": ("--jp-layout-color1", "#f6f7f9", "#20252b"),
    "line": ("--jp-border-color2", "#d5dae0", "#3a424b"),
    "mark": ("", "#ffe58a", "#6b5610"),
    "good": ("", "#1a7f4b", "#5fd08f"),
    "bad": ("", "#c22f3d", "#ff8a8f"),
    "c0": ("", "#4269d0", "#7f9df0"),
    "c1": ("", "#e07b39", "#f2a66b"),
    "c2": ("", "#2f9e75", "#5fc79d"),
    "c3": ("", "#9a5fc4", "#c596e8"),
    "c4": ("", "#c84e75", "#ef8aa9"),
    "c5": ("", "#7d7461", "#b5ab95"),
    "c6": ("", "#1f93a8", "#5cc3d6"),
    "c7": ("", "#94902a", "#cfc95a"),
}
# Number of colours for legs and hits.
N_COLOURS: Final = 8


def _palette(place: int) -> str:
    return ";".join(
        f"--l-{name}:{f'var({each[0]},{each[place]})' if each[0] else each[place]}"
        for name, each in _COLOURS.items()
    )


_LIGHT, _DARK = _palette(1), _palette(2)
_RULES: Final = (
    files("llama_retrieval_ext.display").joinpath("style.css").read_text(encoding="utf-8")
)
_FILLS: Final = "".join(
    f".lre i.c{n}{{background:var(--l-c{n})}}.lre svg rect.c{n}{{fill:var(--l-c{n});stroke:none}}"
    f".lre svg path.c{n}{{stroke:var(--l-c{n})}}"
    for n in range(N_COLOURS)
)
STYLE: Final = (
    f".lre{{{_LIGHT}}}"
    f"@media(prefers-color-scheme:dark){{.lre{{{_DARK}}}}}"
    f"[data-jp-theme-light=true] .lre,.vscode-light .lre,[data-theme=light] .lre{{{_LIGHT}}}"
    f"[data-jp-theme-light=false] .lre,.vscode-dark .lre,[data-theme=dark] .lre{{{_DARK}}}"
    f"{_RULES}{_FILLS}"
).replace("\n", "")


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

    Of the attributes, ``class_`` is ``class``, and ``stroke_width`` is ``stroke-width``.

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
    """Return a view: contents with their styles, which follow the notebook's theme."""
    return tag("div", tag("style", Markup(STYLE)), *contents, class_="lre")


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
