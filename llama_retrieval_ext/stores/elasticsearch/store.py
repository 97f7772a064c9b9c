"""`ElasticsearchVectorStore`: LlamaIndex vectors and keywords in an Elasticsearch index."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self, TypeVar

from elasticsearch import Elasticsearch
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import VectorStoreQuery
from pydantic import PrivateAttr

from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.stages.fusion import WeightedSum
from llama_retrieval_ext.stores.elasticsearch.client import Connection, Transport
from llama_retrieval_ext.stores.elasticsearch.documents import query_for, route_of
from llama_retrieval_ext.stores.elasticsearch.filters import NOTHING, compiled
from llama_retrieval_ext.stores.elasticsearch.index import (
    SIMILARITIES,
    Index,
    IndexParams,
    Manifest,
    RequestedConfig,
)
from llama_retrieval_ext.stores.elasticsearch.nodes import (
    add_nodes,
    count_matching,
    delete_matching,
    matching_nodes,
)
from llama_retrieval_ext.stores.elasticsearch.requests import Steps
from llama_retrieval_ext.stores.elasticsearch.search import WINDOW, Searcher, Wanted
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    Choose,
    EngineFeatures,
    KeywordQuery,
    ScoreRange,
    Search,
    VectorQuery,
    chosen_candidates,
)
from llama_retrieval_ext.stores.engine.old_searcher import Answer, EngineBackend, Modes
from llama_retrieval_ext.stores.engine.pushdown import NativeFusion
from llama_retrieval_ext.stores.engine.vector_store import EngineStore, Options, Target
from llama_retrieval_ext.text.tokenizer import Tokenizer

T = TypeVar("T")


class ElasticsearchVectorStore(EngineStore):
    """A vector store in an index of Elasticsearch 8, with keyword search and exact filters.

    LlamaIndex's own ``ElasticsearchStore`` patches asyncio when it is made, runs on one event loop
    only, and knows one filter operator; this one keeps the same nodes in another form. The index is
    made when the first nodes are added. Threads and event loops may share a store.

    Similarities are cosine, inner product or negative Euclidean distance, or BM25 for keywords
    (k1 = 1.2, b = 0.75; lengths of texts are the engine's, which rounds those above 40 terms): raw,
    and higher is better. Where cosine is asked for, zeros are near to nothing: nodes with such an
    embedding are found by keywords and filters alone.

    Args:
        index: Its name.
        connection: The server.
        tokenizer: Cuts text for keyword search; None for the recorded one, or `Tokenizer` where the
            index is new.
        dim: Dimension of the embeddings; None for that of the first that are added.
        distance: ``cosine``, ``dot`` or ``euclid``; None for the recorded one, or cosine.
        params: How the index is made.

    Raises:
        StoreFormatError: The index was not made by this package, or by a newer release of it.
        StoreUnavailableError: The server cannot be reached, or refuses the credentials.
        ConfigurationError: The index has another tokenizer, distance or setting.
        DimensionMismatchError: It has another dimension.
    """

    index: str = ""

    _index: Index = PrivateAttr()
    _transport: Transport = PrivateAttr()
    _closer: "weakref.finalize[..., ElasticsearchVectorStore]" = PrivateAttr()

    def __init__(
        self,
        index: str,
        *,
        connection: Connection,
        tokenizer: Tokenizer | None = None,
        dim: int | None = None,
        distance: Distance | None = None,
        params: IndexParams | None = None,
    ) -> None:
        super().__init__(stores_text=True)
        params = params or IndexParams()
        asked = RequestedConfig(
            tokenizer, distance, dim, params.recorded, params.analyzer, params.routing
        )
        self.index = index
        self._index = Index(index, asked, params)
        self._transport = Transport(connection)
        # Also when the store is garbage, and at the interpreter's exit.
        self._closer = weakref.finalize(self, self._transport.close)
        try:
            self._transport.run(self._index.look())
        except BaseException:
            self.close()
            raise

    @property
    def client(self) -> Elasticsearch:
        """The client for threads."""
        return self._transport.client

    @property
    def transport(self) -> Transport:
        """Carries out what is asked of the engine."""
        return self._transport

    @property
    def searcher(self) -> Searcher:
        """Says what is to be asked, as the backend does."""
        return Searcher(self._index)

    @property
    def routing(self) -> bool:
        """Whether a tenant's nodes lie on one shard."""
        return self._index.manifest.routing

    def beside(self, suffix: str) -> Self:
        """A store of records that are read by id, in an index of its own, over these clients.

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
        index = Index(other.index, RequestedConfig(), params)
        self._transport.run(index.look())
        other._index = index  # noqa: SLF001 - of its own class
        return other

    def close(self) -> None:
        """Close the connections; the index stays."""
        self._closer()

    @property
    def _setup(self) -> Manifest:
        return self._index.manifest

    def _place(self) -> Mapping[str, object]:
        return {
            "url": self._transport.connection.where,
            "index": self.index,
            "analyzer": self._index.manifest.analyzer or "whitespace",
        }

    def _added(self, nodes: Sequence[BaseNode]) -> Call[None]:
        return self._call(lambda: add_nodes(self._index, nodes))

    def _deleted(self, target: Target) -> Call[None]:
        query = query_for(target) or NOTHING
        return self._call(lambda: delete_matching(self._index, query))

    def _read(self, target: Target) -> Call[list[BaseNode]]:
        query = query_for(target)
        return self._call(lambda: matching_nodes(self._index, query, order=target.node_ids))

    def _counted(self, target: Target) -> Call[int]:
        query = query_for(target)
        return self._call(lambda: count_matching(self._index, query))

    def _cleared(self) -> Call[None]:
        return self._call(self._index.drop)

    def _found(self, query: VectorStoreQuery, options: Options) -> Call[list[Candidate]]:
        modes = Modes(
            engine="Elasticsearch",
            searcher=self.searcher,
            compiled=query_for,
            wanted=Wanted,
            call=self._call,
        )
        return modes.found(query, options)

    def _call(self, steps: Callable[[], Steps[T]]) -> Call[T]:
        transport = self._transport
        return Call(lambda: transport.run(steps()), lambda: transport.arun(steps()))


# Scores are added up, and cosines come as (1 + cosine) / 2. Other similarities bend the scale.
_FUSIONS: Final = (
    NativeFusion(
        kind=WeightedSum,
        scales=(Normalisation.COSINE, Normalisation.NONE),
        whole_keyword_leg=True,
    ),
)


class ElasticsearchBackend(EngineBackend[ElasticsearchVectorStore, Wanted]):
    """Asks an `ElasticsearchVectorStore` for nearest nodes, for keywords, or for both at once.

    The rarity of a term is measured over the whole index, not over what a scope can see: a tenant's
    keyword scores tell how common its terms are among all tenants, though never a text or an id.
    Where that is too much, give each tenant an index.

    Where it fuses, the keyword score of every node counts, not only of as many as are candidates.

    Args:
        store: The store; whoever opened it closes it.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.
    """

    engine = "elasticsearch"

    @property
    def features(self) -> EngineFeatures:
        """Everything but MMR."""
        return EngineFeatures(
            dense=SIMILARITIES[self.store.distance].range,
            keyword=ScoreRange("bm25", 0.0, None),
            one_round_trip=True,
            most_hits=WINDOW,
            fusions=_FUSIONS if self.store.distance == "cosine" else (),
            mmr=self._has_mmr,
            real_async=True,
        )

    def hybrid(
        self, vector: VectorQuery, keyword: KeywordQuery, choose: Choose, *, top_k: int
    ) -> Call[list[Candidate]]:
        """Ids come in one request, and the nodes of the chosen in a second, if they are few."""
        if 2 * top_k > vector.search.top_k:
            return super().hybrid(vector, keyword, choose, top_k=top_k)
        wanted, searcher = self._wanted(vector.search), self._searcher
        bare = replace(wanted, bare=True)

        def steps() -> Steps[list[Candidate]]:
            near, sharing = yield from searcher.batch(
                [(vector.embedding, bare), (keyword.text, bare)]
            )
            chosen = chosen_candidates(choose, near, sharing)
            ids = [each.node_id for each in chosen]
            nodes = (yield from searcher.nodes_of(ids, wanted)) if ids else {}
            return [
                Candidate(nodes[each.node_id], each.score)
                for each in chosen
                if each.node_id in nodes
            ]

        return self._call(steps)

    @property
    def _searcher(self) -> Searcher:
        return self.store.searcher

    def _wanted(self, search: Search) -> Wanted:
        condition, scope = search.condition, search.scope
        tenant_id = None if scope is None else scope.tenant_id
        return Wanted(
            search.top_k,
            None if condition is None else compiled(condition),
            route_of(tenant_id) if self.store.routing and tenant_id is not None else None,
        )

    def _call(self, ask: Callable[[], Answer]) -> Call[Answer]:
        transport = self.store.transport
        return Call(lambda: transport.run(ask()), lambda: transport.arun(ask()))
