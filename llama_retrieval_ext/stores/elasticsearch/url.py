"""`Address`: a parsed URL of an Elasticsearch index; it names secrets, but has none."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.urls import ServerForm, parse_server_url, seconds, secret

DEFAULT_TIMEOUT_S: Final = 30.0
_SCHEMES: Final = ("elasticsearch", "elasticsearchs")
_FORM: Final = "elasticsearch://host:9200/index (elasticsearchs:// for TLS)"
_SERVER: Final = ServerForm(
    9200,
    ("api_key_env", "user_env", "password_env", "ca_certs", "timeout_s"),
    "?api_key_env=NAME, or ?user_env=NAME&password_env=NAME",
    _FORM,
)
# Stricter than Elasticsearch's rule: excludes names that could match several indices.
_INDEX: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class Address:
    """An index and its server."""

    index: str
    url: str
    api_key_env: str = ""
    user_env: str = ""
    password_env: str = ""
    ca_certs: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S

    def client_options(self) -> dict[str, Any]:
        """Return the client's options with the credentials, read now."""
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

    Examples:
        >>> parse_address("elasticsearch://search.example/handbook").url
        'http://search.example:9200'

    """
    scheme = url.partition(":")[0]
    if scheme not in _SCHEMES:
        raise ConfigurationError(f"expected {_FORM}, got the scheme {scheme!r}")
    parts = parse_server_url(url, _SERVER)
    _check_credentials(parts.options)
    options, (*prefix, index) = parts.options, parts.path
    return Address(
        _check_index(index),
        "/".join([parts.host, *prefix]),
        api_key_env=options.get("api_key_env", ""),
        user_env=options.get("user_env", ""),
        password_env=options.get("password_env", ""),
        ca_certs=options.get("ca_certs", ""),
        timeout_s=seconds(options.get("timeout_s", str(DEFAULT_TIMEOUT_S))),
    )


def _check_index(index: str) -> str:
    """Return the name if it matches one index only, else raise."""
    if not _INDEX.fullmatch(index):
        raise ConfigurationError(
            f"got the index name {index!r}; it has 1 to 200 small letters, digits, '.', '_' or "
            f"'-', and begins with a letter or digit: {_FORM}"
        )
    return index


def _check_credentials(options: Mapping[str, str]) -> None:
    """Raise early if credentials are missing or of two kinds; clients read them later."""
    names = options.keys() & {"api_key_env", "user_env", "password_env"}
    for name in names:
        secret(options[name])
    if "api_key_env" in names and len(names) > 1:
        raise ConfigurationError("give an API key, or a user and a password, not both")
