"""Checks of what the functions of a stage return, with advice for those that return no value."""

from collections.abc import Coroutine, Generator, Sequence
from typing import Final, TypeVar

from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.effects import Plan

T = TypeVar("T")

_SHOWN: Final = 80


def ranking_of(value: object, function: str) -> list[NodeWithScore]:
    """Return the value as a list, if it is a sequence of hits.

    Args:
        value: What the function returned.
        function: Its name, as ``Mine.refine``.

    Raises:
        ConfigurationError: It is something else.
    """
    return items_of(value, NodeWithScore, function, expected="hits (NodeWithScore)")


def items_of(value: object, kind: type[T], function: str, *, expected: str) -> list[T]:
    """Return the value as a list, if it is a sequence whose items are all of one class.

    Args:
        value: What the function returned.
        kind: The class of the items.
        function: Its name, as ``Mine.select``.
        expected: What the items are called.

    Raises:
        ConfigurationError: It is something else.
    """
    refuse_running(value, function)
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ConfigurationError(
            f"{function} must return a list of {expected}, got {_shown(value)}"
            + ("; add a return statement" if value is None else "")
        )
    items: list[T] = []
    for place, item in enumerate(value):
        if not isinstance(item, kind):
            raise ConfigurationError(
                f"{function} must return a list of {expected}, got {_shown(item)} as item {place}"
            )
        items.append(item)
    return items


def query_of(value: object, function: str) -> str | QueryBundle:
    """Return the same value, if it is a query in one of its forms.

    Args:
        value: What the function returned.
        function: Its name, as ``Mine.rewrite``.

    Raises:
        ConfigurationError: It is something else.
    """
    refuse_running(value, function)
    if isinstance(value, str | QueryBundle):
        return value
    raise ConfigurationError(
        f"{function} must return a string, a QueryBundle or a Query, got {_shown(value)}; for "
        "a Query with another text write dataclasses.replace(query, query_str=...)"
    )


def plan_of(plan: Plan[T], function: str) -> Plan[T]:
    """Return the same plan, if it is one.

    Args:
        plan: What the function returned.
        function: Its name, as ``Mine.refine_plan``.

    Raises:
        ConfigurationError: It is no generator.
    """
    if hasattr(plan, "send"):
        return plan
    name = function.rpartition(".")[2].removesuffix("_plan")
    raise ConfigurationError(
        f"{function} must be a generator, which yields its calls and returns the result; a "
        f"function that only returns the result is named {name}"
    )


def refuse_running(value: object, function: str) -> None:
    """Raise if the value is a coroutine or a generator, which is not a result but has to be run.

    Args:
        value: What the function returned.
        function: Its name, as ``Mine.refine``.

    Raises:
        ConfigurationError: It is one of these.
    """
    name = function.rpartition(".")[2]
    if isinstance(value, Coroutine):
        value.close()
        raise ConfigurationError(
            f"{function} is an async function; write it as `def {name}`, or define {name}_plan, "
            "a generator that yields its calls, for a stage that waits for something"
        )
    if isinstance(value, Generator):
        value.close()
        raise ConfigurationError(
            f"{function} is a generator and must return a value; to return a plan, name it "
            f"{name}_plan"
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
