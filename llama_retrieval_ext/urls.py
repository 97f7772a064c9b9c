"""URLs of stores: `Address` for the engine that opens one, `Location` for all engines."""

import errno
import math
import os
import re
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.text.normalization import spellings

_MEMORY = ":memory:"
_ON_THIS_MACHINE = {"embedded", "qdrant", "milvus"}
_PORTS = {"qdrant": 6333, "milvus": 19530, "elasticsearch": 9200}
_COLLECTION = "nodes"  # the default collection
_TIMEOUT_S = 30.0
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
        path = local_path(unquote(name) if engine == "milvus" else name)
        return cls(engine, collection, path, identity=(engine, path, collection or _COLLECTION))

    @property
    def is_in_memory(self) -> bool:
        """Whether the data is lost on close."""
        return self.identity is None and self.engine in _ON_THIS_MACHINE


def local_path(path: str | Path) -> Path:
    """Return an absolute path, without ``~`` and symbolic links.

    Raises:
        ConfigurationError: As for `expanded_path`, or symbolic links form a loop.
    """
    place = expanded_path(path)
    if is_loop(place):
        raise ConfigurationError(f"the path {str(path)!r} is a loop of symbolic links")
    return place.resolve()


def is_loop(path: Path) -> bool:
    """Return whether the symbolic links of a path form a loop; it cannot be resolved then."""
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def expanded_path(path: str | Path) -> Path:
    """Return a path without ``~``; composed or decomposed letters are those of the existing file.

    Raises:
        ConfigurationError: ``~name`` names no user, or the path contains NUL.
    """
    if "\0" in str(path):
        raise ConfigurationError(f"{str(path)!r} cannot be a path: it contains the character NUL")
    try:
        expanded = Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigurationError(
            f"the path {str(path)!r} begins with the home folder of an unknown user; write "
            f"{f'./{path}'!r} if the name begins with ~"
        ) from error
    if str(expanded).isascii() or os.path.lexists(expanded):
        return expanded
    existing = Path(expanded.anchor)
    for part in expanded.relative_to(existing).parts:
        forms = [existing / form for form in spellings(part)]
        existing = next(filter(os.path.lexists, forms), forms[0])
    return existing


def _on_server(place: str, default_port: int | None) -> tuple[str, str, str]:
    try:
        parts = urlsplit(place)
        host = f"{parts.hostname}:{parts.port or default_port}"
    except ValueError:
        return "", "", ""
    (database,) = parse_qs(parts.query).get("db_name", [""])[-1:]
    return host, unquote(parts.path.strip("/")), database


