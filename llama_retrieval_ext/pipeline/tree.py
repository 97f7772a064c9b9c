"""The shape of a composite, and the views of it: every one is derived from `children_of`."""

from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from pydantic import BaseModel


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


def bound_expression(text: str, shaped: Shaped) -> str:
    """How a composite is written, with what it is bound to among its arguments.

    Args:
        text: How it is written without.
        shaped: What it is bound to, and its class.
    """
    if not shaped.binding:
        return text
    bound, kind = ", ".join(shaped.binding), type(shaped).__name__
    is_call = text.startswith(f"{kind}(") and text.endswith(")")
    return f"{text[:-1]}, {bound})" if is_call else f"{kind}({text}, {bound})"


def expression(part: object) -> str:
    """How a part of a pipeline is written: its class stands for a foreign one."""
    mute = isinstance(part, BaseRetriever) and type(part).__repr__ is object.__repr__
    if mute or isinstance(part, BaseNodePostprocessor):
        return f"{type(part).__name__}()"
    return repr(part)


def constructor_repr(stage: object) -> str:
    """The expression that makes a stage, without the arguments that have their defaults.

    A live handle, such as a model, is told by its class: ``MMR(embed_model=FakeEmbedding(...))``.

    Args:
        stage: A dataclass instance.
    """
    given = [
        (field.name, getattr(stage, field.name), _default(field))
        for field in fields(stage)  # type: ignore[arg-type]  # a dataclass instance
        if field.init
    ]
    parts = [f"{name}={value_repr(value)}" for name, value, default in given if value != default]
    return f"{type(stage).__name__}({', '.join(parts)})"


def value_repr(value: object) -> str:
    """The expression that makes a value, or the class of one that has none."""
    if isinstance(value, BaseModel):  # LlamaIndex's models and stores print all they are set to
        return f"{type(value).__name__}(...)"
    expression = repr(value)
    if " at 0x" in expression:
        return str(getattr(value, "__name__", f"{type(value).__name__}(...)"))
    return expression


def _default(field: Field[Any]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default
