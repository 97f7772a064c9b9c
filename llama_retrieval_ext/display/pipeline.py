"""Views of retrievers: a tree as text, a Mermaid flow chart, and a drawing."""

from collections.abc import Iterator

from llama_retrieval_ext.display.drawing import drawn
from llama_retrieval_ext.display.html import page, tag
from llama_retrieval_ext.pipeline.tree import children_of, label_of, leg_names_of, sketch_of


def outline(retriever: object) -> str:
    """Return the retriever and its inner retrievers as a tree, one per line.

    Args:
        retriever: Retriever of this package; others are shown by class name.
    """
    return "\n".join([label_of(retriever), *_branch_lines(retriever)])


def mermaid(retriever: object) -> str:
    """Return a Mermaid flow chart, from the query to the result.

    Args:
        retriever: Retriever of this package; others are shown by class name.
    """
    lines = ["flowchart BT"]
    _add_mermaid(retriever, label_of(retriever), lines)
    return "\n".join(lines)


def retriever_html(retriever: object) -> str:
    """Return a retriever as HTML: a drawing from the query to the result, and the tree as text.

    Args:
        retriever: Retriever of this package; others are shown by class name.
    """
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
