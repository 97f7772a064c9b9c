"""`StoreParams`: settings handed on to the engine when a collection is made or searched."""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from pydantic import ValidationError
from pydantic_core import to_jsonable_python
from qdrant_client import models

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.qdrant_common.config import Manifest
from llama_retrieval_ext.stores.qdrant_common.points import (
    DOC,
    DOC_KEY,
    LIST,
    LONGEST_VALUE,
    META,
    MOST_FIELDS,
    Payload,
    path,
)
from llama_retrieval_ext.text.tokenizer import Tokenizer

_VECTOR: Final = "vector"
_SPARSE: Final = "sparse_vector"
_SEARCH: Final = "search"
# They are ours to decide.
_TAKEN: Final = {"vectors", "sparse_vectors", "metadata"}
# What decides on how many machines must have what was written.
_SAFETY: Final = ("replication_factor", "write_consistency_factor")
_COLLECTION: Final = frozenset(models.CreateCollection.model_fields) - _TAKEN


@dataclass(frozen=True, slots=True)
class StoreParams:
    """What the one who opens a store wants of the engine.

    Attributes:
        collection: For the collection, as in the engine's "create collection": ``hnsw_config``,
            ``quantization_config``, ``on_disk_payload``, ``shard_number``, ...
        vector: For the dense vectors: ``on_disk``, ``datatype``, ...
        sparse_vector: For the sparse vectors: ``index``.
        search: For searches of the dense vectors: ``hnsw_ef``, ``exact``, ``quantization``, ...
    """

    collection: Mapping[str, object]
    vector: Mapping[str, object]
    sparse_vector: Mapping[str, object]
    search: models.SearchParams | None

    @classmethod
    def of(cls, given: Mapping[str, object]) -> Self:
        """The same, checked.

        Raises:
            ConfigurationError: The engine has no such setting, or none of such a value.
        """
        unknown = sorted(set(given) - _COLLECTION - {_VECTOR, _SPARSE, _SEARCH})
        if unknown:
            raise ConfigurationError(
                f"store_params has {', '.join(unknown)}; Qdrant takes "
                f"{', '.join(sorted(_COLLECTION))}, and dicts as {_VECTOR}, {_SPARSE} and {_SEARCH}"
            )
        own = {name: value for name, value in given.items() if name in _COLLECTION}
        vector, sparse, search = (_part(given, name) for name in (_VECTOR, _SPARSE, _SEARCH))
        params = cls(own, vector, sparse, None)
        try:
            params.creation(dimension=1, distance=models.Distance.COSINE)
            return cls(
                own, vector, sparse, models.SearchParams.model_validate(search) if search else None
            )
        except (ValidationError, TypeError) as error:
            raise ConfigurationError(f"store_params is not what Qdrant takes: {error}") from error

    @property
    def recorded(self) -> Mapping[str, object]:
        """What counts when the collection is made, as JSON has it."""
        checked = models.CreateCollection.model_validate(self.collection)
        own = checked.model_dump(mode="json", include=set(self.collection), exclude_none=True)
        parts = {_VECTOR: self.vector, _SPARSE: self.sparse_vector}
        return {**own, **{name: _as_json(part) for name, part in parts.items() if part}}

    @property
    def for_records(self) -> "StoreParams":
        """For a collection that is as safe as this one, and is never searched by vectors."""
        kept = {name: self.collection[name] for name in _SAFETY if name in self.collection}
        return StoreParams({**kept, "hnsw_config": {"m": 0}}, {}, {}, None)

    def creation(self, *, dimension: int, distance: models.Distance) -> dict[str, object]:
        """The arguments that a collection is made with, but for its name and metadata."""
        dense = models.VectorParams.model_validate(
            {**self.vector, "size": dimension, "distance": distance}
        )
        sparse = models.SparseVectorParams.model_validate(
            {**self.sparse_vector, "modifier": models.Modifier.IDF}
        )
        checked = models.CreateCollection.model_validate(self.collection)
        own = {name: getattr(checked, name) for name in self.collection}
        return {"vectors_config": {DENSE: dense}, "sparse_vectors_config": {BM25: sparse}, **own}


def _as_json(part: Mapping[str, object]) -> object:
    return to_jsonable_python(part, exclude_none=True)


