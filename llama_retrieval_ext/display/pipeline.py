"""Views of retrievers: a tree as text, a Mermaid flow chart, and a drawing in HTML."""

from collections.abc import Iterator

from llama_retrieval_ext.display.html import N_COLOURS, Markup, chip, page, tag
from llama_retrieval_ext.pipeline.tree import Sketch, children_of, label_of, leg_names_of, sketch_of


def retriever_outline(retriever: object) -> str:
    """Return the retriever and its inner retrievers as a tree, one per line."""
    return "\n".join([label_of(retriever), *_branch_lines(retriever)])


def retriever_mermaid(retriever: object) -> str:
    """Return a Mermaid flow chart, from the query to the result."""
    lines = ["flowchart BT"]
    _add_mermaid(retriever, label_of(retriever), lines)
    return "\n".join(lines)


def retriever_html(retriever: object) -> str:
    """Return a retriever as HTML: a drawing from the query to the result, and the tree as text."""
    tree = tag("details", tag("summary", "as text"), tag("pre", retriever_outline(retriever)))
    ends = [tag("span", word, class_="end") for word in ("query", "result")]
    return page(tag("div", ends[0], _drawing(sketch_of(retriever)), ends[1], class_="flow"), tree)


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
    node_id = f"n{len(lines)}"
    text = label.replace('"', "#quot;")
    lines.append(f'    {node_id}["{text}"]')
    for child, child_label in _labelled_children(retriever):
        below = _add_mermaid(child, child_label, lines)
        lines.append(f"    {below} --> {node_id}")
    return node_id


def _drawing(sketch: Sketch) -> Markup:
    """Return boxes below each other in the order of a search; legs stand beside each other."""
    legs = [
        tag(
            "div",
            *([chip(name, colour=number)] if name else []),
            _drawing(inner),
            class_=f"leg c{number % N_COLOURS}",
        )
        for number, (name, inner) in enumerate(sketch.legs)
    ]
    return tag(
        "div",
        *([tag("small", sketch.frame)] if sketch.frame else []),
        *map(_box, sketch.before),
        *([tag("div", *legs, class_="legs")] if len(legs) > 1 else legs),
        *map(_box, sketch.after),
        class_="flow frame" if sketch.frame else "flow",
    )


def _box(label: str) -> Markup:
    """Return a box with a name and, below it, the arguments."""
    name, _, arguments = label.partition("(")
    arguments = arguments.removesuffix(")")
    shown = [tag("b", name), *([tag("small", arguments)] if arguments else [])]
    return tag("div", *shown, class_="box", title=label)
