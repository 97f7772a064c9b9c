"""Self-contained, escaped HTML without scripts, in the colours of the notebook or system theme."""

from collections.abc import Iterable, Sequence
from html import escape
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
_RULES: Final = """
.lre{color:var(--l-fg);background:var(--l-bg);font:13px/1.5 system-ui,-apple-system,"Segoe UI",
"Noto Sans","Noto Sans CJK SC",sans-serif;padding:10px 12px;border-radius:8px;max-width:1080px;
box-sizing:border-box;overflow-x:auto}
.lre *{box-sizing:border-box}
.lre h3{font-size:14px;font-weight:600;margin:0 0 8px;color:inherit}
.lre h4{font-size:11px;font-weight:600;letter-spacing:.05em;text-transform:uppercase;
color:var(--l-dim);margin:16px 0 6px}
.lre p{margin:4px 0}
.lre small,.lre .dim{color:var(--l-dim);font-size:12px;font-weight:400}
.lre .num{font-variant-numeric:tabular-nums}
.lre .bad{color:var(--l-bad)}.lre .good{color:var(--l-good)}
.lre .card{border:1px solid var(--l-line);border-radius:8px;padding:9px 12px;margin:8px 0;
background:var(--l-soft)}
.lre .head{display:flex;gap:10px;align-items:baseline}
.lre .head b{flex:1;font-weight:600;overflow-wrap:anywhere;min-width:0}
.lre .rank{color:var(--l-dim);min-width:1.2em;text-align:right}
.lre .bar{display:flex;height:6px;border-radius:3px;overflow:hidden;margin:5px 0 6px;
background:color-mix(in srgb,var(--l-line) 55%,transparent)}
.lre .bar i{display:block}
.lre .chips{display:flex;flex-wrap:wrap;gap:4px 6px;margin:4px 0}
.lre .chip{display:inline-flex;align-items:center;gap:5px;border:1px solid var(--l-line);
border-radius:10px;padding:0 8px;font-size:12px;line-height:18px;background:var(--l-bg);
overflow-wrap:anywhere;max-width:100%}
.lre .dot{width:8px;height:8px;border-radius:50%;flex:none}
.lre .text{margin:6px 0;overflow-wrap:anywhere}
.lre mark{background:var(--l-mark);color:inherit;border-radius:2px;padding:0 1px}
.lre table{border-collapse:collapse;margin:4px 0;font-size:12.5px}
.lre th,.lre td{text-align:left;vertical-align:top;padding:3px 14px 3px 0;
border-bottom:1px solid var(--l-line);background:none;color:inherit;white-space:normal;
max-width:30em;min-width:4.6em;overflow-wrap:anywhere}
.lre th{font-weight:600;color:var(--l-dim)}
.lre tr{background:none}.lre .cell{white-space:nowrap}
.lre details{margin:6px 0}.lre summary{cursor:pointer;color:var(--l-dim)}
.lre .steps{display:grid;grid-template-columns:minmax(10em,22em) minmax(10em,1fr) auto auto;
gap:3px 12px;align-items:center}
.lre .steps .name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.lre .steps .wide{grid-column:1/-1;margin:0 0 3px}
.lre .track{position:relative;height:12px;border-radius:3px;
background:color-mix(in srgb,var(--l-line) 40%,transparent)}
.lre .track i{position:absolute;top:0;bottom:0;min-width:2px;border-radius:3px}
.lre .tiles{display:flex;flex-wrap:wrap;gap:8px}
.lre .tile{border:1px solid var(--l-line);border-radius:8px;padding:6px 14px;
background:var(--l-soft);min-width:5.5em}
.lre .tile b{display:block;font-size:18px;font-weight:600;line-height:1.3}
.lre svg{display:block;margin:4px auto}
.lre svg text{fill:var(--l-fg);font-size:12px;text-anchor:middle}
.lre svg .small{fill:var(--l-dim);font-size:11px}
.lre svg .strong{font-weight:600}
.lre svg rect{fill:var(--l-soft);stroke:var(--l-line)}
.lre svg .end{fill:none}
.lre svg .frame{fill:none;stroke-dasharray:4 4;stroke:var(--l-dim)}
.lre svg path{fill:none;stroke:var(--l-dim);stroke-width:1.3}
.lre svg .arrow{fill:var(--l-dim);stroke:none}
"""
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
