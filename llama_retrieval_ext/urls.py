"""URLs of stores: parsing of server URLs, and `Location` for all engines."""

import math
import os
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

from llama_retrieval_ext.errors import ConfigurationError

_MEMORY = ":memory:"
_ON_THIS_MACHINE = {"embedded", "qdrant", "milvus"}
_PORTS = {"qdrant": 6333, "milvus": 19530, "elasticsearch": 9200}
_COLLECTION = "nodes"  # the default collection
# Engine of a server by the scheme of its URL, without and with TLS.
ENGINES: Final[Mapping[str, str]] = {
    scheme: engine for engine in _PORTS for scheme in (engine, f"{engine}s")
}


@dataclass(frozen=True, slots=True)
class Location:
    """Location of a knowledge base. Engines check URLs; for an invalid one this is a guess.

    Attributes:
        engine: The engine, the same with and without TLS.
        collection: The collection; empty for the engine's default.
        path: The file or directory; None on a server or in memory.
        is_on_server: Whether other processes can open it at the same time.
        identity: Equal for all URLs of the same location, as far as URLs determine it; None if it
            is private to one store.
    """

    engine: str
    collection: str
    path: Path | None = None
    is_on_server: bool = False
    identity: Hashable | None = None

    @classmethod
    def of(cls, url: str) -> Self:
        """Return the location of a URL.

        Examples:
            >>> Location.of("qdrants://db.example.com/handbook").collection
            'handbook'
            >>> Location.of("milvus:./kb.db?collection=handbook").path.name
            'kb.db'

        """
        scheme, _, place = url.partition(":")
        engine = ENGINES.get(scheme, scheme)
        if place.startswith("//"):
            host, route, database = _on_server(place, _PORTS.get(engine))
            identity = (engine, host, route or _COLLECTION, database)
            return cls(engine, route.rpartition("/")[2], is_on_server=True, identity=identity)
        if not place:
            return cls("", "")
        name, _, query = place.partition("?") if engine != "embedded" else (place, "", "")
        collection = parse_qs(query).get("collection", [""])[0]
        if name == _MEMORY or engine not in _ON_THIS_MACHINE:
            return cls(engine, collection)
        path = Path(unquote(name) if engine == "milvus" else name).expanduser().resolve()
        return cls(engine, collection, path, identity=(engine, path, collection or _COLLECTION))

    @property
    def is_in_memory(self) -> bool:
        """Whether the data is lost on close."""
        return self.identity is None and self.engine in _ON_THIS_MACHINE


def _on_server(place: str, default_port: int | None) -> tuple[str, str, str]:
    try:
        parts = urlsplit(place)
        host = f"{parts.hostname}:{parts.port or default_port}"
    except ValueError:
        return "", "", ""
    (database,) = parse_qs(parts.query).get("db_name", [""])[-1:]
    return host, unquote(parts.path.strip("/")), database


@dataclass(frozen=True, slots=True)
class ServerForm:
    """Form of an engine's server URLs.

    Attributes:
        port: The default port.
        options: Valid option names in the URL's query.
        credentials: An example of options that name environment variables with credentials.
        example: An example of a URL, for messages.
    """

    port: int
    options: Collection[str]
    credentials: str
    example: str


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """A server as ``http://host:port`` or ``https:…``, unquoted path segments, and the query."""

    host: str
    path: tuple[str, ...]
    options: Mapping[str, str]


def parse_server_url(url: str, form: ServerForm) -> ServerUrl:
    """Parse ``scheme://host:port/path?options``; a scheme that ends in ``s`` means TLS.

    Examples:
        >>> form = ServerForm(6333, ["api_key_env"], "?api_key_env=NAME", "qdrant://host/name")
        >>> parse_server_url("qdrants://db.example.com/prefix/kb", form)
        ServerUrl(host='https://db.example.com:6333', path=('prefix', 'kb'), options={})

    """
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.fragment:
        raise ConfigurationError(
            "a URL is shown in messages and kept in files, so it must not hold credentials or a "
            f"fragment; put credentials into environment variables and write {form.credentials}"
        )
    try:
        port = parts.port or form.port
    except ValueError as error:
        raise ConfigurationError(
            f"the URL's port is no number up to 65535; write {form.example}"
        ) from error
    path = tuple(map(unquote, parts.path.strip("/").split("/")))
    if not parts.hostname or not path[-1]:
        raise ConfigurationError(
            f"got a server's URL without host or collection; write {form.example}"
        )
    scheme = "https" if ENGINES.get(parts.scheme, parts.scheme) != parts.scheme else "http"
    options = parse_options(parts.query, form.options)
    return ServerUrl(f"{scheme}://{bracketed(parts.hostname)}:{port}", path, options)


def parse_options(query: str, known: Collection[str]) -> Mapping[str, str]:
    """Return the options of a URL's query; raise if one is unknown."""
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(options).difference(known))
    if unknown:
        raise ConfigurationError(
            f"the URL has the options {', '.join(unknown)}; it may have "
            f"{', '.join(sorted(known))}, other settings go into store_params"
        )
    return options


def bracketed(hostname: str) -> str:
    """Return a host in URL form: an IPv6 address in brackets.

    Examples:
        >>> bracketed("::1"), bracketed("db.example.com")
        ('[::1]', 'db.example.com')

    """
    return f"[{hostname}]" if ":" in hostname else hostname


def secret(name: str) -> str:
    """Return the value of an environment variable; raise if it is not set."""
    value = os.environ.get(name) if name else None
    if not value:
        raise ConfigurationError(
            f"the URL refers to the environment variable {name!r}, which is not set; user_env and "
            "password_env go together"
        )
    return value


def seconds(text: str) -> float:
    """Return the value of ``timeout_s``; raise if it is not a positive number."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise ConfigurationError(f"timeout_s must be a positive number of seconds, got {text!r}")
    return value
