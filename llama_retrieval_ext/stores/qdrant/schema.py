"""A collection: its settings, vectors, indexes and recorded config, and its nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from llama_index.core.schema import BaseNode
from pydantic import ValidationError
from pydantic_core import to_jsonable_python
from qdrant_client import models

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.scope import KB_KEY, TENANT_KEY
from llama_retrieval_ext.stores.encoding.node_json import StoredNode, node_from_text
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.collection import Collection, CollectionMissingError
from llama_retrieval_ext.stores.engine.config import EngineParams, check_names
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.qdrant.client import MethodCall, QdrantConnection, scroll
from llama_retrieval_ext.stores.qdrant.filters import NOTHING
from llama_retrieval_ext.stores.qdrant_common.points import (
    ALLOWED_FIELD,
    DOC_FIELD,
    NODE,
    Field,
    PointBatch,
    QdrantConfig,
    fields_to_index,
    metadata_field,
    prepare_batches,
)
from llama_retrieval_ext.stores.qdrant_common.terms import Weighed, mean_lengths, terms_of

# A server accepts 32 MB per request; a node with 1,500 dimensions needs about 40 kB.
BATCH: Final = 128
_VECTOR: Final = "vector"
_SPARSE: Final = "sparse_vector"
_SEARCH: Final = "search"
# Arguments that this package sets.
_OWN: Final = {"vectors", "sparse_vectors", "metadata"}
_SET_BY_STORE: Final = {"size", "distance", "modifier"}
# Settings for the durability of writes.
_SAFETY: Final = ("replication_factor", "write_consistency_factor")
_COLLECTION: Final = frozenset(models.CreateCollection.model_fields) - _OWN


@dataclass(frozen=True, slots=True)
class StoreParams(EngineParams):
    """Settings for the creation and the search of a collection.

    Attributes:
        collection: Arguments of Qdrant's "create collection": ``hnsw_config``,
            ``quantization_config``, ``on_disk_payload``, ``shard_number``, ...
        vector: Settings of the dense vectors: ``on_disk``, ``datatype``, ...
        sparse_vector: Settings of the sparse vectors: ``index``.
        search: Settings of dense searches: ``hnsw_ef``, ``exact``, ``quantization``, ...
    """

    collection: models.CreateCollection
    vector: Mapping[str, object]
    sparse_vector: Mapping[str, object]
    search: models.SearchParams | None

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Self:
        """Return validated params, or raise `ConfigurationError`."""
        names = [*sorted(_COLLECTION), _VECTOR, _SPARSE, _SEARCH]
        check_names(settings, names, where="store_params of Qdrant")
        collection = {name: value for name, value in settings.items() if name in _COLLECTION}
        vector, sparse, search = (_part(settings, name) for name in (_VECTOR, _SPARSE, _SEARCH))
        try:
            searching = models.SearchParams.model_validate(search) if search else None
            checked = models.CreateCollection.model_validate(collection)
            params = cls(checked, vector, sparse, searching)
            params.creation(dimension=1, distance=models.Distance.COSINE)
        except (ValidationError, TypeError) as error:
            raise ConfigurationError(f"store_params is not what Qdrant takes: {error}") from error
        return params

    @property
    def recorded(self) -> Mapping[str, object]:
        """The settings for the creation of a collection, as JSON values."""
        collection = self.collection.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        parts = {_VECTOR: self.vector, _SPARSE: self.sparse_vector}
        vectors = {name: part for name, part in parts.items() if part}
        return {**collection, **to_jsonable_python(vectors, exclude_none=True)}

    @property
    def for_records(self) -> "StoreParams":
        """Params for a collection with the same replication and no vector search."""
        kept = {name: value for name, value in self.recorded.items() if name in _SAFETY}
        return StoreParams.of({**kept, "hnsw_config": {"m": 0}})

    def creation(self, *, dimension: int, distance: models.Distance) -> dict[str, object]:
        """Return the arguments that create a collection, without its name and metadata."""
        dense = models.VectorParams.model_validate(
            {**self.vector, "size": dimension, "distance": distance}
        )
        sparse = models.SparseVectorParams.model_validate(
            {**self.sparse_vector, "modifier": models.Modifier.IDF}
        )
        return {
            "vectors_config": {DENSE: dense},
            "sparse_vectors_config": {BM25: sparse},
            **{name: getattr(self.collection, name) for name in self.collection.model_fields_set},
        }


def _part(settings: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = settings.get(name) or {}
    if not isinstance(part, Mapping):
        raise ConfigurationError(f"store_params[{name!r}] is a dict, got {part!r}")
    for key in part.keys() & _SET_BY_STORE:
        raise ConfigurationError(
            f"store_params[{name!r}] has {key!r}, which the store sets itself; leave it out. The "
            "dimension is that of the nodes, the distance that of open_store(url, distance=...)"
        )
    return part


INDEXES: Final[
    Mapping[str, models.KeywordIndexParams | models.FloatIndexParams | models.IntegerIndexParams]
] = {
    "keyword": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD),
    # The engine groups the nodes of a tenant on disk and in its graph.
    "tenant": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    "number": models.FloatIndexParams(type=models.FloatIndexType.FLOAT),
    "principal": models.IntegerIndexParams(
        type=models.IntegerIndexType.INTEGER, lookup=True, range=False
    ),
}
# Created before the first node, because the engine groups only nodes added afterwards.
SCOPE_FIELDS: Final = (
    DOC_FIELD,
    metadata_field(TENANT_KEY, ""),
    metadata_field(KB_KEY, ""),
    ALLOWED_FIELD,
)


DENSE: Final = "dense"
BM25: Final = "bm25"
_KEY: Final = "llama_retrieval_ext"
DISTANCES: Final[Mapping[Distance, models.Distance]] = {
    "cosine": models.Distance.COSINE,
    "dot": models.Distance.DOT,
    "euclid": models.Distance.EUCLID,
}


# Our distance, for scores and ranges, by the engine's distance.
OUR_DISTANCES: Final[Mapping[models.Distance, Distance]] = {
    **{theirs: ours for ours, theirs in DISTANCES.items()},
    models.Distance.MANHATTAN: "euclid",
}


class QdrantCollection(Collection[QdrantConfig, QdrantConnection, StoreParams]):
    """A collection of Qdrant; ``indexed`` are the names of the fields with an index."""

    format = 5
    config_type = QdrantConfig
    llama_index_store = "QdrantVectorStore"
    indexed: set[str]

    def open(self) -> Steps[None]:
        """Check the server's version and, if it exists, the collection."""
        yield from self.connection.read_version()
        self.connection.version.check_server(self.where)
        yield from super().open()

    def request(self, method: str, **arguments: object) -> MethodCall:
        """Return a call of a client method for this collection."""
        return MethodCall(method, {"collection_name": self.name, **arguments})

    def recorded(self) -> Steps[QdrantConfig | None]:
        """Return the recorded config; None if the collection does not exist."""
        try:
            info = yield self.request("get_collection")
        except CollectionMissingError:
            return None
        self.indexed = {name.replace('"', "") for name in info.payload_schema or {}}
        record = (info.config.metadata or {}).get(_KEY)
        vectors = info.config.params.vectors
        params = vectors.get(DENSE) if isinstance(vectors, dict) else None
        if params is None or not isinstance(record, dict):
            return self.config_of(None)
        distance = OUR_DISTANCES[params.distance]
        return self.config_of({**record, "distance": distance, "dimension": params.size})

    def make(self, config: QdrantConfig) -> Steps[None]:
        """Create the collection."""
        dimension, distance = config.dimension or 1, DISTANCES[config.distance]
        creation = self.params.creation(dimension=dimension, distance=distance)
        yield self.request("create_collection", metadata={_KEY: self.record_of(config)}, **creation)

    def remove(self) -> Steps[None]:
        """Delete the collection."""
        yield self.request("delete_collection")

    def forget(self) -> None:
        """Reset the state to that of a collection that does not exist."""
        super().forget()
        self.indexed = set()

    def add(self, nodes: Sequence[BaseNode]) -> Steps[None]:
        """Add nodes, or replace nodes with the same ids."""
        # Looked up each time: another process may have indexed fields.
        config = (yield from self.look_up(again=True)) or self.config
        batches: list[PointBatch] = yield lambda: prepare_batches(
            nodes, size=BATCH, config=config, where=self.where
        )
        settings = {
            "average_lengths": mean_lengths([batch.terms for batch in batches]),
            "schema": config.schema,
        }
        for batch in batches:
            try:
                yield from self._upsert(batch, settings)
            except CollectionMissingError:  # deleted by another process
                self.forget()
                yield from self._upsert(batch, settings)

    def index_fields(self) -> Steps[int]:
        """Index the fields of the schema from the stored nodes; return their number."""
        config = replace(self.config, schema=self.schema)
        offset: models.ExtendedPointId | None = None
        count = 0
        while True:
            records, following = yield self.request(
                "scroll", limit=BATCH, offset=offset, with_payload=[NODE], with_vectors=False
            )
            nodes = [node_from_text((record.payload or {})[NODE]) for record in records]
            terms = terms_of(nodes, config.tokenizer, config.schema)
            means = {**mean_lengths([terms]), **config.average_lengths}  # of the first nodes
            config = replace(config, average_lengths=means)
            points = [
                models.PointVectors(id=record.id, vector={BM25: sparse_vector(weighed)})
                for record, weighed in zip(records, terms.weighed(means), strict=True)
            ]
            try:
                if points:
                    yield self.request("update_vectors", points=points, wait=True)
            except CollectionMissingError:  # a point was deleted meanwhile
                continue
            count, offset = count + len(points), following
            if offset is None:
                break
        yield self.request("update_collection", metadata={_KEY: self.record_of(config)})
        self.config = config
        return count

    def record_of(self, config: QdrantConfig) -> dict[str, Any]:
        """Return what is recorded with the collection, besides what the engine keeps."""
        record = super().record_of(config)
        del record["distance"], record["dimension"]
        return record

    def delete(self, matching: models.Filter | None) -> Steps[None]:
        """Delete the matching points; None deletes nothing."""
        selector = models.FilterSelector(filter=matching or NOTHING)
        yield self.request("delete", points_selector=selector, wait=True)

    def stored(
        self, matching: models.Filter | None, *, embeddings: bool
    ) -> Steps[Iterable[StoredNode]]:
        """Return the matching nodes as stored, with embeddings if asked."""
        parts = {"with_payload": [NODE], "with_vectors": [DENSE] if embeddings else False}
        records: list[Any] = yield from scroll(self.name, scroll_filter=matching, **parts)
        return [(point.payload[NODE], (point.vector or {}).get(DENSE)) for point in records]

    def count(self, matching: models.Filter | None) -> Steps[int]:
        """Return the number of matching nodes."""
        answer = yield self.request("count", count_filter=matching, exact=True)
        count: int = answer.count
        return count

    def _upsert(self, batch: PointBatch, settings: Mapping[str, Any]) -> Steps[None]:
        config = yield from self.create(len(batch.vectors[0]), **settings)
        yield from self._add_indexes(fields_to_index(batch.payloads, self.indexed))
        points = yield lambda: [
            models.PointStruct(
                id=str(ready.id),
                vector={DENSE: ready.vector, BM25: sparse_vector(ready.weighed)},
                payload=ready.payload,
            )
            for ready in batch.ready(config.average_lengths)
        ]
        yield self.request("upsert", points=points, wait=True)

    def _make(self, config: QdrantConfig) -> Steps[QdrantConfig]:
        made = yield from super()._make(config)
        yield from self._add_indexes(SCOPE_FIELDS)
        return made

    def _add_indexes(self, fields: Sequence[Field]) -> Steps[None]:
        """Create indexes for fields without an index."""
        for field in fields:
            if field.name in self.indexed:
                continue
            self.indexed.add(field.name)
            if not self.connection.is_local:  # local mode warns about each index
                yield self.request(
                    "create_payload_index", field_name=field.path, field_schema=INDEXES[field.kind]
                )


def sparse_vector(weighed: Weighed) -> models.SparseVector:
    """Return terms and weights as a vector of the client."""
    ids, weights = weighed
    return models.SparseVector(indices=ids, values=weights)