@dataclass(frozen=True, slots=True)
class Address:
    """A collection and its server, file or directory; it names secrets, but has none.

    Attributes:
        collection: The collection.
        url: ``http://host:port`` or ``https://host:port``, and the path before the collection;
            empty for a file or directory.
        path: The file or directory as in the URL; empty for a server.
        timeout_s: Timeout of a request, in seconds.
        options: All other options of the URL.
    """

    collection: str
    url: str = ""
    path: str = ""
    timeout_s: float = _TIMEOUT_S
    options: Mapping[str, str] = field(default_factory=dict)

    def secrets(self, *names: str) -> list[str]:
        """Return the values of the environment variables that options name, read now.

        Returns:
            One value per option; an empty list if the URL has none of the options.

        Raises:
            ConfigurationError: One of several options is missing, or a variable is not set.
        """
        if not any(name in self.options for name in names):
            return []
        return [secret(self.options.get(name, "")) for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlForm:
    """The URLs of an engine's stores.

    Attributes:
        engine: Name of the engine, for messages.
        scheme: The scheme; that of a server with TLS has an ``s`` appended.
        example: Examples of URLs, for messages.
        credentials: An example of options that name environment variables with credentials.
        options: Names of the options of a server's URL.
        local_options: The same for a file or directory; None if the engine has servers only.
        has_prefix: Whether a server's path may have segments before the collection.
        timeout_s: Default of the option ``timeout_s``.
        kind: What the engine calls a collection.
        name_pattern: Regular expression of its names.
        name_rule: The same in words.
    """

    engine: str
    scheme: str
    example: str
    credentials: str
    options: Collection[str]
    local_options: Collection[str] | None = None
    has_prefix: bool = True
    timeout_s: float = _TIMEOUT_S
    kind: str = "collection"
    name_pattern: str = "(?s).*"
    name_rule: str = ""

    def check_name(self, name: str) -> str:
        """Return the name of a collection; raise if the engine does not accept it."""
        if not re.fullmatch(self.name_pattern, name):
            raise ConfigurationError(
                f"got the {self.kind} name {name!r}; it has {self.name_rule}: {self.example}"
            )
        return name

    def parse(self, url: str) -> Address:
        """Parse ``scheme://host:port/collection?options`` or ``scheme:path?options``.

        Raises:
            ConfigurationError: The URL has another form; messages never contain a possible
                password.

        Examples:
            >>> form = UrlForm(
            ...     engine="Qdrant", scheme="qdrant", example="qdrant://host/name",
            ...     credentials="?api_key_env=NAME", options=["api_key_env"],
            ... )
            >>> address = form.parse("qdrants://db.example.com/prefix/kb?api_key_env=KEY")
            >>> address.collection, address.url, address.options
            ('kb', 'https://db.example.com:6333/prefix', {'api_key_env': 'KEY'})

        """
        scheme, _, location = url.partition(":")
        has_tls = scheme == f"{self.scheme}s"
        if scheme != self.scheme and not has_tls:
            raise ConfigurationError(f"{scheme}: is no URL of {self.engine}; write {self.example}")
        if location.startswith("//"):
            return self._parse_server(url, has_tls=has_tls)
        path, _, query = location.partition("?")
        if has_tls or not path or self.local_options is None:
            raise ConfigurationError(f"{scheme}: needs a host; write {self.example}")
        options = _options(query, self.local_options)
        name = self.check_name(options.pop("collection", "") or _COLLECTION)
        return Address(name, path=path, timeout_s=self._timeout_s(options), options=options)

    def _parse_server(self, url: str, *, has_tls: bool) -> Address:
        try:
            parts = urlsplit(url)
            port = parts.port or _PORTS[self.scheme]
        except ValueError:  # its message may hold a password
            raise ConfigurationError(
                f"the URL's host is malformed, or its port no number up to 65535; write "
                f"{self.example}"
            ) from None
        if "@" in parts.netloc or parts.fragment:
            raise ConfigurationError(
                "a URL is shown in messages and kept in files, so it must not hold credentials or "
                "a fragment; put credentials into environment variables and write "
                f"{self.credentials}"
            )
        path = parts.path.strip("/")
        prefix, _, collection = path.rpartition("/") if self.has_prefix else ("", "", path)
        if not parts.hostname or not collection:
            raise ConfigurationError(
                f"got a server's URL without host or collection; write {self.example}"
            )
        options = _options(parts.query, self.options)
        name = self.check_name(unquote(collection))
        host = f"{'https' if has_tls else 'http'}://{bracketed(parts.hostname)}:{port}"
        timeout_s = self._timeout_s(options)
        return Address(name, f"{host}/{prefix}".rstrip("/"), timeout_s=timeout_s, options=options)

    def _timeout_s(self, options: dict[str, str]) -> float:
        """Remove the timeout from options and return it."""
        return seconds(options.pop("timeout_s", str(self.timeout_s)))


def _options(query: str, names: Collection[str]) -> dict[str, str]:
    """Return the options of a URL's query; raise if one is unknown."""
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(options).difference(names))
    if unknown:
        raise ConfigurationError(
            f"the URL has the options {', '.join(unknown)}; it may have "
            f"{', '.join(sorted(names))}, other settings go into store_params"
        )
    return options


def shown_url(url: str) -> str:
    """Return a URL for a message; only its scheme if the rest may hold credentials.

    Examples:
        >>> shown_url("embeded:./kb"), shown_url("postgres://me:password@host/db")
        ("'embeded:./kb'", 'the URL with postgres:')

    """
    return repr(url) if not re.search("[@?]", url) else f"the URL with {url.partition(':')[0]}:"


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
