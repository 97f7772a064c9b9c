"""`Steps`: one operation of an engine as a generator of requests to its client.

Steps are for engines what plans are for retrievers: `execution.plan` knows calls, time limits and
parallel tasks; steps know only the engine's own requests, and the connection answers them.
`Connection.call` makes one `Call` of all requests of an operation, so that an async client stays on
its event loop, and a blocking one in its thread, from the first request to the last.
"""

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

T_co = TypeVar("T_co", covariant=True)

# Requests and answers are of any type; see the engine's `Connection`.
Steps: TypeAlias = Generator[Any, Any, T_co]
