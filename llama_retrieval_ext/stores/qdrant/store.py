"""`QdrantStore`: LlamaIndex vectors and keywords in a collection of a Qdrant."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Self, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import FilterOperator, VectorStoreQuery
from pydantic import PrivateAttr
from qdrant_client import QdrantClient

from llama_retrieval_ext.errors import StoreClosedError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    EngineFeatures,
    EngineQuery,
    ScoreRange,
    Search,
)
from llama_retrieval_ext.stores.engine.engine_backend import EngineBackend
from llama_retrieval_ext.stores.engine.query_modes import Answer, Modes
from llama_retrieval_ext.stores.engine.records import IntentRecords, RecordStore
from llama_retrieval_ext.stores.engine.vector_store import EngineStore, Options, Target
from llama_retrieval_ext.stores.qdrant.client import Connection, Talk, connected
from llama_retrieval_ext.stores.qdrant.collection import Collection
from llama_retrieval_ext.stores.qdrant.distances import range_of
from llama_retrieval_ext.stores.qdrant.nodes import added, count_matching, deleted, matching_nodes
from llama_retrieval_ext.stores.qdrant.params import DISTANCES, StoreParams
from llama_retrieval_ext.stores.qdrant.search import TalkingSearcher
from llama_retrieval_ext.stores.qdrant.url import parsed_address
from llama_retrieval_ext.stores.qdrant_common.config import Manifest, Settings, fusions_of
from llama_retrieval_ext.stores.qdrant_common.filters import (
    NOTHING,
    Clause,
    Wanted,
    clause_for,
    wanted,
)
from llama_retrieval_ext.text.tokenizer import Tokenizer

T = TypeVar("T")


class QdrantStore(EngineStore):
    """A vector store in a collection of its own, with keyword search and exact filters.

    What it stores is laid out like that of `EmbeddedVectorStore`, not like that of LlamaIndex's
    `QdrantVectorStore`: there, filters cannot be exact, and ids have to be UUIDs. The collection is
    made when the first nodes are added.

    Similarities are cosine, inner product or negative Euclidean distance, or BM25 for keywords:
    higher is better, whatever the mode. BM25 has k1 = 1.2 and b = 0.75; the mean length of a text
    is measured on the first nodes that are added, with ten texts of 100 terms beside so that a few
    short ones do not have the say, and stays. A server that has grown a graph over
    the vectors (HNSW) may miss some of the nearest; ``store_params={"search": {"exact": True}}``
    has it compare them all.

    Args:
        url: ``qdrant://host:port/collection``, ``qdrants://`` for TLS, ``qdrant:DIRECTORY`` or
            ``qdrant::memory:`` for Qdrant's local mode, which is for tests and a few thousand
            nodes. The API key is named, not written: ``?api_key_env=NAME``.
        tokenizer: Cuts text for keyword search; None for the recorded one, or `Tokenizer` where
            there is none.
        dim: Dimension of the embeddings; None for that of the first that are added.
        distance: ``cosine``, ``dot`` or ``euclid``; None for the recorded one, or cosine.
        store_params: For the engine when it makes the collection: ``hnsw_config``,
            ``quantization_config``, ``shard_number``, ``on_disk_payload`` and so on, and dicts as
            ``vector`` (``on_disk``, ``datatype``), ``sparse_vector`` and ``search`` (``hnsw_ef``,
            ``exact``). Local mode has no use for most. Of a collection that is there, all but
            ``search`` must be what it was made with, or be left out.

    Raises:
        ConfigurationError: The URL or a setting is wrong, the environment variable is not set, or
            the collection has another tokenizer, distance or setting.
        DimensionMismatchError: The collection has another dimension.
        StoreFormatError: The collection was not made by this package, or by a newer release.
        StoreUnavailableError: The server cannot be reached or refuses the key, or another process
            has the directory open.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> with QdrantStore("qdrant::memory:") as store:
        ...     store.add([TextNode(id_="n1", text="25 days of leave", embedding=[1.0, 0.0])])
        ...     store.query(VectorStoreQuery(query_embedding=[0.6, 0.8])).ids
        ['n1']
        ['n1']

    """

    place: str = ""

    _connection: Connection = PrivateAttr()
    _collection: Collection = PrivateAttr()
    _client: QdrantClient = PrivateAttr()
    _closer: "weakref.finalize[..., QdrantStore]" = PrivateAttr()

    def __init__(
        self,
        url: str,
        *,
        tokenizer: Tokenizer | None = None,
        dim: int | None = None,
        distance: Distance | None = None,
        store_params: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(stores_text=True)
        address = parsed_address(url)
        params = StoreParams.of(store_params or {})
        settings = Settings(tokenizer, distance, dim, params.recorded)
        self.place = str(address)
        self._connection, self._client, close = connected(address)
        # Also when the store is garbage, and at the interpreter's exit.
        self._closer = weakref.finalize(self, close)
        self._collection = Collection(
            address.collection, self._connection, settings=settings, params=params
        )
        try:
            self._connection.ask(self._collection.opened())
        except BaseException:
            self.close()
            raise

    @property
    def client(self) -> QdrantClient:
        """Qdrant's client."""
        return self._client

    @property
    def connection(self) -> Connection:
        """Carries out what the backend asks.

        Raises:
            StoreClosedError: The store was closed.
        """
        if not self._closer.alive:
            raise StoreClosedError(f"{self.place} was closed; open it again")
        return self._connection

    @property
    def searcher(self) -> TalkingSearcher:
        """What the backend asks."""
        return TalkingSearcher(self._collection)

    @property
    def operators(self) -> frozenset[FilterOperator]:
        """The filter operators that the server's version evaluates."""
        return self._collection.version.operators

    def beside(self, suffix: str) -> Self:
        """A store of records that are read by id, in a collection of its own, over this client.

        Args:
            suffix: What its collection's name has more than this one's.

        Raises:
            StoreFormatError: That collection was not made by this package.
            StoreUnavailableError: The server cannot be reached.
        """
        name = f"{self._collection.name}{suffix}"
        place = self.place.replace(repr(self._collection.name), repr(name), 1)
        connection = self.connection.named(place)
        params = self._collection.params.for_records
        collection = Collection(name, connection, settings=Settings(), params=params)
        connection.ask(collection.opened())
        other = self.model_copy(update={"place": place})  # closing either closes both
        other._connection, other._collection = connection, collection  # noqa: SLF001 - own class
        return other

    def records(
        self, *, is_shared: bool, clock: Callable[[], float], patience_s: float
    ) -> RecordStore:
        """Return the collection as a store of records; see `CollectionStore.records`."""
        return IntentRecords(self, is_shared=is_shared, clock=clock, patience_s=patience_s)

    def close(self) -> None:
        """Close the connection."""
        self._closer()

    @property
    def _setup(self) -> Manifest:
        return self._collection.manifest

    def _place(self) -> Mapping[str, object]:
        version = self._collection.version
        return {
            "place": self.place,
            "collection": self._collection.name,
            "version": f"{version.major}.{version.minor}",
            "rarity_in_scope": version.measures_rarity_in_scope,
        }

    def _added(self, nodes: Sequence[BaseNode]) -> Call[None]:
        return self.connection.call(lambda: added(self._collection, nodes))

    def _deleted(self, target: Target) -> Call[None]:
        clause = self._clause(target) or NOTHING
        return self._call(lambda: deleted(self._collection, clause), empty=None)

    def _read(self, target: Target) -> Call[list[BaseNode]]:
        clause, name = self._clause(target), self._collection.name
        nothing: list[BaseNode] = []
        return self._call(
            lambda: matching_nodes(name, clause, order=target.node_ids), empty=nothing
        )

    def _counted(self, target: Target) -> Call[int]:
        clause, name = self._clause(target), self._collection.name
        return self._call(lambda: count_matching(name, clause), empty=0)

    def _cleared(self) -> Call[None]:
        return self.connection.call(self._collection.dropped)

    def _found(self, query: VectorStoreQuery, options: Options) -> Call[list[Candidate]]:
        modes = Modes(
            engine="this store",
            searcher=self.searcher,
            compiled=clause_for,
            wanted=Wanted,
            call=self.connection.call,
        )
        return modes.found(query, options)

    def _call(self, talk: Callable[[], Talk[T]], *, empty: T) -> Call[T]:
        return self.connection.call(lambda: self._collection.if_there(talk, empty=empty))

    def _clause(self, target: Target) -> Clause | None:
        clause = clause_for(target)
        if clause is not None:
            self._collection.version.check(clause)
        return clause


