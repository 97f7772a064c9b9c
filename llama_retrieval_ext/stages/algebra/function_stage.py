"""A plain function as a refining stage: ``retriever >> (lambda hits: hits[:3])``."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeGuard

from llama_index.core.schema import BaseComponent, NodeWithScore

from llama_retrieval_ext.errors import CompositionError
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit
from llama_retrieval_ext.stages.algebra.refine import Refine

_HITS_ALONE: Final = 1
_QUERY_AND_HITS: Final = 2
_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def is_function(part: object) -> TypeGuard[Callable[..., object]]:
    """Whether it is a function, and no class and no component of LlamaIndex that can be called."""
    return callable(part) and not isinstance(part, type | BaseComponent)


@dataclass(frozen=True, slots=True, repr=False)
class FunctionStage(Refine):
    """Refines by a function of the query and the hits, or of the hits alone.

    Args:
        function: Returns the hits that stay, best first; see `Refine`. An async caller runs it in a
            thread.

    Raises:
        CompositionError: The function takes other arguments, or is async.
    """

    function: Callable[..., Sequence[NodeWithScore]]
    _arguments: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if inspect.iscoroutinefunction(self.function):
            raise CompositionError(
                f"{self!r} is an async function; write it as a plain one, or as a Refine with "
                "refine_plan, which yields its calls"
            )
        object.__setattr__(self, "_arguments", _count_arguments(self.function))

    def refine(self, query: Query, hits: Sequence[Hit]) -> Sequence[NodeWithScore]:
        """Return what the function makes of the hits."""
        if self._arguments == _HITS_ALONE:
            return self.function(hits)
        return self.function(query, hits)

    def __repr__(self) -> str:
        return name_of_function(self.function)


def name_of_function(function: Callable[..., object]) -> str:
    """The name of a function, of a partial one that of the function inside."""
    if isinstance(function, partial):
        return name_of_function(function.func)
    name: object = getattr(function, "__name__", None)
    return name if isinstance(name, str) else repr(function)


def _count_arguments(function: Callable[..., Any]) -> int:
    """How many arguments to call the function with, 1 or 2."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return _HITS_ALONE
    required = [each for each in parameters if each.default is inspect.Parameter.empty]
    positional = [each for each in required if each.kind in _POSITIONAL]
    named = [each.name for each in required if each.kind is inspect.Parameter.KEYWORD_ONLY]
    has_rest = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    if has_rest and not positional:
        return _QUERY_AND_HITS
    if named or len(positional) not in {_HITS_ALONE, _QUERY_AND_HITS}:
        raise CompositionError(
            f"the function {name_of_function(function)}{inspect.signature(function)} cannot be a "
            "stage; a function behind a retriever takes (query, hits) or (hits)"
        )
    return len(positional)
