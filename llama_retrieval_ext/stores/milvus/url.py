"""URLs of Milvus, and what they mean."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.urls import bracketed, seconds, secret

DEFAULT_TIMEOUT_S: Final = 10.0
_PORT: Final = 19530
_COLLECTION: Final = "nodes"
_FORM: Final = "milvus://host:19530/collection (milvuss:// for TLS), or milvus:./file.db"
_SCHEMES: Final = {"milvus": "http", "milvuss": "https"}
_SERVER_OPTIONS: Final = {"token_env", "user_env", "password_env", "db_name", "timeout_s"}
_LOCAL_OPTIONS: Final = {"collection", "timeout_s"}
# Milvus's own rule.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


@dataclass(frozen=True, slots=True)
class Address:
    """A collection, and where it is; credentials only by name.

    Attributes:
        collection: Its name.
        path: File of Milvus Lite; None for a server.
        url: Of a server; empty for a file.
        db_name: Database of the server; empty for its default.
        token_env: Environment variable that holds the token; empty for none.
        user_env: That holds the user, beside ``password_env``; empty for none.
        password_env: That holds the password.
        timeout_s: Seconds that one request may take.
    """

    collection: str
    path: Path | None = None
    url: str = ""
    db_name: str = ""
    token_env: str = ""
    user_env: str = ""
    password_env: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S

    @property
    def where(self) -> str:
        """The place as it may be shown."""
        return self.url or str(self.path)

    def token(self) -> str:
        """The credentials, read now, so that they are in no object of ours.

        Raises:
            ConfigurationError: An environment variable is not set.
        """
        if self.token_env:
            return secret(self.token_env)
        if self.user_env or self.password_env:
            return f"{secret(self.user_env)}:{secret(self.password_env)}"
        return ""


def parsed_address(url: str) -> Address:
    """The address that a URL stands for.

    Args:
        url: ``milvus://host:19530/collection``, or ``milvuss://`` for TLS, with ``token_env=NAME``
            or ``user_env=NAME&password_env=NAME``, ``db_name`` and ``timeout_s``; or
            ``milvus:FILE.db`` with ``collection`` and ``timeout_s``.

    Raises:
        ConfigurationError: It is neither; it is not repeated where it may hold a password.

    Examples:
        >>> parsed_address("milvuss://db.example.com/handbook?token_env=KEY").where
        'https://db.example.com:19530'
        >>> parsed_address("milvus:./kb.db?collection=handbook").collection
        'handbook'

    """
    scheme, _, place = url.partition(":")
    if scheme not in _SCHEMES or not place:
        raise ConfigurationError(f"expected {_FORM}, got the scheme {scheme!r}")
    if place.startswith("//"):
        return _server(_SCHEMES[scheme], place)
    if scheme != "milvus":
        raise ConfigurationError(f"a file has no TLS; expected {_FORM}")
    path, _, query = place.partition("?")
    return _local(Path(unquote(path)), _options(query, _LOCAL_OPTIONS))


def checked_name(collection: str) -> str:
    """The same name, if Milvus takes it.

    Raises:
        ConfigurationError: It does not.
    """
    if not _NAME.fullmatch(collection):
        raise ConfigurationError(
            f"got the collection name {collection!r}; it has up to 255 letters without accents, "
            f"digits and '_', and does not begin with a digit: {_FORM}"
        )
    return collection


def _server(scheme: str, place: str) -> Address:
    parts = urlsplit(place)
    if "@" in parts.netloc:
        raise ConfigurationError(
            "a URL is shown in messages and kept in files, so it must not hold credentials; put "
            "the token into an environment variable and write ?token_env=ITS_NAME"
        )
    options = _options(parts.query, _SERVER_OPTIONS)
    try:
        port = parts.port or _PORT
    except ValueError as error:
        raise ConfigurationError(f"the port is not a number below 65536: {_FORM}") from error
    collection = unquote(parts.path.strip("/"))
    if not parts.hostname or not collection:
        raise ConfigurationError(f"the URL has no host or no collection; expected {_FORM}")
    return Address(
        checked_name(collection),
        url=f"{scheme}://{bracketed(parts.hostname)}:{port}",
        db_name=options.get("db_name", ""),
        token_env=options.get("token_env", ""),
        user_env=options.get("user_env", ""),
        password_env=options.get("password_env", ""),
        timeout_s=_timeout_s(options),
    )


def _local(path: Path, options: Mapping[str, str]) -> Address:
    if path.suffix != ".db" or not path.expanduser().absolute().parent.is_dir():
        raise ConfigurationError(
            f"got the file {str(path)!r}; Milvus Lite takes a name that ends in .db, in a folder "
            "that exists: milvus:./file.db"
        )
    return Address(
        checked_name(options.get("collection", _COLLECTION)),
        path=path.expanduser().resolve(),
        timeout_s=_timeout_s(options),
    )


def _options(query: str, known: set[str]) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(options) - known)
    if unknown:
        raise ConfigurationError(
            f"the URL has the options {', '.join(unknown)}, it may have "
            f"{', '.join(sorted(known))}; other settings go into store_params"
        )
    return options


def _timeout_s(options: Mapping[str, str]) -> float:
    given = options.get("timeout_s")
    return DEFAULT_TIMEOUT_S if given is None else seconds(given)
