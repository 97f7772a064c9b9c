"""URLs that name an index, and what they mean."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.elasticsearch.client import DEFAULT_TIMEOUT_S, Connection
from llama_retrieval_ext.stores.elasticsearch.index import IndexParams
from llama_retrieval_ext.stores.elasticsearch.store import (
    ElasticsearchBackend,
    ElasticsearchVectorStore,
)
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.text.tokenizer import Tokenizer
from llama_retrieval_ext.urls import bracketed, seconds, secret

_LLAMA_INDEX: Final = "llama_index.vector_stores.elasticsearch"
_SCHEMES: Final = {"elasticsearch": "http", "elasticsearchs": "https"}
_PORT: Final = 9200
_FORM: Final = "elasticsearch://host:9200/index (elasticsearchs:// for TLS)"
_PARAMETERS: Final = {"api_key_env", "user_env", "password_env", "ca_certs", "timeout_s"}
# Elasticsearch's own rule is wider; all that could name several indices is left out.
_INDEX: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")


def open_elasticsearch(
    url: str,
    *,
    tokenizer: Tokenizer | None = None,
    dim: int | None = None,
    distance: Distance | None = None,
    store_params: Mapping[str, Any] | None = None,
) -> ElasticsearchVectorStore:
    """The store that a URL names.

    Args:
        url: ``elasticsearch://host:9200/index``, or ``elasticsearchs://`` for TLS. Credentials are
            named by the environment variables that hold them, ``?api_key_env=NAME`` or
            ``?user_env=NAME&password_env=NAME``; there are ``ca_certs`` (a file) and ``timeout_s``,
            too.
        tokenizer: See `ElasticsearchVectorStore`, as for the others.
        dim: Dimension of the embeddings.
        distance: How they are compared.
        store_params: The fields of `IndexParams`.

    Raises:
        ConfigurationError: The URL is not of this form, or a variable is not set.
        StoreFormatError: The index was not made by this package.
        StoreUnavailableError: The server cannot be reached, or refuses the credentials.
    """
    connection, index = parsed(url)
    return ElasticsearchVectorStore(
        index,
        connection=connection,
        tokenizer=tokenizer,
        dim=dim,
        distance=distance,
        params=IndexParams.of(store_params or {}),
    )


def is_new(url: str) -> bool:  # noqa: ARG001 - the engines' common signature
    """False: opening never makes an index; whether there is one shows when it is opened."""
    return False


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """The backend for a store in Elasticsearch, ours or LlamaIndex's; None for any other."""
    if isinstance(store, ElasticsearchVectorStore):
        return ElasticsearchBackend(store)
    if type(store).__module__.startswith(_LLAMA_INDEX):
        # Who has such a store has paid for its import, which nobody else need.
        from llama_retrieval_ext.stores.elasticsearch.llama_index_store import (  # noqa: PLC0415
            foreign_backend_of,
        )

        return foreign_backend_of(store)
    return None


def parsed(url: str) -> tuple[Connection, str]:
    """The server and the index that a URL names.

    Raises:
        ConfigurationError: The URL is not of the right form, or a variable is not set.

    Examples:
        >>> connection, index = parsed("elasticsearch://search.example:9200/handbook")
        >>> connection.where, index
        ('http://search.example:9200', 'handbook')

    """
    parts = urlsplit(url)
    port = _port(parts)
    *before, index = unquote(parts.path).strip("/").split("/")
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise ConfigurationError(f"expected {_FORM}, got the scheme {parts.scheme!r} or no host")
    if "@" in parts.netloc or parts.fragment:
        raise ConfigurationError(
            "the URL holds credentials or a fragment; put credentials into environment variables "
            "and write ?api_key_env=NAME, or ?user_env=NAME&password_env=NAME"
        )
    check_index(index)
    options = _options(parts)
    timeout_s = options.pop("timeout_s", DEFAULT_TIMEOUT_S)
    path = "".join(f"/{part}" for part in before)
    host = bracketed(parts.hostname)
    return Connection(
        (f"{_SCHEMES[parts.scheme]}://{host}:{port}{path}",), options, timeout_s
    ), index


def check_index(index: str) -> str:
    """The same name, if it can only be that of one index.

    Raises:
        ConfigurationError: It is not.
    """
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


def _options(parts: SplitResult) -> dict[str, Any]:
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(given).difference(_PARAMETERS))
    if unknown:
        raise ConfigurationError(
            f"the URL has the parameters {', '.join(unknown)}; there are "
            f"{', '.join(sorted(_PARAMETERS))}"
        )
    options: dict[str, Any] = {}
    if "api_key_env" in given:
        options["api_key"] = secret(given["api_key_env"])
    if "user_env" in given or "password_env" in given:
        names = (given.get("user_env", ""), given.get("password_env", ""))
        options["basic_auth"] = tuple(secret(name) for name in names)
    if len(options) > 1:
        raise ConfigurationError("give an API key, or a user and a password, not both")
    if "ca_certs" in given:
        options["ca_certs"] = given["ca_certs"]
    if "timeout_s" in given:
        options["timeout_s"] = seconds(given["timeout_s"])
    return options
