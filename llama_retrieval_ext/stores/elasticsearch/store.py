"""`ElasticsearchVectorStore`: vectors and keywords of LlamaIndex nodes in an index."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Unpack

from elasticsearch import Elasticsearch
from pydantic import PrivateAttr
from pydantic_core import to_json

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.stages.fusion import WeightedSum
from llama_retrieval_ext.stores.elasticsearch.client import (
    FORM,
    Json,
    Requests,
    Transport,
    error_of_part,
    hits_of,
    lines_request,
    read,
)
from llama_retrieval_ext.stores.elasticsearch.filters import LANGUAGE
from llama_retrieval_ext.stores.elasticsearch.params import IndexParams
from llama_retrieval_ext.stores.elasticsearch.records import ElasticsearchRecords
from llama_retrieval_ext.stores.elasticsearch.schema import (
    ID,
    NODE,
    SCORES,
    SEARCH_PARAMS,
    STORED_NODES,
    TEXT,
    VECTOR,
    WINDOW,
    Index,
    compact_vector,
    route_of,
)
from llama_retrieval_ext.stores.encoding.vectors import BM25_RANGE, SCORE_RANGES
from llama_retrieval_ext.stores.engine.backend import Candidate, EngineFeatures, Search
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore, StoreOptions
from llama_retrieval_ext.stores.engine.columns import ColumnMatch, column_matches
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch, NativeFusion
from llama_retrieval_ext.stores.engine.records import Records, in_parts
from llama_retrieval_ext.stores.engine.search import EngineBackend, NativeSearch
from llama_retrieval_ext.text.tokenizer import Tokenizer

# The engine adds scores; a cosine counts as (1 + cosine) / 2. Other similarities are not linear.
_FUSIONS: Final = (
    NativeFusion(
        kind=WeightedSum, scales=(Normalisation.COSINE, Normalisation.NONE), whole_keyword_leg=True
    ),
)
# With at most this many matching nodes, a filtered search is exhaustive: about 1 ms.
_FILTERED_CANDIDATES: Final = 1_000
# Score by the rarity of terms on all shards; free with one shard. With a vector and a text in
# one request the engine always does so; the option must not be sent.
_GLOBAL_STATISTICS: Final = "dfs_query_then_fetch"
# Limit of servers for the terms of a query; repeated terms count each time.
_MAX_TERMS: Final = 1024
_OK: Final = 200
_IDS: Final[Json] = {"docvalue_fields": [ID], "stored_fields": "_none_"}
_BY_SCORE: Final = [{"_score": "desc"}, {ID: "asc"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSearch(NativeSearch):
    """Search of an index: by vector, by text, or by both, with the sum of their scores.

    Attributes:
        filter: Query that each hit must match; None for everything.
        route: Routing value of the shard to search; None for all shards.
        vector: The embedding; None for zeros, which have cosine 0 with everything.
        matches: What the columns of texts are searched for; empty for a vector alone.
        candidates: Minimum number of nodes that each shard examines for a vector.
        nearest: Number of nearest nodes in the sum; None without a text.
        boosts: Factors of the vector's and the text's scores.
    """

    filter: Json | None = None
    route: str | None = None
    vector: list[float] | None = None
    matches: Sequence[ColumnMatch] = ()
    candidates: int = 0
    nearest: int | None = None
    boosts: tuple[float, float] = (1.0, 1.0)

    def body(self, limit: int, *, exhaustive: bool) -> Json:
        """Return the body of the request, without the fields of its hits."""
        body: Json = {"size": limit, "track_total_hits": False}
        if self.vector is not None:
            body["knn"] = self._knn(self.nearest or limit, exhaustive=exhaustive)
        if self.matches or self.vector is None:
            body |= {"query": self._query(), "sort": _BY_SCORE}
        return body

    def _knn(self, k: int, *, exhaustive: bool) -> Json:
        filters = [] if self.filter is None else [self.filter]
        if exhaustive and not filters:
            filters = [{"exists": {"field": VECTOR}}]
        least = max(self.candidates, _FILTERED_CANDIDATES) if filters else self.candidates
        k = min(k, WINDOW)
        knn: Json = {
            "field": VECTOR,
            "query_vector": self.vector,
            "k": k,
            "num_candidates": WINDOW if exhaustive else min(max(least, 2 * k), WINDOW),
            "filter": filters,
        }
        return knn if self.nearest is None else {**knn, "boost": self.boosts[0]}

    def _query(self) -> Json:
        filters = [] if self.filter is None else [self.filter]
        if not self.matches:
            return {"bool": {"filter": filters}}
        clauses: list[Json] = [
            {"match": {column: {"query": terms, "boost": boost}}}
            for column, terms, boost in self.matches
        ]
        match = clauses[0] if len(clauses) == 1 else {"bool": {"should": clauses}}
        query = {"bool": {"must": [match], "filter": filters}} if filters else match
        if self.nearest is None:
            return query
        return {"bool": {"must": [query], "boost": self.boosts[1]}}

    @property
    def params(self) -> dict[str, str]:
        """Query parameters of the request."""
        params = _params(self.route)
        if self.matches and self.vector is None:
            params["search_type"] = _GLOBAL_STATISTICS
        return params


class ElasticsearchVectorStore(CollectionStore, EngineBackend[IndexSearch, Json]):
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

    engine_name: ClassVar[str] = "elasticsearch"
    most_candidates: ClassVar[int] = WINDOW
    nodes_last: ClassVar[bool] = True  # reading nodes takes longer than the search
    whole_keyword_leg: ClassVar[bool] = True
    scoped_rarity: ClassVar[bool] = False

    language = LANGUAGE
    params_type = IndexParams
    connection_type = Transport
    collection_type = Index
    parse_address = staticmethod(FORM.parse)

    _collection: Index = PrivateAttr()

    def __init__(self, url: str, **options: Unpack[StoreOptions]) -> None:
        super().__init__(url, **options)

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

    def records(self, **_: object) -> Records:
        """Return a record store over this index, which compares and sets in any case."""
        return ElasticsearchRecords(self._collection)

    def vector_search(self, embedding: Sequence[float], search: Search) -> IndexSearch:
        """Return the search for the nearest nodes."""
        config = self._collection.config
        checked = config.checked(embedding, self._collection.where)
        vector = compact_vector(checked, config.distance)
        return IndexSearch(
            top_k=search.top_k,
            score=(lambda _: 0.0) if vector is None else SCORES[config.distance],
            filter=search.filter,
            route=self._route(search),
            vector=vector,
            candidates=self._collection.params.num_candidates,
        )

    def keyword_search(self, text: str, search: Search) -> IndexSearch | None:
        """Return the search for shared terms; None without terms."""
        weights, analyzed = self.field_weights(search), "analyzer" in self._config.params
        terms = text.strip() if analyzed else query_terms(text, self.tokenizer, len(weights))
        stops = "" if analyzed else " ".join(self.tokenizer.query_stop_words(text))
        matches = column_matches(TEXT, weights, self.field_schema, terms=terms, stop_words=stops)
        if not matches:
            return None
        return IndexSearch(
            top_k=search.top_k,
            score=float,
            filter=search.filter,
            route=self._route(search),
            matches=matches,
        )

    def fused_search(
        self, vector: IndexSearch, keyword: IndexSearch, how: FusedSearch, *, top_k: int
    ) -> IndexSearch | None:
        """Return the search by the sum of both scores: nodes that share a term, and the nearest.

        None for zeros, which have no nearest nodes.
        """
        if vector.vector is None:
            return None
        return replace(
            keyword,
            top_k=top_k,
            vector=vector.vector,
            candidates=vector.candidates,
            nearest=vector.top_k,
            boosts=how.proportions,
        )

    def pages(
        self, searches: Sequence[IndexSearch], *, with_nodes: bool
    ) -> Requests[list[list[Json]]]:
        """Send searches in one request; repeat exhaustively those with missing nodes."""
        window = self._collection.window
        limits = [min(search.top_k, window) for search in searches]
        small = self._collection.is_small
        pages = yield from self._send(
            [
                search.body(limit, exhaustive=small)
                for search, limit in zip(searches, limits, strict=True)
            ],
            searches,
            with_nodes=with_nodes,
        )
        for position, (search, limit) in enumerate(zip(searches, limits, strict=True)):
            if search.vector is not None and not search.matches and search.filter is None:
                few = len(pages[position]) < limit
                if few and not small:
                    body = search.body(limit, exhaustive=True)
                    (pages[position],) = yield from self._send(
                        [body], [search], with_nodes=with_nodes
                    )
                # Lets the next search be exhaustive at once.
                self._collection.is_small = few
            _check_window(search.top_k, pages[position], window)
        return pages

    def scores(self, search: IndexSearch, hits: Sequence[Json]) -> list[float]:
        """Return our scores of hits."""
        raw = [hit["sort"][0] if "sort" in hit else hit["_score"] for hit in hits]
        return [search.score(float(score)) for score in raw]

    def candidate(self, hit: Json, score: float) -> Candidate:
        """Return the candidate of a hit."""
        return Candidate.stored(hit["fields"][NODE][0], score)

    def keys(self, hits: Sequence[Json]) -> list[str]:
        """Return the node ids, which are faster to read than the nodes."""
        return [hit["fields"][ID][0] for hit in hits]

    def read(self, keys: Sequence[str], search: Search) -> Requests[Mapping[str, Candidate]]:
        """Return nodes by id; leave out those deleted or changed meanwhile."""
        filters = [] if search.filter is None else [search.filter]
        nodes: dict[str, Candidate] = {}
        for ids in in_parts(keys, self._collection.window):
            body = {
                "query": {"bool": {"filter": [{"terms": {ID: ids}}, *filters]}},
                "size": len(ids),
                "track_total_hits": False,
                "docvalue_fields": [ID],
                **STORED_NODES,
            }
            hits = yield from self._collection.search(body, _params(self._route(search)))
            nodes |= {hit["fields"][ID][0]: self.candidate(hit, 0.0) for hit in hits}
        return nodes

    def _send(
        self, bodies: Sequence[Json], searches: Sequence[IndexSearch], *, with_nodes: bool
    ) -> Requests[list[list[Json]]]:
        name = self._collection.name
        fields = STORED_NODES if with_nodes else _IDS
        if len(bodies) == 1:
            hits = yield from self._collection.search({**bodies[0], **fields}, searches[0].params)
            return [hits]
        lines = []
        for body, search in zip(bodies, searches, strict=True):
            lines += [to_json({"index": name, **search.params}), to_json({**body, **fields})]

        def decode(answer: Json) -> list[list[Json]]:
            for part in answer["responses"]:
                if (status := part.get("status", _OK)) != _OK:
                    raise error_of_part(status, part, name)
            return [hits_of(part) for part in answer["responses"]]

        return (yield from read(lines_request("_msearch", lines=lines), decode))

    def _route(self, search: Search) -> str | None:
        scope = search.scope
        if scope is None or scope.tenant_id is None or not self._collection.is_routed:
            return None
        return route_of(scope.tenant_id)

    def _location(self) -> Mapping[str, object]:
        return {
            "url": self.transport.where,
            "index": self.index,
            "analyzer": self._collection.config.params.get("analyzer", "whitespace"),
        }


def query_terms(text: str, tokenizer: Tokenizer, n_fields: int) -> str:
    """Return the terms of a query; the first distinct ones if a server takes no more."""
    tokens, most = tokenizer.query_tokens(text), _MAX_TERMS // max(1, n_fields)
    return " ".join(tokens if len(tokens) <= most else list(dict.fromkeys(tokens))[:most])


def _params(route: str | None) -> dict[str, str]:
    return {**SEARCH_PARAMS} if route is None else {**SEARCH_PARAMS, "routing": route}


def _check_window(top_k: int, hits: Sequence[Json], window: int) -> None:
    """Raise if the server's limit would cut off hits silently."""
    if top_k > window and len(hits) >= window:
        raise ConfigurationError(
            f"this Elasticsearch index returns at most {window} hits at once, top_k is {top_k}; to "
            "read all nodes call get_nodes()"
        )


open_elasticsearch: Final = ElasticsearchVectorStore


def is_new(url: str) -> bool:  # noqa: ARG001 - the engines' common signature
    """Return False: opening never creates an index."""
    return False
