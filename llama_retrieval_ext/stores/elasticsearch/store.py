"""`ElasticsearchVectorStore`: vectors and keywords of LlamaIndex nodes in an index."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self, TypeVar, Unpack

from elasticsearch import Elasticsearch
from llama_index.core.vector_stores.types import MetadataFilters
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
    read,
    request_of,
)
from llama_retrieval_ext.stores.elasticsearch.filters import LANGUAGE, key_of
from llama_retrieval_ext.stores.elasticsearch.params import IndexParams
from llama_retrieval_ext.stores.elasticsearch.schema import (
    CONFLICT,
    FIRST_ERROR,
    ID,
    NODE,
    NOT_FOUND,
    PAGE,
    SCORES,
    SEARCH_PARAMS,
    STORED_NODES,
    TEXT,
    VECTOR,
    WINDOW,
    Action,
    Index,
    compact_vector,
    route_of,
    stored_document,
)
from llama_retrieval_ext.stores.encoding.node_json import fields_from_text
from llama_retrieval_ext.stores.encoding.vectors import BM25_RANGE, SCORE_RANGES
from llama_retrieval_ext.stores.engine.backend import Candidate, EngineFeatures, Search
from llama_retrieval_ext.stores.engine.collection import column_matches
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore, StoreOptions
from llama_retrieval_ext.stores.engine.filters import Target
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch, NativeFusion
from llama_retrieval_ext.stores.engine.records import Record, Records, in_parts, node_of, record_in
from llama_retrieval_ext.stores.engine.search import EngineBackend, NativeSearch
from llama_retrieval_ext.text.tokenizer import Tokenizer

T = TypeVar("T")

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
# Dimension of the embeddings of records, and how many are written at a time: at most about 6 MB.
_RECORD_DIMENSION: Final = 2
_RECORDS: Final = 200
_ABSENT: Final = "index_not_found_exception"
_IDS: Final[Json] = {"docvalue_fields": [ID], "stored_fields": "_none_"}
_BY_SCORE: Final = [{"_score": "desc"}, {ID: "asc"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSearch(NativeSearch):
    """Search of an index: by vector, by text, or by both, with the sum of their scores.

    Attributes:
        params: Query parameters of the request.
        knn: The vector search; None for a text alone.
        query: What hits must match, by text and filter; None for a vector alone.
    """

    params: Mapping[str, str]
    knn: Json | None = None
    query: Json | None = None

    def body(self, size: int) -> Json:
        """Return the body of the request, without the fields of its hits."""
        body: Json = {"size": size, "track_total_hits": False}
        if self.knn is not None:
            body["knn"] = self.knn
        if self.query is not None:
            body |= {"query": self.query, "sort": _BY_SCORE}
        return body

    @property
    def is_unfiltered(self) -> bool:
        """Whether the hits are the nearest of all nodes."""
        return self.knn is not None and self.query is None and not self.knn["filter"]

    @property
    def exhaustive(self) -> Self:
        """The same search, but for examining as many nodes as the engine can."""
        if self.knn is None:
            return self
        filters = self.knn["filter"] or [{"exists": {"field": VECTOR}}]
        return replace(self, knn={**self.knn, "num_candidates": WINDOW, "filter": filters})


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
        """Return the search for the nearest nodes; zeros have cosine 0 with everything."""
        collection, filters = self._collection, _filters(search)
        distance, params = collection.config.distance, self._params(search)
        vector = compact_vector(self._checked(embedding, collection.where), distance)
        if vector is None:
            query = {"bool": {"filter": filters}}
            return IndexSearch(top_k=search.top_k, score=lambda _: 0.0, params=params, query=query)
        least = max(collection.params.num_candidates, _FILTERED_CANDIDATES if filters else 0)
        knn = {
            "field": VECTOR,
            "query_vector": vector,
            "k": min(search.top_k, WINDOW),
            "num_candidates": min(max(least, 2 * search.top_k), WINDOW),
            "filter": filters,
        }
        return IndexSearch(top_k=search.top_k, score=SCORES[distance], params=params, knn=knn)

    def keyword_search(self, text: str, search: Search) -> IndexSearch | None:
        """Return the search for shared terms; None without terms."""
        weights, analyzed = self.field_weights(search), "analyzer" in self._config.params
        terms = text.strip() if analyzed else query_terms(text, self.tokenizer, len(weights))
        stops = "" if analyzed else " ".join(self.tokenizer.query_stop_words(text))
        matches: list[Json] = [
            {"match": {column: {"query": words, "boost": boost}}}
            for column, words, boost in column_matches(
                TEXT, weights, self.field_schema, terms=terms, stop_words=stops
            )
        ]
        if not matches:
            return None
        group = {"should": matches, "minimum_should_match": 1, "filter": _filters(search)}
        params = {**self._params(search), "search_type": _GLOBAL_STATISTICS}
        return IndexSearch(top_k=search.top_k, score=float, params=params, query={"bool": group})

    def fused_search(
        self, vector: IndexSearch, keyword: IndexSearch, how: FusedSearch, *, top_k: int
    ) -> IndexSearch | None:
        """Return the search by the sum of both scores: nodes that share a term, and the nearest.

        None for zeros, which have no nearest nodes.
        """
        if vector.knn is None or keyword.query is None:
            return None
        of_vector, of_text = how.proportions
        return IndexSearch(
            top_k=top_k,
            score=float,
            params=vector.params,
            knn={**vector.knn, "boost": of_vector},
            query={"bool": {**keyword.query["bool"], "boost": of_text}},
        )

    def pages(
        self, searches: Sequence[IndexSearch], *, with_nodes: bool
    ) -> Requests[list[list[Json]]]:
        """Send searches in one request; repeat exhaustively those with missing nodes."""
        collection, small = self._collection, self._collection.is_small
        first = [search.exhaustive if small else search for search in searches]
        pages = yield from self._send(first, with_nodes=with_nodes)
        for place, search in enumerate(searches):
            few = len(pages[place]) < min(search.top_k, collection.window)
            if search.is_unfiltered:
                collection.is_small = few  # lets the next search be exhaustive at once
                if few and not small:
                    (pages[place],) = yield from self._send(
                        [search.exhaustive], with_nodes=with_nodes
                    )
            if search.top_k > collection.window <= len(pages[place]):
                raise ConfigurationError(  # the server's limit would cut off hits silently
                    f"this Elasticsearch index returns at most {collection.window} hits at once, "
                    f"top_k is {search.top_k}; to read all nodes call get_nodes()"
                )
        return pages

    def scores(self, search: IndexSearch, hits: Sequence[Json]) -> list[float]:
        """Return our scores of hits."""
        raw = [hit["sort"][0] if "sort" in hit else hit["_score"] for hit in hits]
        return [search.score(float(score)) for score in raw]

    def candidate(self, hit: Json, score: float) -> Candidate:
        """Return the candidate of a hit."""
        return Candidate(hit["fields"][NODE][0], score)

    def keys(self, hits: Sequence[Json]) -> list[str]:
        """Return the node ids, which are faster to read than the nodes."""
        return [hit["fields"][ID][0] for hit in hits]

    def read(self, keys: Sequence[str], search: Search) -> Requests[Mapping[str, Candidate]]:
        """Return nodes by id; leave out those deleted or changed meanwhile."""
        nodes: dict[str, Candidate] = {}
        for ids in in_parts(keys, self._collection.window):
            body = {
                "query": {"bool": {"filter": [{"terms": {ID: ids}}, *_filters(search)]}},
                "size": len(ids),
                "track_total_hits": False,
                "docvalue_fields": [ID],
                **STORED_NODES,
            }
            hits = yield from self._collection.search(body, self._params(search))
            nodes |= {hit["fields"][ID][0]: self.candidate(hit, 0.0) for hit in hits}
        return nodes

    def _send(
        self, searches: Sequence[IndexSearch], *, with_nodes: bool
    ) -> Requests[list[list[Json]]]:
        name, window = self._collection.name, self._collection.window
        fields = STORED_NODES if with_nodes else _IDS
        bodies = [{**search.body(min(search.top_k, window)), **fields} for search in searches]
        if len(bodies) == 1:
            return [(yield from self._collection.search(bodies[0], searches[0].params))]
        heads = [{"index": name, **search.params} for search in searches]
        lines = [to_json(part) for pair in zip(heads, bodies, strict=True) for part in pair]

        def decode(answer: Json) -> list[list[Json]]:
            for part in answer["responses"]:
                if (status := part.get("status", _OK)) != _OK:
                    raise error_of_part(status, part, name)
            return [hits_of(part) for part in answer["responses"]]

        return (yield from read(request_of("POST", "_msearch", body=lines), decode))

    def _params(self, search: Search) -> dict[str, str]:
        """Return the query parameters of a search: its shard, if the index is routed."""
        tenant_id = None if search.scope is None else search.scope.tenant_id
        if tenant_id is None or not self._collection.is_routed:
            return {**SEARCH_PARAMS}
        return {**SEARCH_PARAMS, "routing": route_of(tenant_id)}

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


def _filters(search: Search) -> list[Json]:
    return [] if search.filter is None else [search.filter]


open_elasticsearch: Final = ElasticsearchVectorStore


class ElasticsearchRecords:
    """A `Records` in an index of its own: reads by id are realtime, searches refresh it first."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def get(self, ids: Sequence[str]) -> dict[str, Record]:
        """Return the records with these ids that exist."""
        records: dict[str, Record] = {}
        for part in in_parts(ids, PAGE):
            body, params = {"ids": [*map(key_of, part)]}, {"_source": NODE}
            request = self._index.request("POST", "_mget", params=params, body=body)
            for document in self._run(read(request, self._documents)):
                record = _record(document["_source"][NODE], document)
                records[record.id] = record
        return records

    def find(
        self, filters: MetadataFilters | None = None, limit: int | None = None
    ) -> list[Record]:
        """Return the records whose fields satisfy filters; all for None."""
        query = LANGUAGE.select(Target(filters=filters))
        hits = self._run(self._refreshed(self._index.hits(query, STORED_NODES)))
        return [_record(hit["fields"][NODE][0], hit) for hit in hits[:limit]]

    def count(self, filters: MetadataFilters) -> int:
        """Return the number of records that satisfy filters."""
        query = LANGUAGE.select(Target(filters=filters))
        return self._run(self._refreshed(self._index.count(query)))

    def put(self, records: Sequence[Record]) -> None:
        """Write records; overwrite existing ones with the same ids."""
        self._write([(_header("index", record.id), self._document(record)) for record in records])

    def replace(
        self, records: Sequence[Record], *, remove: Sequence[Record] = (), held: bool = False
    ) -> dict[str, str]:
        """Write and remove records if their versions match; see `Records.replace`."""
        actions: list[Action] = []
        for record in records:
            action = "index" if record.version else "create"
            actions.append((_header(action, record.id, record.version), self._document(record)))
        actions += [(_header("delete", record.id, record.version), None) for record in remove]
        # The index of a claimed record is never dropped.
        versions = self._write(actions, is_there=held)
        return {
            **{r.id: versions[key_of(r.id)] for r in records if key_of(r.id) in versions},
            **{r.id: "" for r in remove if key_of(r.id) in versions},
        }

    def delete(self, ids: Iterable[str]) -> None:
        """Delete records of any version."""
        self._write([(_header("delete", id_), None) for id_ in ids])

    def remove(self) -> None:
        """Drop the index of the records."""
        self._run(self._index.drop())

    def _write(self, actions: Sequence[Action], *, is_there: bool = False) -> dict[str, str]:
        """Return the new versions of the written records, by the engine's ids."""
        written: dict[str, str] = {}
        for start in range(0, len(actions), _RECORDS):
            if not is_there:
                # A write to a dropped index would create one with another mapping.
                self._run(self._index.create(_RECORD_DIMENSION, again=True))
            batch = actions[start : start + _RECORDS]
            items = self._run(self._index.write(batch, (CONFLICT, NOT_FOUND)))
            written |= {
                item["_id"]: _version(item) for item in items if item["status"] < FIRST_ERROR
            }
        return written

    def _run(self, requests: Requests[T]) -> T:
        return self._index.connection.run(requests)

    def _documents(self, reply: Json) -> list[Json]:
        """Return the documents that exist; raise if one could not be read."""
        for document in reply["docs"]:
            if "error" in document and document["error"].get("type") != _ABSENT:
                raise error_of_part(503, document, f"index {self._index.name!r}")
        return [document for document in reply["docs"] if document.get("found")]

    def _refreshed(self, requests: Requests[T]) -> Requests[T]:
        yield from self._index.look_up()  # for its window
        yield self._index.refresh_request()
        return (yield from requests)

    def _document(self, record: Record) -> bytes:
        node = node_of(record)
        return to_json(stored_document(node, list(node.embedding or ()), self._index.config))


def _header(action: str, id_: str, version: str = "") -> Json:
    """Return the header of an action on a record, which must have the version if there is one."""
    number, _, term = version.partition("/")
    condition = {"if_seq_no": int(number), "if_primary_term": int(term)} if version else {}
    return {action: {"_id": key_of(id_), **condition}}


def _version(document: Mapping[str, int]) -> str:
    return f"{document['_seq_no']}/{document['_primary_term']}"


def _record(node: str, document: Json) -> Record:
    fields = fields_from_text(node)  # building the node takes longer
    return record_in(fields["id_"], fields["metadata"], _version(document))
