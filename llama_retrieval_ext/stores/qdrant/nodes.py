"""`QdrantNodes`: addition, reading, counting and deletion of nodes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from llama_index.core.schema import BaseNode
from qdrant_client import models

from llama_retrieval_ext.stores.encoding.node_json import node_from_text
from llama_retrieval_ext.stores.engine.collection import CollectionMissingError, Nodes
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.qdrant.filters import as_filter
from llama_retrieval_ext.stores.qdrant.schema import BM25, DENSE, QdrantCollection
from llama_retrieval_ext.stores.qdrant_common.filters import NOTHING, Clause
from llama_retrieval_ext.stores.qdrant_common.points import (
    NODE,
    PointBatch,
    fields_to_index,
    prepare_batches,
)
from llama_retrieval_ext.stores.qdrant_common.terms import Weighed, mean_lengths

# A server accepts 32 MB per request; a node with 1,500 dimensions needs about 40 kB.
BATCH: Final = 128


_PAGE: Final = 256


class QdrantNodes(Nodes[Clause | None]):
    """The nodes of a collection."""

    _collection: QdrantCollection

    def add(self, nodes: Sequence[BaseNode]) -> Steps[None]:
        """Add nodes, or replace nodes with the same ids."""
        collection = self._collection
        config = (yield from collection.look_up()) or collection.config
        batches: list[PointBatch] = yield lambda: prepare_batches(
            nodes, size=BATCH, config=config, where=collection.where
        )
        settings = {
            "average_lengths": mean_lengths([batch.terms for batch in batches]),
            "schema": config.schema,
        }
        for batch in batches:
            try:
                yield from self._upsert(batch, settings)
            except CollectionMissingError:  # deleted by another process
                collection.forget()
                yield from self._upsert(batch, settings)

    def delete(self, matching: Clause | None) -> Steps[None]:
        """Delete the matching points; None deletes nothing."""
        selector = models.FilterSelector(filter=as_filter(matching or NOTHING))
        yield self._collection.request("delete", points_selector=selector, wait=True)

    def read(self, matching: Clause | None) -> Steps[list[BaseNode]]:
        """Return the matching nodes with embeddings."""
        nodes: list[BaseNode] = []
        offset: models.ExtendedPointId | None = None
        while True:
            records, offset = yield self._collection.request(
                "scroll",
                scroll_filter=None if matching is None else as_filter(matching),
                limit=_PAGE,
                offset=offset,
                with_payload=[NODE],
                with_vectors=[DENSE],
            )
            nodes += map(_node, records)
            if offset is None:
                return nodes

    def count(self, matching: Clause | None) -> Steps[int]:
        """Return the number of matching nodes."""
        filter_ = None if matching is None else as_filter(matching)
        answer = yield self._collection.request("count", count_filter=filter_, exact=True)
        count: int = answer.count
        return count

    def _upsert(self, batch: PointBatch, settings: Mapping[str, Any]) -> Steps[None]:
        collection, dimension = self._collection, len(batch.vectors[0])
        config = yield from collection.create(dimension, **settings)
        yield from collection.add_indexes(fields_to_index(batch.payloads, collection.indexed))
        points = yield lambda: _points(batch, config.average_lengths)
        yield self._collection.request("upsert", points=points, wait=True)


def _points(batch: PointBatch, average_lengths: Mapping[str, float]) -> list[models.PointStruct]:
    return [
        models.PointStruct(
            id=str(ready.id),
            vector={DENSE: ready.vector, BM25: _sparse_vector(ready.weighed)},
            payload=ready.payload,
        )
        for ready in batch.ready(average_lengths)
    ]


def _sparse_vector(weighed: Weighed) -> models.SparseVector:
    ids, weights = weighed
    return models.SparseVector(indices=ids, values=weights)


def _node(record: models.Record) -> BaseNode:
    node = node_from_text((record.payload or {})[NODE])
    vectors = record.vector
    vector = vectors.get(DENSE) if isinstance(vectors, dict) else None
    if isinstance(vector, list):
        node.embedding = [float(number) for number in vector if isinstance(number, int | float)]
    return node
