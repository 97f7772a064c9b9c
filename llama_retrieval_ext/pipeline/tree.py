"""Structure of a retriever: its expression, its children, and views of them."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.arguments import (
    RecordsArguments,
    arguments_of,
    call_expression,
    takes_argument,
)
from llama_retrieval_ext.filter_syntax import describe_filters
from llama_retrieval_ext.lazy import shown
from llama_retrieval_ext.scope import Scope

_VIEW: Final = "pipeline.retriever"


@dataclass(frozen=True, slots=True)
class Sketch:
    """Drawing of a retriever, from the query to the result."""

    before: tuple[str, ...] = ()
    legs: "tuple[tuple[str, Sketch], ...]" = ()
    after: tuple[str, ...] = ()
    frame: str = ""


class Shaped(RecordsArguments):
    """Retriever that prints as an expression and can be drawn with its children."""

    top_k: int | None
    filters: MetadataFilters | None
    scope: Scope | None

    @property
    @abstractmethod
    def children(self) -> Sequence[BaseRetriever]:
        """The inner retrievers, in order."""

    @property
    def leg_names(self) -> Sequence[str | None]:
        """Given name of each child; None for the child's own name."""
        return ()

    @property
    def label(self) -> str:
        """Label of the retriever, without its children, scope and filters."""
        if type(self).__repr__ is not Shaped.__repr__:
            return repr(self)
        inside = [name for name, value in arguments_of(self).items() if holds_retrievers(value)]
        return call_expression(self, without=["scope", "filters", *inside])

    @property
    def binding(self) -> list[str]:
        """The scope and filters, as arguments."""
        return [
            *([] if self.scope is None else [f"scope={self.scope!r}"]),
            *([] if self.filters is None else [f"filters=[{describe_filters(self.filters)}]"]),
        ]

    def _current_arguments(self) -> Mapping[str, object]:
        values = {"top_k": self.top_k, "filters": self.filters, "scope": self.scope}
        kind = type(self)
        current = {name: value for name, value in values.items() if takes_argument(kind, name)}
        return {**current, "similarity_top_k": None} if "top_k" in current else current

    def _expression(self) -> str:
        """Return the expression; without the scope if the constructor has no such parameter."""
        return call_expression(self)

    def __repr__(self) -> str:
        text = self._expression()
        if self.scope is None or takes_argument(type(self), "scope"):
            return text
        text = f"({text})" if " >> " in text else text
        return f"{text}.for_scope({self.scope!r})"

    def outline(self) -> str:
        """Return the composite as a tree, one line per retriever."""
        text: str = shown(self, _VIEW, "outline")
        return text

    def mermaid(self) -> str:
        """Return the composite as a Mermaid flow chart, from query to result."""
        chart: str = shown(self, _VIEW, "mermaid")
        return chart

    def sketch(self) -> Sketch:
        """Return the drawing of the retriever."""
        names = self.leg_names or [None] * len(self.children)
        legs = [
            (name or "", sketch_of(child)) for name, child in zip(names, self.children, strict=True)
        ]
        return Sketch((), tuple(legs), (label_of(self),))

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Return the notebook display: the outline as text, HTML, and a Mermaid chart."""
        return {
            "text/plain": self.outline(),
            "text/html": shown(self, _VIEW, "html"),
            "text/vnd.mermaid": self.mermaid(),
        }

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]


def children_of(retriever: object) -> Sequence[BaseRetriever]:
    """Return the children of a retriever; none for another package's retriever."""
    return retriever.children if isinstance(retriever, Shaped) else ()


def name_of(retriever: BaseRetriever) -> str:
    """Return the name of a retriever; for another package's retriever its class."""
    name = getattr(retriever, "name", None)
    return name if isinstance(name, str) and name else type(retriever).__name__


def label_of(retriever: object) -> str:
    """Return a one-line label of a retriever."""
    if not isinstance(retriever, Shaped):
        return type(retriever).__name__
    bound = ", ".join(retriever.binding)
    return f"{retriever.label} [{bound}]" if bound else retriever.label


def sketch_of(retriever: object) -> Sketch:
    """Return the drawing of a retriever; for another package's retriever its class."""
    if isinstance(retriever, Shaped):
        return retriever.sketch()
    return Sketch(after=(label_of(retriever),))


def leg_names_of(retriever: object) -> Sequence[str | None]:
    """Return the given names of a retriever's children; none for another package's retriever."""
    return retriever.leg_names if isinstance(retriever, Shaped) else ()


def holds_retrievers(value: object) -> bool:
    """Return whether an argument is or contains a retriever."""
    if isinstance(value, Mapping):
        return any(map(holds_retrievers, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_retrievers, value))
    is_one = isinstance(value, BaseRetriever)
    return is_one or isinstance(getattr(value, "retriever", None), BaseRetriever)


def embed_models_of(retriever: object) -> set[int]:
    """Return the ids of the embedding models of a retriever and its descendants."""
    # LlamaIndex's vector retrievers store the model in a private attribute.
    model = getattr(retriever, "embed_model", None) or getattr(retriever, "_embed_model", None)
    below = [embed_models_of(child) for child in children_of(retriever)]
    return set().union(*below, set() if model is None else {id(model)})
