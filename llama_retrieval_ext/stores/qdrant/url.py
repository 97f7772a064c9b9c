"""`Address`: a parsed Qdrant URL, with the name of the variable that holds the API key."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.urls import ServerForm, parse_options, parse_server_url, secret

MEMORY: Final = ":memory:"
_COLLECTION: Final = "nodes"
_TIMEOUT_S: Final = 30
_LOCAL_OPTIONS: Final = ("collection",)
_ADVICE: Final = (
    "write qdrant://host:6333/collection, qdrants://host/collection?api_key_env=NAME for TLS, "
    "qdrant:./directory or qdrant::memory:"
)
_SERVER: Final = ServerForm(
    6333,
    ("api_key_env", "timeout_s", "prefer_grpc"),
    "?api_key_env=NAME",
    "qdrant://host:6333/collection, or qdrants:// for TLS",
)


@dataclass(frozen=True, slots=True)
class Address:
    """A collection and its server or directory."""

    collection: str
    path: str | None = None
    url: str | None = None
    api_key_env: str | None = None
    timeout_s: int = _TIMEOUT_S
    prefer_grpc: bool = False

    @property
    def where(self) -> str:
        """The server or directory for messages."""
        return self.url or f"qdrant:{self.path}"

    def api_key(self) -> str | None:
        """Return the key from the environment variable; raise if it is not set."""
        return None if self.api_key_env is None else secret(self.api_key_env)


def parse_address(url: str) -> Address:
    """Return the address of a collection's URL.

    Examples:
        >>> parse_address("qdrants://db.example.com/handbook?api_key_env=QDRANT_KEY").where
        'https://db.example.com:6333'

    """
    scheme, _, rest = url.partition(":")
    if scheme not in {"qdrant", "qdrants"}:
        raise ConfigurationError(f"{scheme}: is no URL of Qdrant; {_ADVICE}")
    if rest.startswith("//"):
        return _server(url)
    if scheme == "qdrants" or not rest:
        raise ConfigurationError(f"{scheme}: needs a host; {_ADVICE}")
    path, _, query = rest.partition("?")
    options = parse_options(query, _LOCAL_OPTIONS)
    return Address(options.get("collection") or _COLLECTION, path=path)


def _server(url: str) -> Address:
    parts = parse_server_url(url, _SERVER)
    *prefix, collection = parts.path
    options = parts.options
    return Address(
        collection,
        url="/".join([parts.host, *map(quote, prefix)]),
        api_key_env=options.get("api_key_env"),
        timeout_s=_seconds(options.get("timeout_s")),
        prefer_grpc=options.get("prefer_grpc") == "true",
    )


def _seconds(text: str | None) -> int:
    if text is None:
        return _TIMEOUT_S
    if not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(f"timeout_s must be a whole number of seconds, got {text!r}")
    return int(text)
