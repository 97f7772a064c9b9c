"""`Address`: what a Qdrant URL says, without the secrets it refers to."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.urls import bracketed

MEMORY: Final = ":memory:"
_COLLECTION: Final = "nodes"
_PORT: Final = 6333
_TIMEOUT_S: Final = 30
_SERVER_OPTIONS: Final = ("api_key_env", "timeout_s", "prefer_grpc")
_LOCAL_OPTIONS: Final = ("collection",)
_ADVICE: Final = (
    "write qdrant://host:6333/collection, qdrants://host/collection?api_key_env=NAME for TLS, "
    "qdrant:./directory or qdrant::memory:"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a collection is.

    Attributes:
        collection: Its name.
        path: Directory of a local one, or ``:memory:``; None for a server.
        url: Of a server, without the collection.
        api_key_env: Name of the environment variable that holds the API key.
        timeout_s: Seconds that one request to a server may take.
        prefer_grpc: Whether to talk to a server by gRPC where the client can.
    """

    collection: str
    path: str | None = None
    url: str | None = None
    api_key_env: str | None = None
    timeout_s: int = _TIMEOUT_S
    prefer_grpc: bool = False

    def __str__(self) -> str:
        place = f"qdrant:{self.path}" if self.url is None else self.url
        return f"the collection {self.collection!r} at {place}"

    def api_key(self) -> str | None:
        """The key, read now, so that it is in no object of ours.

        Raises:
            ConfigurationError: There is no such environment variable.
        """
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env)
        if not key:
            raise ConfigurationError(
                f"the environment variable {self.api_key_env!r}, which the URL names, is not set; "
                "set it to the API key of the server"
            )
        return key


def parse_address(url: str) -> Address:
    """The address that a URL stands for.

    Args:
        url: ``qdrant://host:port/collection`` or, with TLS, ``qdrants://``, both with
            ``?api_key_env=NAME``, ``timeout_s=SECONDS`` or ``prefer_grpc=true``; what stands before
            the collection's name is the server's prefix. Or ``qdrant:DIRECTORY`` or
            ``qdrant::memory:``, both with ``?collection=NAME``.

    Raises:
        ConfigurationError: It is none of these; it is not repeated where it may hold a password.

    Examples:
        >>> print(parse_address("qdrants://db.example.com/handbook?api_key_env=QDRANT_KEY"))
        the collection 'handbook' at https://db.example.com:6333

    """
    scheme, _, place = url.partition(":")
    if scheme not in {"qdrant", "qdrants"}:
        raise ConfigurationError(f"{scheme}: is no URL of Qdrant; {_ADVICE}")
    if place.startswith("//"):
        return _server("https" if scheme == "qdrants" else "http", place)
    if scheme == "qdrants" or not place:
        raise ConfigurationError(f"{scheme}: needs a host; {_ADVICE}")
    path, _, query = place.partition("?")
    options = _options(query, _LOCAL_OPTIONS)
    return Address(options.get("collection") or _COLLECTION, path=path)


def _server(scheme: str, place: str) -> Address:
    parts = urlsplit(place)
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise ConfigurationError(
            "a URL is shown in messages and kept in files, so it must not hold credentials; put "
            "the API key into an environment variable and write ?api_key_env=ITS_NAME"
        )
    *prefix, collection = parts.path.strip("/").split("/")
    if not parts.hostname or not collection:
        raise ConfigurationError(f"got a server's URL without host or collection; {_ADVICE}")
    options = _options(parts.query, _SERVER_OPTIONS)
    base = "/".join([f"{scheme}://{bracketed(parts.hostname)}:{_port(place)}", *prefix])
    return Address(
        unquote(collection),
        url=base,
        api_key_env=options.get("api_key_env"),
        timeout_s=_seconds(options.get("timeout_s")),
        prefer_grpc=options.get("prefer_grpc") == "true",
    )


def _port(place: str) -> int:
    try:
        return urlsplit(place).port or _PORT
    except ValueError as error:
        raise ConfigurationError(f"the URL's port is no number up to 65535; {_ADVICE}") from error


def _options(query: str, known: tuple[str, ...]) -> Mapping[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(options).difference(known))
    if unknown:
        raise ConfigurationError(
            f"the URL has the options {', '.join(unknown)}; it may have {', '.join(known)}, "
            "other settings go into store_params"
        )
    return options


def _seconds(given: str | None) -> int:
    if given is None:
        return _TIMEOUT_S
    if not given.isdecimal() or int(given) < 1:
        raise ConfigurationError(f"timeout_s must be a whole number of seconds, got {given!r}")
    return int(given)
