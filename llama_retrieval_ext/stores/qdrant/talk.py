"""What is asked of a client, without saying whether by threads or on an event loop."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Request:
    """Call a method of the client; the talk gets what it returns, or its error as one of ours.

    Attributes:
        method: Its name, the same for the sync and the async client.
        arguments: What it is called with, by name.
    """

    method: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Work:
    """Compute something that takes a while; the talk gets the result."""

    function: Callable[[], Any]  # whatever it computes


# What a request answers depends on the method, which a generator's send type cannot say.
Talk: TypeAlias = Generator[Request | Work, Any, T_co]
