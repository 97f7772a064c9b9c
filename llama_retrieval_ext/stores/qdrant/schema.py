"""The schema of a collection: its vectors, indexes, parameters and recorded config."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from pydantic import ValidationError
from pydantic_core import to_jsonable_python
from qdrant_client import models

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.config import format_error
from llama_retrieval_ext.stores.qdrant_common.config import QdrantConfig
from llama_retrieval_ext.stores.qdrant_common.points import DOC_FIELD, metadata_field

_VECTOR: Final = "vector"
_SPARSE: Final = "sparse_vector"
_SEARCH: Final = "search"
# Set by this package.
_OWN: Final = {"vectors", "sparse_vectors", "metadata"}
# Settings on which writes are safe.
_SAFETY: Final = ("replication_factor", "write_consistency_factor")
_COLLECTION: Final = frozenset(models.CreateCollection.model_fields) - _OWN


@dataclass(frozen=True, slots=True)
class StoreParams:
    """Settings for the engine when a collection is created or searched.

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
    def of(cls, settings: Mapping[str, object]) -> Self:
        """Return validated params, or raise `ConfigurationError`."""
        unknown = sorted(set(settings) - _COLLECTION - {_VECTOR, _SPARSE, _SEARCH})
        if unknown:
            raise ConfigurationError(
                f"store_params has {', '.join(unknown)}; Qdrant takes "
                f"{', '.join(sorted(_COLLECTION))}, and dicts as {_VECTOR}, {_SPARSE} and {_SEARCH}"
            )
        own = {name: value for name, value in settings.items() if name in _COLLECTION}
        vector, sparse, search = (_part(settings, name) for name in (_VECTOR, _SPARSE, _SEARCH))
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
        """The settings that count when the collection is created, as JSON has them."""
        checked = models.CreateCollection.model_validate(self.collection)
        own = checked.model_dump(mode="json", include=set(self.collection), exclude_none=True)
        parts = {_VECTOR: self.vector, _SPARSE: self.sparse_vector}
        return {**own, **{name: _as_json(part) for name, part in parts.items() if part}}

    @property
    def for_records(self) -> "StoreParams":
        """Params of a collection with the same replication that is never searched by vectors."""
        kept = {name: self.collection[name] for name in _SAFETY if name in self.collection}
        return StoreParams({**kept, "hnsw_config": {"m": 0}}, {}, {}, None)

    def creation(self, *, dimension: int, distance: models.Distance) -> dict[str, object]:
        """Return the arguments that create a collection, without its name and metadata."""
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


def _part(settings: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = settings.get(name) or {}
    if not isinstance(part, Mapping):
        raise ConfigurationError(f"store_params[{name!r}] is a dict, got {part!r}")
    return part


INDEXES: Final[Mapping[str, models.KeywordIndexParams | models.FloatIndexParams]] = {
    "keyword": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD),
    # The engine keeps the nodes of a tenant together, on disk and in its graph.
    "tenant": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    "number": models.FloatIndexParams(type=models.FloatIndexType.FLOAT),
}
# Made with the collection, before the first node: later the engine would not sort by them.
SCOPE_FIELDS: Final = (DOC_FIELD, metadata_field(TENANT_KEY, ""), metadata_field(KB_KEY, ""))


FORMAT: Final = 3
DENSE: Final = "dense"
BM25: Final = "bm25"
_KEY: Final = "llama_retrieval_ext"
DISTANCES: Final[Mapping[Distance, models.Distance]] = {
    "cosine": models.Distance.COSINE,
    "dot": models.Distance.DOT,
    "euclid": models.Distance.EUCLID,
}


# How our score functions and ranges call the engine's distances.
OUR_DISTANCES: Final[Mapping[models.Distance, Distance]] = {
    **{theirs: ours for ours, theirs in DISTANCES.items()},
    models.Distance.MANHATTAN: "euclid",
}


def recorded_config(info: models.CollectionInfo, where: str) -> QdrantConfig:
    """Return the config of a collection, or raise `StoreFormatError`."""
    data = (info.config.metadata or {}).get(_KEY)
    vectors = info.config.params.vectors
    params = vectors.get(DENSE) if isinstance(vectors, dict) else None
    if not isinstance(data, dict) or params is None:
        raise StoreFormatError(
            f"{where} was not made by this package; hand in LlamaIndex's QdrantVectorStore over "
            "it, or use another collection"
        )
    if data.get("format") != FORMAT:
        raise format_error(
            data, where=where, reads=f"format {FORMAT}", instead="another collection"
        )
    distance = OUR_DISTANCES[params.distance]
    return QdrantConfig.from_dict({**data, "distance": distance, "dimension": params.size})


def as_metadata(config: QdrantConfig) -> dict[str, object]:
    """Return what is recorded with a collection, beside its distance and dimension."""
    data = config.to_dict()
    del data["distance"], data["dimension"]
    return {_KEY: {"format": FORMAT, **data}}


@dataclass(frozen=True, slots=True)
class Layout:
    """The vectors of a collection.

    Attributes:
        dense: Name of the dense vectors; None for those without a name.
        dimension: How long they are.
        distance: How they are compared.
        sparse: Name of the sparse vectors; None where there are none.
        weighs_rarity: Whether the engine multiplies by the rarity of terms.
    """

    dense: str | None
    dimension: int
    distance: models.Distance
    sparse: str | None = None
    weighs_rarity: bool = False


def layout_of(
    info: models.CollectionInfo, *, dense: str, sparse: tuple[str, ...], where: str
) -> Layout:
    """Return the layout of a collection that exists."""
    vectors = info.config.params.vectors
    unnamed = isinstance(vectors, models.VectorParams)
    params = vectors if isinstance(vectors, models.VectorParams) else (vectors or {}).get(dense)
    if params is None or params.multivector_config is not None:
        raise StoreFormatError(
            f"{where} has no single dense vectors named {dense!r}; it has "
            f"{sorted(vectors) if isinstance(vectors, dict) else vectors}; name one of them"
        )
    known = info.config.params.sparse_vectors or {}
    name = next((name for name in sparse if name in known), None)
    rarity = name is not None and known[name].modifier == models.Modifier.IDF
    return Layout(None if unnamed else dense, params.size, params.distance, name, rarity)
