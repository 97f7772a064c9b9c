"""`Location`: what a URL says of where a knowledge base is, whatever the engine."""

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

_MEMORY = ":memory:"
_ON_THIS_MACHINE = {"embedded", "qdrant", "milvus"}
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
            host, route = _host_and_route(place)
            collection = unquote(route.rpartition("/")[2])
            return cls(engine, collection, None, True, (engine, host, route))  # noqa: FBT003
        name, _, query = place.partition("?") if engine != "embedded" else (place, "", "")
        collection = parse_qs(query).get("collection", [""])[0]
        if name == _MEMORY or engine not in _ON_THIS_MACHINE:
            return cls(engine, collection, None, False, None)  # noqa: FBT003
        path = Path(unquote(name) if engine == "milvus" else name).expanduser().resolve()
        return cls(engine, collection, path, False, (engine, path, collection))  # noqa: FBT003


def _host_and_route(place: str) -> tuple[str, str]:
    try:
        parts = urlsplit(place)
    except ValueError:
        return "", ""
    return parts.netloc.lower(), parts.path.strip("/")
