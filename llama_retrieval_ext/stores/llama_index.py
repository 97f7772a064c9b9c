"""`llama_index_store`: one of LlamaIndex's own vector stores, from settings as data."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import ConfigurationError, optional_module
from llama_retrieval_ext.stores.elasticsearch.params import settings_of_body
from llama_retrieval_ext.stores.engine.config import check_names
from llama_retrieval_ext.stores.milvus.params import check_index_params

Settings: TypeAlias = dict[str, Any]  # Any: arguments of LlamaIndex's classes
ServerType: TypeAlias = Literal["qdrant", "milvus", "es"]


def llama_index_store(
    store_type: ServerType,
    settings: Mapping[str, Any],
    *,
    dimension: Callable[[], int],
    hidden: Iterable[str] = (),
) -> BasePydanticVectorStore:
    """Return LlamaIndex's store of an engine; its class may create the collection.

    Args:
        store_type: ``qdrant``, ``milvus`` or ``es``.
        settings: Arguments of LlamaIndex's class. For Milvus also ``index_params``, in Milvus's
            form, and ``dim`` may be left out; for Elasticsearch also ``body`` with ``settings``.
        dimension: Returns the dimension of the embeddings, if it is needed.
        hidden: Values of settings that no message may contain.

    Raises:
        ConfigurationError: A setting is unknown, contradicts another or the existing collection, or
            the class refuses the settings; the message contains the reason, without secrets.
        MissingDependencyError: The integration is not installed.
    """
    form = _FORMS[store_type]
    module = f"llama_index.vector_stores.{form.module}"
    package = f"llama-index-vector-stores-{form.module}"
    kind: Any = getattr(optional_module(module, form.name, package=package), form.name)
    names = list(inspect.signature(kind.__init__).parameters)[1:]
    check_names(settings, [*names, *form.more], where=f"store_params of {form.name}")
    try:
        return form.make(kind, dict(settings), dimension)
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever LlamaIndex's class raises
        reason = without_secrets(f"{type(error).__name__}: {error}", settings, hidden)
        # Without the original error, whose message may contain a password.
        raise ConfigurationError(
            f"{form.name} refuses the settings {', '.join(sorted(settings))}: {reason}"
        ) from None


def without_secrets(text: str, settings: Mapping[str, Any], hidden: Iterable[str] = ()) -> str:
    """Return a text in which possible secrets of settings are replaced by ``***``.

    Args:
        text: The text.
        settings: Secret are the values of names such as ``token`` and ``headers``, nested ones
            included, and passwords in URLs.
        hidden: Further secrets.

    Examples:
        >>> settings = {"uri": "http://root:hunter2@db", "token": "abc", "index_config": {"m": "3"}}
        >>> without_secrets("hunter2 and abc are wrong, 3 is not", settings)
        '*** and *** are wrong, 3 is not'

    """
    for secret in sorted({*_secrets(settings), *hidden} - {""}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


_SECRET: Final = re.compile(
    "token|(?<!text_)key|pass|secret|auth|credential|header|kwargs", re.IGNORECASE
)


def _secrets(value: object, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the strings that may be secret."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _secrets(part, is_secret=is_secret or bool(_SECRET.search(str(name))))
    elif isinstance(value, str):
        yield value if is_secret else urlsplit(value).password or ""


def _milvus_store(
    kind: Callable[..., Any], settings: Settings, dimension: Callable[[], int]
) -> BasePydanticVectorStore:
    """Return a `MilvusVectorStore` whose index is the one that the settings name."""
    index = settings.pop("index_params", None) or {}
    lite = "://" not in str(settings.get("uri", ""))  # LlamaIndex's default is a file, too
    check_index_params(index, lite=lite)
    if index:
        _translate_index(settings, index)
    if settings.get("dim") is None and settings.get("enable_dense", True):
        settings["dim"] = dimension()
    store = kind(**settings)
    if index:
        _check_collection(store, settings["index_config"])
    return store  # type: ignore[no-any-return]  # LlamaIndex's class


def _check_collection(store: Any, wanted: Mapping[str, Any]) -> None:  # noqa: ANN401 - an extra
    """Raise if a `MilvusVectorStore` has found a collection with another index."""
    shown = store.client.describe_index(store.collection_name, store.embedding_field) or {}
    for name, value in wanted.items():
        if str(shown.get(name, value)) != str(value):
            store.client.close()
            raise ConfigurationError(
                f"the collection {store.collection_name!r} was made with {name}={shown[name]!r}, "
                f"not {value!r}; leave {name} out, or use another collection"
            )


def _translate_index(settings: Settings, index: Mapping[str, Any]) -> None:
    """Replace Milvus's index parameters by the arguments of LlamaIndex's class."""
    metric = index.get("metric_type")
    similarity = str(settings.get("similarity_metric", metric)).upper()
    if "index_config" in settings or (metric and _METRICS.get(similarity, similarity) != metric):
        raise ConfigurationError(
            "store_params has index_params, and index_config or another similarity_metric; leave "
            "one out"
        )
    kept = {name: index[name] for name in ("index_type", "metric_type") if name in index}
    settings["index_config"] = {**kept, **(index.get("params") or {})}
    if metric:
        settings["similarity_metric"] = metric


_METRICS: Final = {"EUCLIDEAN": "L2"}


def _elasticsearch_store(
    kind: Callable[..., Any], settings: Settings, _: Callable[[], int]
) -> BasePydanticVectorStore:
    """Return an `ElasticsearchStore` that creates its index with the settings of a body."""
    body = settings.pop("body", None) or {}
    check_names(
        body,
        ["settings"],
        where="body",
        instead={
            "mappings": "metadata_mappings for fields of the metadata, or name the store by URL: "
            "LlamaIndex's ElasticsearchStore makes the rest of its mapping itself"
        },
    )
    store = kind(**settings)
    wanted = settings_of_body(body)
    if wanted:
        _check_index(store, wanted)
        store._store.custom_index_settings = wanted  # noqa: SLF001 - the class has no argument
    return store  # type: ignore[no-any-return]  # LlamaIndex's class


def _check_index(store: Any, wanted: Mapping[str, Any]) -> None:  # noqa: ANN401 - an extra
    """Raise if the index of an `ElasticsearchStore` exists and has other settings."""
    from llama_retrieval_ext.stores.elasticsearch.client import Transport  # noqa: PLC0415 - an extra

    with closing(Transport.of_client(store.client)) as transport:
        indexes = transport.client.indices.get_settings(
            index=store.index_name, flat_settings=True, ignore_unavailable=True
        )
    for index in indexes.values():
        for name, value in _flat(wanted, "index"):
            has = index["settings"].get(name)
            if str(has).lower() != str(value).lower():
                raise ConfigurationError(
                    f"the index {store.index_name!r} has {name}={has!r}, not {value!r}; leave it "
                    "out of the body, or use another index"
                )


def _flat(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    """Yield names with dots and values."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}.{name}")
        else:
            yield f"{prefix}.{name}", value


@dataclass(frozen=True, slots=True)
class _Form:
    """How a store is made: its class, and settings besides the arguments of the class."""

    module: str
    name: str
    make: Callable[[Callable[..., Any], Settings, Callable[[], int]], BasePydanticVectorStore]
    more: tuple[str, ...] = ()


# Arguments that `MilvusVectorStore` passes to Milvus's client, as it does unknown ones.
_OF_THE_CLIENT: Final = ("user", "password", "db_name", "timeout", "secure", "server_pem_path")

# LlamaIndex's classes by our own names, so no configuration can import other code.
_FORMS: Final[Mapping[str, _Form]] = {
    "qdrant": _Form("qdrant", "QdrantVectorStore", lambda kind, settings, _: kind(**settings)),
    "milvus": _Form(
        "milvus", "MilvusVectorStore", _milvus_store, ("index_params", *_OF_THE_CLIENT)
    ),
    "es": _Form("elasticsearch", "ElasticsearchStore", _elasticsearch_store, ("body",)),
}
# Settings that say where a store is.
ADDRESSES: Final = frozenset(
    {"url", "uri", "host", "path", "location", "client", "aclient", "es_client", "es_url"}
    | {"es_cloud_id"}
)
