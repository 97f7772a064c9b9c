"""The shape of a composite, and the views of it: every one is derived from `children_of`."""

from collections.abc import Mapping, Sequence

from llama_index.core.base.base_retriever import BaseRetriever


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

    @property
    def leg_names(self) -> Sequence[str | None]:
        """The names that its children were given, one a child; None where it is the child's own."""
        return ()

    @property
    def binding(self) -> Sequence[str]:
        """What it is bound to, as arguments: scope and filters."""
        return ()

    def outline(self) -> str:
        """The composite as a tree, a line each."""
        from llama_retrieval_ext.display.pipeline import outline  # noqa: PLC0415 - a view

        return outline(self)

    def mermaid(self) -> str:
        """The composite as a Mermaid flow chart, from the query's end to the result's."""
        from llama_retrieval_ext.display.pipeline import mermaid  # noqa: PLC0415 - a view

        return mermaid(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """What a notebook shows: the chart where it can draw one, else the tree."""
        return {"text/plain": self.outline(), "text/vnd.mermaid": self.mermaid()}


def children_of(retriever: object) -> Sequence[BaseRetriever]:
    """The retrievers that one asks; none for a foreign one, which does not say."""
    return retriever.children if isinstance(retriever, Shaped) else ()


def name_of(retriever: BaseRetriever) -> str:
    """What a retriever is called: its own name, or its class for a foreign one."""
    name = getattr(retriever, "name", None)
    return name if isinstance(name, str) and name else type(retriever).__name__


def label_of(retriever: object) -> str:
    """What a retriever is, in a line."""
    if not isinstance(retriever, Shaped):
        return type(retriever).__name__
    bound = ", ".join(retriever.binding)
    return f"{retriever.label} [{bound}]" if bound else retriever.label


def leg_names_of(retriever: object) -> Sequence[str | None]:
    """The names that the children of a retriever were given; none for a foreign one."""
    return retriever.leg_names if isinstance(retriever, Shaped) else ()


def holds_retrievers(value: object) -> bool:
    """Return whether an argument is a retriever, or has one inside."""
    if isinstance(value, Mapping):
        return any(map(holds_retrievers, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_retrievers, value))
    is_one = isinstance(value, BaseRetriever)
    return is_one or isinstance(getattr(value, "retriever", None), BaseRetriever)