def _part(given: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = given.get(name) or {}
    if not isinstance(part, Mapping):
        raise ConfigurationError(f"store_params[{name!r}] is a dict, got {part!r}")
    return part


Schema: TypeAlias = models.KeywordIndexParams | models.FloatIndexParams

_KEYWORD: Final = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD)
# The engine keeps the nodes of a tenant together, on disk and in its graph.
_TENANT: Final = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
_FLOAT: Final = models.FloatIndexParams(type=models.FloatIndexType.FLOAT)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the payload that gets an index.

    Attributes:
        name: As the engine writes it back: with as few quotes as it can.
        path: As it is written to the engine.
        schema: The kind of index.
    """

    name: str
    path: str
    schema: Schema


def _scope_field(key: str) -> Field:
    return Field(f"{META}.{key}", path(META, key), _TENANT)


# Made with the collection, before the first node: later the engine would not sort by them.
SCOPE_FIELDS: Final = (
    Field(DOC, DOC, _KEYWORD),
    Field(DOC_KEY, DOC_KEY, _KEYWORD),
    _scope_field(TENANT_KEY),
    _scope_field(KB_KEY),
)


def fields_to_index(payloads: Iterable[Payload], indexed: AbstractSet[str]) -> list[Field]:
    """The fields that payloads are the first to have, as far as there is room for more.

    Args:
        payloads: What is about to be stored.
        indexed: Names of the fields that have an index.
    """
    new: dict[str, Field] = {}
    for field in _fields(payloads):
        if len(indexed) + len(new) >= MOST_FIELDS:
            break
        if field.name not in indexed:
            new.setdefault(field.name, field)
    return list(new.values())


def _fields(payloads: Iterable[Payload]) -> Iterator[Field]:
    for payload in payloads:
        for group in (META, LIST):
            values = payload.get(group)
            for key, value in values.items() if isinstance(values, dict) else ():
                if _fits(key, value):
                    schema = _FLOAT if isinstance(value, int | float) else _KEYWORD
                    yield Field(f"{group}.{key}", path(group, key), schema)


def _fits(key: str, value: object) -> bool:
    # {} stands for what cannot be filtered by, and says nothing of the type. A long string is text.
    text = isinstance(value, str) and len(value) > LONGEST_VALUE
    return value != {} and not text and '"' not in key and "\\" not in key


FORMAT: Final = 3
DENSE: Final = "dense"
BM25: Final = "bm25"
_KEY: Final = "llama_retrieval_ext"
DISTANCES: Final[Mapping[Distance, models.Distance]] = {
    "cosine": models.Distance.COSINE,
    "dot": models.Distance.DOT,
    "euclid": models.Distance.EUCLID,
}


def recorded(info: models.CollectionInfo, where: str) -> Manifest:
    """The manifest of a collection.

    Args:
        info: What the engine says of the collection.
        where: The store, for messages.

    Raises:
        StoreFormatError: The collection is not one of ours, or from a newer release.
    """
    data = (info.config.metadata or {}).get(_KEY)
    vectors = info.config.params.vectors
    params = vectors.get(DENSE) if isinstance(vectors, dict) else None
    if not isinstance(data, dict) or params is None:
        raise StoreFormatError(
            f"{where} was not made by this package; hand in LlamaIndex's QdrantVectorStore over "
            "it, or use another collection"
        )
    if data.get("format") != FORMAT:
        raise StoreFormatError(
            f"{where} has format {data.get('format')!r}, this release reads format {FORMAT}; "
            "install the release that wrote it, or index the documents again into another "
            "collection"
        )
    distances: dict[models.Distance, Distance] = {
        theirs: ours for ours, theirs in DISTANCES.items()
    }
    return Manifest(
        Tokenizer.from_dict(data["tokenizer"]),
        distances[params.distance],
        params.size,
        data["average_length"],
        params=data["params"],
    )


def as_metadata(manifest: Manifest) -> dict[str, object]:
    """What is recorded with the collection; dimension and distance are in its own configuration."""
    return {
        _KEY: {
            "format": FORMAT,
            "tokenizer": manifest.tokenizer.to_dict(),
            "average_length": manifest.average_length,
            "params": dict(manifest.params),
        }
    }
