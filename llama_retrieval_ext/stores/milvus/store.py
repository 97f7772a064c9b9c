"""`MilvusStore`: LlamaIndex vectors and keywords in a collection of Milvus or Milvus Lite."""

from collections.abc import Mapping, Sequence
from typing import Final, Self

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import VectorStoreQuery
from pydantic import PrivateAttr
from pymilvus import MilvusClient

from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    EngineFeatures,
    ScoreRange,
    Search,
)
from llama_retrieval_ext.stores.engine.old_searcher import EngineBackend, Modes
from llama_retrieval_ext.stores.engine.vector_store import EngineStore, Options, Target
from llama_retrieval_ext.stores.milvus.client import Connection
from llama_retrieval_ext.stores.milvus.collection import Collection
from llama_retrieval_ext.stores.milvus.encoding import safe_text
from llama_retrieval_ext.stores.milvus.filters import Expression, all_of, compiled, one_of
from llama_retrieval_ext.stores.milvus.nodes import Writer, count_matching, matching_nodes
from llama_retrieval_ext.stores.milvus.schema import (
    DOC,
    ID,
    Manifest,
    MilvusParams,
    RequestedConfig,
)
from llama_retrieval_ext.stores.milvus.search import MOST, Searcher, Wanted, fusions_of
from llama_retrieval_ext.stores.milvus.url import Address, checked_name
from llama_retrieval_ext.text.tokenizer import Tokenizer


class MilvusStore(EngineStore):
    """A vector store in a collection of Milvus, with keyword search and exact filters.

    LlamaIndex's own ``MilvusVectorStore`` turns some filters into others and lets values break out
    of them; this one keeps the same nodes in another form. The collection is made when the first
    nodes are added, and loaded whenever it is not. Threads may share a store.

    Similarities are cosine, inner product or negative Euclidean distance, or BM25 for keywords:
    raw, and higher is better. BM25 is Milvus's own function (k1 = 1.2, b = 0.75) over all nodes of
    the collection, whatever the scope; Milvus Lite has k1 = 1.5, and takes the rarity of terms from
    each of its data files alone. A node may have 65,535 bytes of text and metadata, and as many of
    terms (some 7,000).

    Args:
        address: Where the collection is; `open_milvus` makes one of a URL.
        tokenizer: Cuts text for keyword search; None for the recorded one, or `Tokenizer` where the
            collection is new.
        dim: Dimension of the embeddings; None for that of the first that are added.
        distance: ``cosine``, ``dot`` or ``euclid``; None for the recorded one, or cosine.
        params: How the collection is made and searched.

    Raises:
        StoreFormatError: The collection was not made by this package, or by a newer release of it.
        StoreUnavailableError: Milvus cannot be reached, refuses the credentials, or another process
            has the file open.
        ConfigurationError: The collection has another tokenizer, distance or setting.
        DimensionMismatchError: It has another dimension.
    """

    _connection: Connection = PrivateAttr()
    _collection: Collection = PrivateAttr()
    _writer: Writer = PrivateAttr()

    def __init__(
        self,
        address: Address,
        *,
        tokenizer: Tokenizer | None = None,
        dim: int | None = None,
        distance: Distance | None = None,
        params: MilvusParams | None = None,
    ) -> None:
        super().__init__(stores_text=True)
        params = params or MilvusParams()
        asked = RequestedConfig(
            tokenizer,
            distance,
            dim,
            params.recorded,
            params.analyzer_params,
            params.by_tenant,
        )
        self._connection = Connection(address)
        try:
            self._collection = Collection(
                self._connection, address.collection, asked=asked, params=params
            )
        except BaseException:
            self._connection.close()
            raise
        self._writer = Writer(self._collection)

    @property
    def client(self) -> MilvusClient:
        """Pymilvus's client."""
        return self._connection.client

    @property
    def searcher(self) -> Searcher:
        """Asks the engine directly, as the backend does."""
        return Searcher(self._collection)

    def persist(self, persist_path: str = "", fs: object = None) -> None:  # noqa: ARG002 - LlamaIndex's
        """Nothing that had to be called: what was added is kept. Milvus Lite indexes the rest."""
        self._writer.flush()

    def beside(self, suffix: str) -> Self:
        """A store of records that are read by id, in a collection of its own, over this client.

        Args:
            suffix: What its collection's name has more than this one's.

        Raises:
            ConfigurationError: The name is too long.
            StoreFormatError: That collection was not made by this package.
            StoreUnavailableError: Milvus cannot answer.
        """
        collection = Collection(
            self._connection,
            checked_name(f"{self._collection.name}{suffix}"),
            asked=RequestedConfig(),
            # Also what another client has just written is seen.
            params=MilvusParams(index_type="FLAT", consistency_level="Strong"),
        )
        other = self.model_copy()  # closing either closes both
        other._collection, other._writer = collection, Writer(collection)  # noqa: SLF001 - own class
        return other

    def close(self) -> None:
        """Close the store; a file is free for others when no store object has it open."""
        self._connection.close()

    @property
    def _setup(self) -> Manifest:
        return self._collection.manifest

    def _place(self) -> Mapping[str, object]:
        return {
            "place": self._connection.where,
            "collection": self._collection.name,
            "nodes": self.count(),
        }

    def _added(self, nodes: Sequence[BaseNode]) -> Call[None]:
        return Call(lambda: self._writer.add(nodes))

    def _deleted(self, target: Target) -> Call[None]:
        return Call(lambda: self._writer.delete(expression_for(target)))

    def _read(self, target: Target) -> Call[list[BaseNode]]:
        return Call(
            lambda: matching_nodes(self._collection, expression_for(target), order=target.node_ids)
        )

    def _counted(self, target: Target) -> Call[int]:
        return Call(lambda: count_matching(self._collection, expression_for(target)))

    def _cleared(self) -> Call[None]:
        return Call(self._collection.drop)

    def _found(self, query: VectorStoreQuery, options: Options) -> Call[list[Candidate]]:
        modes = Modes(
            engine="Milvus",
            searcher=self.searcher,
            compiled=expression_for,
            wanted=Wanted,
            call=Call,
        )
        return modes.found(query, options)


