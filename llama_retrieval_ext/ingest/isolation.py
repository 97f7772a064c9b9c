"""Work on many documents at once that fails for the culprit alone."""

from collections.abc import Callable, Sequence
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def isolated(
    items: Sequence[A],
    work: Callable[[Sequence[A]], Sequence[B]],
    *,
    fatal: tuple[type[Exception], ...] = (),
) -> list[B | Exception]:
    """What becomes of each item, or the error that kept it from it.

    All are tried together; if that fails, each alone.

    Args:
        items: What to work on.
        work: Gives one result an item, in their order, or raises.
        fatal: Errors that are not any item's fault; they are raised.

    Examples:
        >>> isolated(["1", "x"], lambda texts: [int(text) for text in texts])
        [1, ValueError("invalid literal for int() with base 10: 'x'")]

    """
    if not items:
        return []
    try:
        return list(work(items))
    except fatal:
        raise
    except Exception as error:  # noqa: BLE001 - it is handed on as the item's result
        if len(items) == 1:
            return [error]
    return [result for item in items for result in isolated([item], work, fatal=fatal)]
