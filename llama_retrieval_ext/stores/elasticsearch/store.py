"""`ElasticsearchVectorStore`: vectors and keywords of LlamaIndex nodes in an index."""

from collections.abc import Mapping
from typing import ClassVar, Final

from elasticsearch import Elasticsearch
from pydantic import PrivateAttr

from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.stages.fusion import WeightedSum
from llama_retrieval_ext.stores.elasticsearch.client import FORM, Json, Transport
from llama_retrieval_ext.stores.elasticsearch.filters import compile_target
from llama_retrieval_ext.stores.elasticsearch.nodes import ElasticsearchNodes
from llama_retrieval_ext.stores.elasticsearch.params import IndexParams
from llama_retrieval_ext.stores.elasticsearch.records import ElasticsearchRecords
from llama_retrieval_ext.stores.elasticsearch.schema import Index
from llama_retrieval_ext.stores.elasticsearch.search import ElasticsearchSearch
from llama_retrieval_ext.stores.encoding.vectors import BM25_RANGE, SCORE_RANGES
from llama_retrieval_ext.stores.engine.backend import EngineFeatures
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore
from llama_retrieval_ext.stores.engine.pushdown import NativeFusion
from llama_retrieval_ext.stores.engine.query_modes import Target
from llama_retrieval_ext.stores.engine.records import RecordStore

# The engine adds scores; a cosine counts as (1 + cosine) / 2. Other similarities are not linear.
_FUSIONS: Final = (
    NativeFusion(
        kind=WeightedSum, scales=(Normalisation.COSINE, Normalisation.NONE), whole_keyword_leg=True
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
    an embedding. The rarity of a term is that in the whole index, not in the scope: a tenant's
    keyword scores reveal how common its terms are among all tenants, but never a text or an id. To
    avoid this, use one index per tenant. Fusion in the engine uses the keyword score of every node,
    not only of the candidates.

    Args:
        url: ``elasticsearch://host:9200/index``.
        **options: Arguments of `CollectionStore`; ``store_params`` are the fields of
            `IndexParams`.
    """

    engine: ClassVar[str] = "elasticsearch"
    title: ClassVar[str] = "Elasticsearch"
    params_type = IndexParams
    connection_type = Transport
    collection_type = Index
    nodes_type = ElasticsearchNodes
    search_type = ElasticsearchSearch
    parse_address = staticmethod(FORM.parse)

    _collection: Index = PrivateAttr()

    @property
    def features(self) -> EngineFeatures:
        """All features except MMR."""
        return EngineFeatures(
            dense=SCORE_RANGES[self.distance],
            keyword=BM25_RANGE,
            one_round_trip=True,
            most_hits=self._collection.window,
            fusions=_FUSIONS if self.distance == "cosine" else (),
            real_async=True,
        )

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

    def records(self, **_: object) -> RecordStore:
        """Return a record store over this index, which compares and sets in any case."""
        return ElasticsearchRecords(self._collection)

    def _location(self) -> Mapping[str, object]:
        return {
            "url": self.transport.where,
            "index": self.index,
            "analyzer": self._collection.config.params.get("analyzer", "whitespace"),
        }

    def _compile_target(self, target: Target) -> Json | None:
        return compile_target(target)


open_elasticsearch: Final = ElasticsearchVectorStore


def is_new(url: str) -> bool:  # noqa: ARG001 - the engines' common signature
    """Return False: opening never creates an index."""
    return False