SCORES: Final[Mapping[Distance, ScoreRange]] = {
    "cosine": ScoreRange("cosine", -1.0, 1.0),
    "dot": ScoreRange("dot"),
    "euclid": ScoreRange("negative_distance", None, 0.0),
}


class MilvusBackend(EngineBackend[MilvusStore, Wanted]):
    """Asks a `MilvusStore` for nearest nodes, for keywords, or for what it makes of both.

    There is no request for both that keeps their scores: ``hybrid_search`` returns fused ones only,
    so that no hit can say what either search gave to it.

    Args:
        store: The store; whoever opened it closes it.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.
    """

    engine = "milvus"

    @property
    def features(self) -> EngineFeatures:
        """Vector and keyword search; async callers wait in threads."""
        dense = SCORES[self.store.distance]
        return EngineFeatures(
            dense=dense,
            keyword=ScoreRange("bm25", 0.0),
            most_hits=MOST,
            fusions=fusions_of(dense.kind, lite=self.store.searcher.is_lite),
            mmr=self._has_mmr,
        )

    @property
    def _searcher(self) -> Searcher:
        return self.store.searcher

    def _wanted(self, search: Search) -> Wanted:
        condition = search.condition
        return Wanted(search.top_k, True if condition is None else compiled(condition))


def expression_for(target: Target) -> Expression:
    """The expression for the nodes that are meant; True for every node.

    Raises:
        InvalidFilterError: The filters cannot mean anything.
        UnsupportedFilterError: The engine cannot evaluate them.

    Examples:
        >>> expression_for(Target(doc_ids=["leave.md"]))
        '(doc == "leave.md")'

    """
    parts: list[Expression] = []
    if target.node_ids is not None:
        parts.append(one_of(ID, [safe_text(node_id) for node_id in target.node_ids]))
    if target.doc_ids is not None:
        parts.append(one_of(DOC, [safe_text(doc_id) for doc_id in target.doc_ids]))
    condition = target.condition
    if condition is not None:
        parts.append(compiled(condition))
    return all_of(parts)
