"""`Steps`: one operation of an engine as a generator of requests to its client.

Steps are for engines what plans are for retrievers: `execution.plan` knows calls, time limits and
parallel tasks; steps know only the engine's own requests, and the connection answers them.
`Connection.call` makes one `Call` of all requests of an operation, so that an async client stays on
its event loop, and a blocking one in its thread, from the first request to the last.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from llama_retrieval_ext.execution.drivers import drive
from llama_retrieval_ext.execution.plan import Call

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")

# Requests and answers are of any type; see the engine's `Connection`.
Steps: TypeAlias = Generator[Any, Any, T_co]


def blocking_call(steps: Callable[[], Steps[U]]) -> Call[U]:
    """Return the call that runs steps whose requests are blocking functions.

    Examples:
        >>> def doubled():
        ...     number = yield lambda: 21
        ...     return 2 * number
        >>> blocking_call(doubled).function()
        42

    """
    return Call(lambda: drive(steps(), _call))


def _call(function: Callable[[], object]) -> object:
    return function()
