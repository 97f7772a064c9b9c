"""`Location`: what a URL says of where a knowledge base is, whatever the engine."""

import os
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

from llama_retrieval_ext.errors import ConfigurationError

_MEMORY = ":memory:"
_ON_THIS_MACHINE = {"embedded", "qdrant", "milvus"}
_PORTS = {"qdrant": 6333, "milvus": 19530, "elasticsearch": 9200}
_COLLECTION = "nodes"  # where the URL names none
_TLS = {"qdrants": "qdrant", "milvuss": "milvus", "elasticsearchs": "elasticsearch"}


@dataclass(frozen=True, slots=True)
class Location:
    """Where a knowledge base is. URLs are checked by their engines: of a wrong one this is a guess.

    Attributes:
        engine: Its engine, the same with and without TLS.
        collection: Its collection; empty for the engine's default.
        path: Its file or directory; None on a server, or in memory.
        is_on_server: Whether other processes can have it open, too.
        identity: The same for all URLs of this place, as far as URLs tell; None where it is nobody
            else's.
    """

    engine: str
    collection: str
    path: Path | None
    is_on_server: bool
    identity: Hashable | None

    @classmethod
    def of(cls, url: str) -> Self:
        """The location of a URL.

        Examples:
            >>> Location.of("qdrants://db.example.com/handbook").collection
            'handbook'
            >>> Location.of("milvus:./kb.db?collection=handbook").path.name
            'kb.db'

        """
        scheme, _, place = url.partition(":")
        engine = _TLS.get(scheme, scheme)
        if place.startswith("//"):
            host, route, database = _on_server(place, _PORTS.get(engine))
            collection = route.rpartition("/")[2]
            place_there = (engine, host, route or _COLLECTION, database)
            return cls(engine, collection, None, True, place_there)  # noqa: FBT003
        if not place:
            return cls("", "", None, False, None)  # noqa: FBT003
        name, _, query = place.partition("?") if engine != "embedded" else (place, "", "")
        collection = parse_qs(query).get("collection", [""])[0]
        if name == _MEMORY or engine not in _ON_THIS_MACHINE:
            return cls(engine, collection, None, False, None)  # noqa: FBT003
        path = Path(unquote(name) if engine == "milvus" else name).expanduser().resolve()
        place_here = (engine, path, collection or _COLLECTION)
        return cls(engine, collection, path, False, place_here)  # noqa: FBT003

    @property
    def is_in_memory(self) -> bool:
        """Whether it is gone when it is closed."""
        return self.identity is None and self.engine in _ON_THIS_MACHINE


def _on_server(place: str, default_port: int | None) -> tuple[str, str, str]:
    try:
        parts = urlsplit(place)
        host = f"{parts.hostname}:{parts.port or default_port}"
    except ValueError:
        return "", "", ""
    (database,) = parse_qs(parts.query).get("db_name", [""])[-1:]
    return host, unquote(parts.path.strip("/")), database


def bracketed(hostname: str) -> str:
    """A host as a URL has it: an IPv6 address in brackets.

    Examples:
        >>> bracketed("::1"), bracketed("db.example.com")
        ('[::1]', 'db.example.com')

    """
    return f"[{hostname}]" if ":" in hostname else hostname


def secret(name: str) -> str:
    """The value of an environment variable that a URL names.

    Raises:
        ConfigurationError: It is not set.
    """
    value = os.environ.get(name) if name else None
    if not value:
        raise ConfigurationError(
            f"the URL refers to the environment variable {name!r}, which is not set; user_env and "
            "password_env go together"
        )
    return value


def seconds(text: str) -> float:
    """The value of ``timeout_s``.

    Raises:
        ConfigurationError: It is no positive number.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigurationError(f"timeout_s must be a positive number of seconds, got {text!r}")
    return value
