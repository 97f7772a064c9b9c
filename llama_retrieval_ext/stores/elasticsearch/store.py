"""`ElasticsearchVectorStore`: LlamaIndex vectors and keywords in an Elasticsearch index."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Self, TypeVar

from elasticsearch import Elasticsearch
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from pydantic import PrivateAttr

from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.stages.fusion import WeightedSum
from llama_retrieval_ext.stores.elasticsearch.client import ClientConfig, Requests, Transport
from llama_retrieval_ext.stores.elasticsearch.encoding import Json
from llama_retrieval_ext.stores.elasticsearch.filters import NOTHING, compile_target
from llama_retrieval_ext.stores.elasticsearch.nodes import (
    add_nodes,
    count_matching,
    delete_nodes,
    matching_nodes,
)
from llama_retrieval_ext.stores.elasticsearch.records import ElasticsearchRecords
from llama_retrieval_ext.stores.elasticsearch.schema import (
    ElasticsearchConfig,
    ElasticsearchConfigRequest,
    Index,
    IndexParams,
)
from llama_retrieval_ext.stores.elasticsearch.search import WINDOW, ElasticsearchSearch
from llama_retrieval_ext.stores.elasticsearch.url import parse_address
from llama_retrieval_ext.stores.encoding.vectors import BM25_RANGE, SCORE_RANGES, Distance
from llama_retrieval_ext.stores.engine.backend import Backend, EngineFeatures
from llama_retrieval_ext.stores.engine.config import params_of
from llama_retrieval_ext.stores.engine.pushdown import NativeFusion
from llama_retrieval_ext.stores.engine.query_modes import Target
from llama_retrieval_ext.stores.engine.records import RecordStore
from llama_retrieval_ext.stores.engine.vector_store import EngineStore, StoreBackend
from llama_retrieval_ext.text.tokenizer import Tokenizer

T = TypeVar("T")

# The engine adds scores, and has cosines as (1 + cosine) / 2. Other similarities bend the scale.
_FUSIONS: Final = (
    NativeFusion(
        kind=WeightedSum,
        scales=(Normalisation.COSINE, Normalisation.NONE),
        whole_keyword_leg=True,
    ),
)


class ElasticsearchVectorStore(EngineStore):
    """A vector store in an index of Elasticsearch 8, with keyword search and exact filters.

    LlamaIndex's own ``ElasticsearchStore`` patches asyncio when it is made, runs on one event loop
    only, and knows one filter operator; this one stores the same nodes in another form. The index
    is created with the first nodes. Threads and event loops may share a store.

    Similarities are cosine, inner product or negative Euclidean distance, or BM25 for keywords
    (k1 = 1.2, b = 0.75; lengths of texts are the engine's, which rounds those above 40 terms): raw,
    and higher is better. Zeros have no cosine: with that distance, nodes with such an embedding are
    found by keywords and filters alone.

    Args:
        index: The index's name.
        connection: The server.
        tokenizer: Cuts text for keyword search; None for the recorded one, or `Tokenizer` where the
            index is new.
        dim: Dimension of the embeddings; None for that of the first that are added.
        distance: ``cosine``, ``dot`` or ``euclid``; None for the recorded one, or cosine.
        params: How the index is created.

    Raises:
        StoreFormatError: The index was not made by this package, or by a newer release of it.
        StoreUnavailableError: The server cannot be reached, or refuses the credentials.
        ConfigurationError: The index has another tokenizer, distance or setting.
        DimensionMismatchError: The index has another dimension.
    """

    title: ClassVar[str] = "Elasticsearch"

    index: str = ""

    _index: Index = PrivateAttr()
    _transport: Transport = PrivateAttr()
    _closer: "weakref.finalize[..., ElasticsearchVectorStore]" = PrivateAttr()

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
        self.index = index
        self._index = Index(index, request, params)
        self._transport = Transport(connection)
        # Also runs when the store is garbage, and at the interpreter's exit.
        self._closer = weakref.finalize(self, self._transport.close)
        try:
            self._transport.run(self._index.look_up())
        except BaseException:
            self.close()
            raise

    @property
    def client(self) -> Elasticsearch:
        """The client for threads."""
        return self._transport.client

    @property
    def transport(self) -> Transport:
        """Sends requests to the engine."""
        return self._transport

    @property
    def searcher(self) -> ElasticsearchSearch:
        """The engine's searches."""
        return ElasticsearchSearch(self._index)

    def call(self, steps: Callable[[], Requests[T]]) -> Call[T]:
        """Return the call that carries out requests."""
        return self._transport.call(steps)

    def beside(self, suffix: str) -> Self:
        """Return a store of records that are read by id, in its own index, over these clients.

        Args:
            suffix: What its index's name has more than this one's.

        Raises:
            StoreFormatError: That index was not made by this package.
            StoreUnavailableError: The server cannot be reached.
        """
        other = self.model_copy()  # closing either closes both
        other.index = f"{self.index}{suffix}"
        params = IndexParams(
            number_of_shards=1,
            number_of_replicas=self._index.params.number_of_replicas,
            index_options={"type": "flat"},
        )
        index = Index(other.index, ElasticsearchConfigRequest(), params)
        self._transport.run(index.look_up())
        other._index = index  # noqa: SLF001 - of its own class
        return other

    def records(
        self,
        *,
        is_shared: bool,  # noqa: ARG002 - the engine compares and sets in any case
        clock: Callable[[], float],  # noqa: ARG002
        patience_s: float,  # noqa: ARG002
    ) -> RecordStore:
        """Return the index as a store of records; see `CollectionStore.records`."""
        return ElasticsearchRecords(self._index, self._transport)

    def close(self) -> None:
        """Close the connections; the index stays."""
        self._closer()

    @property
    def _config(self) -> ElasticsearchConfig:
        return self._index.config

    def _location(self) -> Mapping[str, object]:
        return {
            "url": self._transport.config.where,
            "index": self.index,
            "analyzer": self._index.config.analyzer or "whitespace",
        }

    def _compile_target(self, target: Target) -> Json | None:
        return compile_target(target)

    def _add(self, nodes: Sequence[BaseNode]) -> Call[None]:
        return self.call(lambda: add_nodes(self._index, nodes))

    def _delete(self, target: Target) -> Call[None]:
        query = compile_target(target) or NOTHING
        return self.call(lambda: delete_nodes(self._index, query))

    def _read(self, target: Target) -> Call[list[BaseNode]]:
        query = compile_target(target)
        return self.call(lambda: matching_nodes(self._index, query))

    def _count(self, target: Target) -> Call[int]:
        query = compile_target(target)
        return self.call(lambda: count_matching(self._index, query))

    def _clear(self) -> Call[None]:
        return self.call(self._index.drop)


class ElasticsearchBackend(StoreBackend[ElasticsearchVectorStore]):
    """Vector and keyword search of an `ElasticsearchVectorStore`, in one request.

    The rarity of a term is measured on the whole index, not on what a scope can see: a tenant's
    keyword scores show how common its terms are among all tenants, though never a text or an id.
    If that is too much, give each tenant an index.

    A fusion in the engine counts the keyword score of every node, not only of the candidates.
    """

    engine = "elasticsearch"

    @property
    def features(self) -> EngineFeatures:
        """Everything but MMR."""
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
    """Return the backend for a store in Elasticsearch, ours or LlamaIndex's; None for any other."""
    if isinstance(store, ElasticsearchVectorStore):
        return ElasticsearchBackend(store)
    if type(store).__module__.startswith("llama_index.vector_stores.elasticsearch"):
        # The import is slow; the owner of such a store has made it already.
        from llama_retrieval_ext.stores.elasticsearch.llama_index_store import (  # noqa: PLC0415
            backend_of_llama_index,
        )

        return backend_of_llama_index(store)
    return None
