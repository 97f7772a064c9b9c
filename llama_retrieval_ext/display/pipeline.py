"""Views of retrievers: a tree as text, a Mermaid flow chart, and a drawing."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len

from llama_retrieval_ext.display.html import N_COLOURS, Markup, join, page, tag
from llama_retrieval_ext.pipeline.tree import Sketch, children_of, label_of, leg_names_of, sketch_of


def outline(retriever: object) -> str:
    """Return the retriever and its inner retrievers as a tree, one per line."""
    return "\n".join([label_of(retriever), *_branch_lines(retriever)])


def mermaid(retriever: object) -> str:
    """Return a Mermaid flow chart, from the query to the result."""
    lines = ["flowchart BT"]
    _add_mermaid(retriever, label_of(retriever), lines)
    return "\n".join(lines)


def retriever_html(retriever: object) -> str:
    """Return a retriever as HTML: a drawing from the query to the result, and the tree as text."""
    tree = tag("details", tag("summary", "as text"), tag("pre", outline(retriever)))
    return page(drawn(sketch_of(retriever)), tree)


def _labelled_children(retriever: object) -> list[tuple[object, str]]:
    """Return the children with their labels, prefixed with the names of their legs."""
    children, names = children_of(retriever), leg_names_of(retriever)
    labels = [label_of(child) for child in children]
    if names:
        labels = [
            label if name is None else f"{name}: {label}"
            for label, name in zip(labels, names, strict=True)
        ]
    return list(zip(children, labels, strict=True))


def _branch_lines(retriever: object) -> Iterator[str]:
    children = _labelled_children(retriever)
    for place, (child, label) in enumerate(children, start=1):
        last = place == len(children)
        yield ("└─ " if last else "├─ ") + label
        for line in _branch_lines(child):
            yield ("   " if last else "│  ") + line


def _add_mermaid(retriever: object, label: str, lines: list[str]) -> str:
    own = f"n{len(lines)}"
    text = label.replace('"', "#quot;")
    lines.append(f'    {own}["{text}"]')
    for child, child_label in _labelled_children(retriever):
        below = _add_mermaid(child, child_label, lines)
        lines.append(f"    {below} --> {own}")
    return own


# In pixels: gap between boxes, height of a line, width of a letter, margin of a box.
_GAP: Final = 20.0
_LINE: Final = 16.0
_LETTER: Final = 7.2
_MARGIN: Final = 12.0
_FAN: Final = 26.0
# Maximum width of the text in a box, in columns.
_COLUMNS: Final = 38


class _Block(NamedTuple):
    """Part of the drawing; lines enter and leave it at the middle of its width."""

    width: float
    height: float
    content: Markup


def drawn(sketch: Sketch) -> Markup:
    """Return the drawing as SVG."""
    block = _stack([_box("query", "end"), _drawn(sketch), _box("result", "end")])
    width, height = block.width + 4, block.height + 4
    return tag(
        "svg",
        _at(2, 2, block),
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        role="img",
        aria_label="pipeline",
    )


def _drawn(sketch: Sketch) -> _Block:
    legs = [_leg(name, _drawn(inner), n) for n, (name, inner) in enumerate(sketch.legs)]
    blocks = [
        *map(_box, sketch.before),
        *([_side_by_side(legs)] if len(legs) > 1 else legs),
        *map(_box, sketch.after),
    ]
    block = _stack(blocks)
    return _framed(block, sketch.frame) if sketch.frame else block


def _box(label: str, kind: str = "") -> _Block:
    """Return a box with a name and, below it, the arguments."""
    name, _, rest = label.partition("(")
    arguments = rest.removesuffix(")") if rest.endswith(")") else rest
    lines = [_cut(name), *([_cut(arguments)] if arguments else [])]
    width = max(64.0, max(map(cell_len, lines)) * _LETTER + 2 * _MARGIN)
    height = len(lines) * _LINE + 11
    texts = [
        tag("text", line, x=width / 2, y=18 + _LINE * n, class_="small" if n else "strong")
        for n, line in enumerate(lines)
    ]
    rect = tag("rect", width=width, height=height, rx=13.0 if kind else 6.0, class_=kind or "box")
    return _Block(width, height, tag("g", tag("title", label), rect, *texts))


def _leg(name: str, block: _Block, number: int) -> _Block:
    """Return a leg with its name above it."""
    if not name:
        return block
    text = _cut(name)
    width = cell_len(text) * _LETTER + 26
    label = [
        tag("rect", x=0, y=5, width=8.0, height=8.0, rx=4.0, class_=f"c{number % N_COLOURS}"),
        tag("text", text, x=(width + 10) / 2, y=13),
    ]
    return _stack([_Block(width, 17.0, tag("g", *label)), block], gap=3.0, arrows=False)


def _side_by_side(legs: Sequence[_Block]) -> _Block:
    """Return legs beside each other, with lines from one point above to one point below."""
    width = sum(leg.width for leg in legs) + _GAP * (len(legs) - 1)
    height = max(leg.height for leg in legs)
    whole, middle, x = height + 2 * _FAN, width / 2, 0.0
    parts: list[Markup] = []
    for number, leg in enumerate(legs):
        centre, bottom = x + leg.width / 2, _FAN + leg.height
        colour = f"c{number % N_COLOURS}"
        parts += [
            _curve((middle, 0.0), (centre, _FAN - 2), colour),
            _curve((centre, bottom), (middle, whole), colour, straight=height - leg.height),
            _at(x, _FAN, leg),
        ]
        x += leg.width + _GAP
    return _Block(width, whole, join(parts))


def _curve(
    start: tuple[float, float], end: tuple[float, float], colour: str, straight: float = 0.0
) -> Markup:
    (x, y), (to_x, to_y) = start, end
    begin = y + straight
    bend = (begin + to_y) / 2
    path = (
        f"M{x:.1f} {y:.1f}V{begin:.1f}"
        f"C{x:.1f} {bend:.1f} {to_x:.1f} {bend:.1f} {to_x:.1f} {to_y:.1f}"
    )
    return tag("path", d=path, class_=colour)


def _stack(blocks: Sequence[_Block], *, gap: float = _GAP, arrows: bool = True) -> _Block:
    """Return blocks below each other, with arrows between them."""
    width = max(block.width for block in blocks)
    parts: list[Markup] = []
    y = 0.0
    for number, block in enumerate(blocks):
        if number and arrows:
            parts.append(_arrow(width / 2, y - gap, y))
        parts.append(_at((width - block.width) / 2, y, block))
        y += block.height + gap
    return _Block(width, y - gap, join(parts))


def _arrow(x: float, start: float, end: float) -> Markup:
    head = f"M{x - 4:.1f} {end - 7:.1f}h8l-4 6z"
    line = tag("path", d=f"M{x:.1f} {start:.1f}V{end - 6:.1f}")
    return join([line, tag("path", d=head, class_="arrow")])


def _framed(block: _Block, title: str) -> _Block:
    """Return a block in a dashed frame, with a title in the corner."""
    text = _cut(title)
    width = max(block.width + 3 * _MARGIN, cell_len(text) * _LETTER + 2 * _MARGIN)
    height = block.height + _LINE + 2 * _MARGIN
    rect = tag("rect", width=width, height=height, rx=10.0, class_="frame")
    name = tag("text", text, x=_MARGIN, y=17, class_="small", style="text-anchor:start")
    inside = _at((width - block.width) / 2, _LINE + _MARGIN / 2, block)
    return _Block(width, height, join([rect, name, inside]))


def _at(x: float, y: float, block: _Block) -> Markup:
    return tag("g", block.content, transform=f"translate({x:.1f} {y:.1f})")


def _cut(text: str) -> str:
    """Return text cut to the width of a box."""
    line = " ".join(text.split())
    if cell_len(line) <= _COLUMNS:
        return line
    while cell_len(line) >= _COLUMNS:
        line = line[: len(line) - max(1, (cell_len(line) - _COLUMNS) // 2)]
    return f"{line}…"
