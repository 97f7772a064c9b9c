"""`ForeignStore`: LlamaIndex's `QdrantVectorStore` as its user has set it up."""

from collections.abc import Mapping
from typing import Final

from llama_index.core.schema import BaseNode
from llama_index.vector_stores.qdrant import QdrantVectorStore
from llama_index.vector_stores.qdrant.utils import SparseEncoderCallable
from qdrant_client import models

from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.qdrant.connection import Connection
from llama_retrieval_ext.stores.qdrant.failures import CollectionMissingError
from llama_retrieval_ext.stores.qdrant.layout import Layout, layout_of
from llama_retrieval_ext.stores.qdrant.talk import Request, Talk, Work
from llama_retrieval_ext.stores.qdrant.versions import Version, asked_version

_OLD_SPARSE: Final = "text-sparse"
_CONTENT: Final = "_node_content"
_ID_FIRST: Final = '{"id_": "'


class ForeignStore:
    """What has to be known of such a store to ask its client directly.

    Args:
        store: LlamaIndex's store. Some of it has no public name.
    """

    def __init__(self, store: QdrantVectorStore) -> None:
        client, aclient = store._client, store._aclient  # noqa: SLF001 - LlamaIndex keeps them so
        self.where = f"the collection {store.collection_name!r} of LlamaIndex's QdrantVectorStore"
        self.connection = Connection(client, aclient, where=self.where)
        self.version = Version(0, 0)
        self._store = store
        self._layout: Layout | None = None

    @property
    def collection(self) -> str:
        """The collection's name."""
        return self._store.collection_name

    @property
    def has_keywords(self) -> bool:
        """Whether there is, or will be, what a text can be compared with, and what encodes it."""
        encodes = self._store.enable_hybrid and self._encoder is not None
        return encodes and (self._layout is None or self._layout.sparse is not None)

    @property
    def expected_distance(self) -> models.Distance:
        """How embeddings are compared, or will be in the collection that the store would make."""
        if self._layout is not None:
            return self._layout.distance
        config = self._store._dense_config  # noqa: SLF001 - it has no public name
        return models.Distance.COSINE if config is None else config.distance

    def layout(self) -> Talk[Layout | None]:
        """The collection's vectors; None while it does not exist.

        Raises:
            StoreUnavailableError: The server cannot be reached.
            StoreFormatError: It has not the vectors that the store is set up for.
        """
        if self._layout is None:
            self.version = yield from asked_version()
            try:
                info = yield Request("get_collection", {"collection_name": self.collection})
            except CollectionMissingError:
                return None
            self._layout = layout_of(
                info,
                dense=self._store.dense_vector_name,
                sparse=(self._store.sparse_vector_name, _OLD_SPARSE),
                where=self.where,
            )
        return self._layout

    def forget(self) -> None:
        """The collection does not exist any more."""
        self._layout = None

    def encoded(self, text: str) -> Talk[models.SparseVector]:
        """The sparse vector of a query, by the store's own function; it may take its time."""
        encode = self._encoder
        indices, values = (yield Work(lambda: encode([text]))) if encode else ([[]], [[]])
        return models.SparseVector(indices=list(indices[0]), values=list(values[0]))

    def read(self, point: models.ScoredPoint, score: float) -> Found:
        """The node of a point, made when it is looked at."""
        return Found.later(self._node_id(point), score, lambda: self._node(point))

    @property
    def _encoder(self) -> SparseEncoderCallable | None:
        # Without enable_hybrid it is not even None.
        return getattr(self._store, "_sparse_query_fn", None)

    def _node_id(self, point: models.ScoredPoint) -> str:
        # The point's id is the node's, but in Qdrant's spelling of UUIDs.
        payload: Mapping[str, object] = point.payload or {}
        content = payload.get(_CONTENT)
        if isinstance(content, str) and content.startswith(_ID_FIRST):
            name = content[len(_ID_FIRST) : content.index('"', len(_ID_FIRST))]
            if "\\" not in name:
                return name
        return self._node(point).node_id

    def _node(self, point: models.ScoredPoint) -> BaseNode:
        nodes = self._store.parse_to_query_result([point]).nodes or []
        return nodes[0]