class QdrantBackend(EngineBackend[QdrantStore, Wanted]):
    """Asks a `QdrantStore` for nearest nodes, for keywords, or for both at once.

    Servers before 1.19 take the rarity of terms over the whole collection, not over the scope.

    Args:
        store: The store; whoever opened it closes it.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.

    Examples:
        >>> with QdrantStore("qdrant::memory:") as store:
        ...     QdrantBackend(store).features.dense
        ScoreRange(kind='cosine', low=-1.0, high=1.0)

    """

    engine = "qdrant"

    @property
    def features(self) -> EngineFeatures:
        """Everything; async only on a server, as local mode computes in this process."""
        dense = range_of(DISTANCES[self.store.distance])
        return EngineFeatures(
            dense=dense,
            keyword=ScoreRange("bm25", 0.0, None),
            one_round_trip=True,
            fusions=fusions_of(dense.kind) if self.store.searcher.fuses else (),
            # Local mode would copy every payload for it.
            grouping=not self.store.connection.is_local,
            mmr=self._has_mmr,
            real_async=self.store.connection.real_async,
            operators=self.store.operators,
        )

    def grouped(self, asked: EngineQuery, size: int) -> Call[list[Candidate]]:
        """The best nodes of the best documents, best first.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition; nothing was sent.
        """
        wanted, searcher = self._wanted(asked.search), self._searcher
        return self._call(lambda: searcher.grouped(asked.sought, wanted, size))

    @property
    def _searcher(self) -> TalkingSearcher:
        return self.store.searcher

    def _wanted(self, search: Search) -> Wanted:
        return wanted(search)

    def _call(self, ask: Callable[[], Answer]) -> Call[Answer]:
        return self.store.connection.call(ask)
