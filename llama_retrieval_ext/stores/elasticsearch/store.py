"""`ElasticsearchVectorStore`: vectors and keywords of LlamaIndex nodes in an index."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from elasticsearch import Elasticsearch
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from pydantic import PrivateAttr

from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.stages.fusion import WeightedSum
from llama_retrieval_ext.stores.elasticsearch.client import ClientConfig, Transport
from llama_retrieval_ext.stores.elasticsearch.encoding import Json
from llama_retrieval_ext.stores.elasticsearch.filters import compile_target
from llama_retrieval_ext.stores.elasticsearch.nodes import ElasticsearchNodes
from llama_retrieval_ext.stores.elasticsearch.records import ElasticsearchRecords
from llama_retrieval_ext.stores.elasticsearch.schema import (
    ElasticsearchConfigRequest,
    Index,
    IndexParams,
)
from llama_retrieval_ext.stores.elasticsearch.search import WINDOW, ElasticsearchSearch
from llama_retrieval_ext.stores.elasticsearch.url import parse_address
from llama_retrieval_ext.stores.encoding.vectors import BM25_RANGE, SCORE_RANGES, Distance
from llama_retrieval_ext.stores.engine.backend import Backend, EngineFeatures
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore
from llama_retrieval_ext.stores.engine.config import params_of
from llama_retrieval_ext.stores.engine.pushdown import NativeFusion
from llama_retrieval_ext.stores.engine.query_modes import Target
from llama_retrieval_ext.stores.engine.records import RecordStore
from llama_retrieval_ext.stores.engine.vector_store import StoreBackend
from llama_retrieval_ext.text.tokenizer import Tokenizer

# The engine adds scores; a cosine counts as (1 + cosine) / 2. Other similarities are not linear.
_FUSIONS: Final = (
    NativeFusion(
        kind=WeightedSum,
        scales=(Normalisation.COSINE, Normalisation.NONE),
        whole_keyword_leg=True,
    ),
)


class ElasticsearchVectorStore(CollectionStore):
    """A vector store in an index of Elasticsearch 8, with keyword search and exact filters.

    LlamaIndex's own ``ElasticsearchStore`` patches asyncio when it is created, runs on one event
    loop only, and has one filter operator; this store keeps the same nodes in another form. The
    index is created with the first nodes. Threads and event loops may share a store.

    Similarities are cosine, inner product or negative Euclidean distance, or BM25 for keywords
    (k1 = 1.2, b = 0.75; the engine rounds lengths of texts above 40 terms): raw, and higher is
    better. Zeros have no cosine: with that distance, only keywords and filters find nodes with such
    an embedding.

    Args:
        index: The index's name.
        connection: The server.
        tokenizer: Cuts text for keyword search; None for the recorded one, or `Tokenizer` where the
            index is new.
        dim: Dimension of the embeddings; None for that of the first nodes added.
        distance: ``cosine``, ``dot`` or ``euclid``; None for the recorded one, or cosine.
        params: Settings of the index.

    Raises:
        StoreFormatError: The index is not of this package, or was created by a newer release.
        StoreUnavailableError: The server cannot be reached, or refuses the credentials.
        ConfigurationError: The index has another tokenizer, distance or setting.
        DimensionMismatchError: The index has another dimension.
    """

    title: ClassVar[str] = "Elasticsearch"

    _collection: Index = PrivateAttr()

    def __init__(
        self,
        index: str,
        *,
        connection: ClientConfig,
        tokenizer: Tokenizer | None = None,
        dim: int | None = None,
        distance: Distance | None = None,
        params: IndexParams | None = None,
    ) -> None:
        super().__init__(stores_text=True)
        params = params or IndexParams()
        request = ElasticsearchConfigRequest(
            tokenizer, distance, dim, params.recorded, params.analyzer, params.routing
        )
        self._open(Index(index, Transport(connection), request=request, params=params))

    @property
    def index(self) -> str:
        """Name of the index."""
        return self._collection.name

    @property
    def client(self) -> Elasticsearch:
        """The client for threads."""
        return self.transport.client

    @property
    def transport(self) -> Transport:
        """The transport that sends requests."""
        return self._collection.connection

    @property
    def searcher(self) -> ElasticsearchSearch:
        """The engine's searches."""
        return ElasticsearchSearch(self._collection)

    def records(
        self,
        *,
        is_shared: bool,  # noqa: ARG002 - the engine compares and sets in any case
        clock: Callable[[], float],  # noqa: ARG002
        patience_s: float,  # noqa: ARG002
    ) -> RecordStore:
        """Return the index as a store of records; see `CollectionStore`."""
        return ElasticsearchRecords(self._collection)

    def _nodes_of(self, collection: Index) -> ElasticsearchNodes:
        return ElasticsearchNodes(collection)

    def _location(self) -> Mapping[str, object]:
        return {
            "url": self.transport.where,
            "index": self.index,
            "analyzer": self._collection.config.analyzer or "whitespace",
        }

    def _compile_target(self, target: Target) -> Json | None:
        return compile_target(target)


class ElasticsearchBackend(StoreBackend[ElasticsearchVectorStore]):
    """Vector and keyword search of an `ElasticsearchVectorStore`, in one request.

    The rarity of a term is that in the whole index, not in the scope: a tenant's keyword scores
    reveal how common its terms are among all tenants, but never a text or an id. To avoid this,
    use one index per tenant.

    Fusion in the engine uses the keyword score of every node, not only of the candidates.
    """

    engine = "elasticsearch"

    @property
    def features(self) -> EngineFeatures:
        """All features except MMR."""
        return EngineFeatures(
            dense=SCORE_RANGES[self.store.distance],
            keyword=BM25_RANGE,
            one_round_trip=True,
            most_hits=WINDOW,
            fusions=_FUSIONS if self.store.distance == "cosine" else (),
            real_async=True,
        )


def open_elasticsearch(
    url: str,
    *,
    tokenizer: Tokenizer | None = None,
    dim: int | None = None,
    distance: Distance | None = None,
    store_params: Mapping[str, Any] | None = None,
) -> ElasticsearchVectorStore:
    """Open the store that a URL names."""
    address = parse_address(url)
    return ElasticsearchVectorStore(
        address.index,
        connection=ClientConfig.of_address(address),
        tokenizer=tokenizer,
        dim=dim,
        distance=distance,
        params=params_of(IndexParams, store_params or {}, engine="Elasticsearch"),
    )


def is_new(url: str) -> bool:  # noqa: ARG001 - the engines' common signature
    """Return False: opening never creates an index."""
    return False


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """Return the backend of one of this module's stores; None for others."""
    return ElasticsearchBackend(store) if isinstance(store, ElasticsearchVectorStore) else None
