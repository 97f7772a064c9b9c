"""The shape of a composite, and the views of it: every one is derived from `children_of`."""

from collections.abc import Iterator, Sequence

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor


class Shaped:
    """Something with children, that can be drawn."""

    @property
    def label(self) -> str:
        """What it is, without its children."""
        return repr(self)

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """The retrievers it asks, in their order."""
        return ()

    def outline(self) -> str:
        """The composite as a tree, a line each."""
        return "\n".join([self.label, *_branch_lines(self.children)])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """What a notebook shows: the chart where it can draw one, else the tree."""
        return {"text/plain": self.outline(), "text/vnd.mermaid": self.mermaid()}

    def mermaid(self) -> str:
        """The composite as a Mermaid flow chart, from the query's end to the result's."""
        lines = ["flowchart BT"]
        _add_mermaid(self, lines)
        return "\n".join(lines)


def children_of(retriever: object) -> Sequence[BaseRetriever]:
    """The retrievers that one asks; none for a foreign one, which does not say."""
    return retriever.children if isinstance(retriever, Shaped) else ()


def name_of(retriever: BaseRetriever) -> str:
    """What a retriever is called: its own name, or its class for a foreign one."""
    name = getattr(retriever, "name", None)
    return name if isinstance(name, str) and name else type(retriever).__name__


def label_of(retriever: object) -> str:
    """What a retriever is, in a line."""
    return retriever.label if isinstance(retriever, Shaped) else type(retriever).__name__


def expression(part: object) -> str:
    """How a part of a pipeline is written: its class stands for a foreign one."""
    mute = isinstance(part, BaseRetriever) and type(part).__repr__ is object.__repr__
    if mute or isinstance(part, BaseNodePostprocessor):
        return f"{type(part).__name__}()"
    return repr(part)


def _branch_lines(children: Sequence[object]) -> Iterator[str]:
    for place, child in enumerate(children, start=1):
        last = place == len(children)
        yield ("└─ " if last else "├─ ") + label_of(child)
        for line in _branch_lines(children_of(child)):
            yield ("   " if last else "│  ") + line


def _add_mermaid(node: object, lines: list[str]) -> str:
    own = f"n{len(lines)}"
    text = label_of(node).replace('"', "#quot;")
    lines.append(f'    {own}["{text}"]')
    for child in children_of(node):
        below = _add_mermaid(child, lines)
        lines.append(f"    {below} --> {own}")
    return own
