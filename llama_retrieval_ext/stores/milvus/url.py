"""`Address`: a parsed URL of a Milvus collection; it names secrets, but has none."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.urls import ServerForm, parse_options, parse_server_url, seconds, secret

DEFAULT_TIMEOUT_S: Final = 10.0
_COLLECTION: Final = "nodes"
_FORM: Final = "milvus://host:19530/collection (milvuss:// for TLS), or milvus:./file.db"
_SCHEMES: Final = ("milvus", "milvuss")
_SERVER: Final = ServerForm(
    19530,
    ("token_env", "user_env", "password_env", "db_name", "timeout_s"),
    "?token_env=NAME",
    _FORM,
)
_LOCAL_OPTIONS: Final = {"collection", "timeout_s"}
# Milvus's rule for names.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


@dataclass(frozen=True, slots=True)
class Address:
    """A collection and its server or file."""

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
        """The server or file, for messages."""
        return self.url or str(self.path)

    def token(self) -> str:
        """Return the credentials, read now; raise if an environment variable is not set."""
        if self.token_env:
            return secret(self.token_env)
        if self.user_env or self.password_env:
            return f"{secret(self.user_env)}:{secret(self.password_env)}"
        return ""


def parse_address(url: str) -> Address:
    """Parse the URL of a collection.

    Examples:
        >>> parse_address("milvuss://db.example.com/handbook?token_env=KEY").where
        'https://db.example.com:19530'
        >>> parse_address("milvus:./kb.db?collection=handbook").collection
        'handbook'

    """
    scheme, _, rest = url.partition(":")
    if scheme not in _SCHEMES or not rest:
        raise ConfigurationError(f"expected {_FORM}, got the scheme {scheme!r}")
    if rest.startswith("//"):
        return _server(url)
    if scheme != "milvus":
        raise ConfigurationError(f"a file has no TLS; expected {_FORM}")
    path, _, query = rest.partition("?")
    return _local(Path(unquote(path)), parse_options(query, _LOCAL_OPTIONS))


def check_name(collection: str) -> str:
    """Return the name if Milvus accepts it, else raise."""
    if not _NAME.fullmatch(collection):
        raise ConfigurationError(
            f"got the collection name {collection!r}; it has up to 255 letters without accents, "
            f"digits and '_', and does not begin with a digit: {_FORM}"
        )
    return collection


def _server(url: str) -> Address:
    parts = parse_server_url(url, _SERVER)
    options = parts.options
    return Address(
        check_name("/".join(parts.path)),
        url=parts.host,
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
        check_name(options.get("collection", _COLLECTION)),
        path=path.expanduser().resolve(),
        timeout_s=_timeout_s(options),
    )


def _timeout_s(options: Mapping[str, str]) -> float:
    return seconds(options.get("timeout_s", str(DEFAULT_TIMEOUT_S)))
