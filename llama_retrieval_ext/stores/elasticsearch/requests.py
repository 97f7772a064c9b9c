"""Requests as values, and steps: what is asked of the engine, told apart from how it is sent."""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

from pydantic_core import to_json

T = TypeVar("T")
# Any: whatever JSON the engine takes and answers.
Json: TypeAlias = dict[str, Any]

_JSON = "application/vnd.elasticsearch+json; compatible-with=8"
_LINES = "application/vnd.elasticsearch+x-ndjson; compatible-with=8"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request.

    Attributes:
        method: The HTTP method.
        path: Path on the server, quoted.
        params: Query parameters.
        body: What is sent.
        headers: What is said about it.
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: {"accept": _JSON})


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for so many seconds; the answer is empty."""

    seconds: float


# A generator of requests that gets the JSON of each answer; written once for threads and for loops.
Steps: TypeAlias = Generator[Request | Pause, Json, T]


def request(
    method: str, *path: str, params: Mapping[str, str] | None = None, body: Json | None = None
) -> Request:
    """A request with a JSON body, or none.

    Args:
        method: The HTTP method.
        *path: Segments of the path; they are quoted.
        params: Query parameters.
        body: What is sent.

    Examples:
        >>> request("GET", "my index", "_count").path
        '/my%20index/_count'

    """
    place = "".join(f"/{quote(segment, safe='')}" for segment in path)
    if body is None:
        return Request(method, place, params or {})
    headers = {"accept": _JSON, "content-type": _JSON}
    return Request(method, place, params or {}, to_json(body), headers)


def lines_request(
    *path: str, lines: Iterable[bytes], params: Mapping[str, str] | None = None
) -> Request:
    """A POST of one JSON document a line, as ``_bulk`` and ``_msearch`` take them."""
    place = "".join(f"/{quote(segment, safe='')}" for segment in path)
    headers = {"accept": _JSON, "content-type": _LINES}
    return Request("POST", place, params or {}, b"\n".join([*lines, b""]), headers)
