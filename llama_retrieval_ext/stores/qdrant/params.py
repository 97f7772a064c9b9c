"""`StoreParams`: settings handed on to the engine when a collection is made or searched."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from pydantic import ValidationError
from pydantic_core import to_jsonable_python
from qdrant_client import models

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.qdrant.manifest import BM25, DENSE

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
