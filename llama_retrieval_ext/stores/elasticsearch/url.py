"""`Address`: what the URL of an Elasticsearch index says, without the secrets it refers to."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.urls import bracketed, seconds, secret

DEFAULT_TIMEOUT_S: Final = 30.0
_SCHEMES: Final = {"elasticsearch": "http", "elasticsearchs": "https"}
_PORT: Final = 9200
_FORM: Final = "elasticsearch://host:9200/index (elasticsearchs:// for TLS)"
_OPTIONS: Final = {"api_key_env", "user_env", "password_env", "ca_certs", "timeout_s"}
# Elasticsearch's own rule is wider; names that could match several indices are left out.
_INDEX: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class Address:
    """An index and its server.

    Attributes:
        index: The index's name.
        url: The server, without the index.
        api_key_env: Environment variable with the API key; empty for none.
        user_env: Environment variable with the user; empty for none.
        password_env: Environment variable with the user's password.
        ca_certs: File with the certificates to trust; empty for the system's.
        timeout_s: Seconds that one request may take.
    """

    index: str
    url: str
    api_key_env: str = ""
    user_env: str = ""
    password_env: str = ""
    ca_certs: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S

    def client_options(self) -> dict[str, Any]:
        """Return the client's options with the credentials, read now.

        Raises:
            ConfigurationError: An environment variable is not set.
        """
        options: dict[str, Any] = {}
        if self.api_key_env:
            options["api_key"] = secret(self.api_key_env)
        if self.user_env or self.password_env:
            options["basic_auth"] = (secret(self.user_env), secret(self.password_env))
        if self.ca_certs:
            options["ca_certs"] = self.ca_certs
        return options


def parse_address(url: str) -> Address:
    """Parse the URL of an index.

    Args:
        url: ``elasticsearch://host:9200/index``, or ``elasticsearchs://`` for TLS, with
            ``api_key_env=NAME`` or ``user_env=NAME&password_env=NAME``, ``ca_certs=FILE`` and
            ``timeout_s=SECONDS``.

    Raises:
        ConfigurationError: The URL has another form.

    Examples:
        >>> parse_address("elasticsearch://search.example/handbook")
        Address(index='handbook', url='http://search.example:9200', api_key_env='', user_env='', \
password_env='', ca_certs='', timeout_s=30.0)

    """
    parts = urlsplit(url)
    port = _port(parts)
    *prefix, index = unquote(parts.path).strip("/").split("/")
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise ConfigurationError(f"expected {_FORM}, got the scheme {parts.scheme!r} or no host")
    if "@" in parts.netloc or parts.fragment:
        raise ConfigurationError(
            "the URL holds credentials or a fragment; put credentials into environment variables "
            "and write ?api_key_env=NAME, or ?user_env=NAME&password_env=NAME"
        )
    options = _options(parts)
    server = f"{_SCHEMES[parts.scheme]}://{bracketed(parts.hostname)}:{port}"
    return Address(
        _check_index(index),
        "/".join([server, *prefix]),
        api_key_env=options.get("api_key_env", ""),
        user_env=options.get("user_env", ""),
        password_env=options.get("password_env", ""),
        ca_certs=options.get("ca_certs", ""),
        timeout_s=seconds(options.get("timeout_s", str(DEFAULT_TIMEOUT_S))),
    )


def _check_index(index: str) -> str:
    """Return the name if it can only be that of one index, else raise."""
    if not _INDEX.fullmatch(index):
        raise ConfigurationError(
            f"got the index name {index!r}; it has 1 to 200 small letters, digits, '.', '_' or "
            f"'-', and begins with a letter or digit: {_FORM}"
        )
    return index


def _port(parts: SplitResult) -> int:
    try:
        return parts.port or _PORT
    except ValueError as error:
        raise ConfigurationError(f"the port is not a number below 65536: {_FORM}") from error


def _options(parts: SplitResult) -> Mapping[str, str]:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options).difference(_OPTIONS))
    if unknown:
        raise ConfigurationError(
            f"the URL has the options {', '.join(unknown)}; it may have "
            f"{', '.join(sorted(_OPTIONS))}, other settings go into store_params"
        )
    credentials = options.keys() & {"api_key_env", "user_env", "password_env"}
    for name in credentials:
        secret(options[name])  # raise now: credentials are read when a client is made
    if "api_key_env" in credentials and len(credentials) > 1:
        raise ConfigurationError("give an API key, or a user and a password, not both")
    return options
