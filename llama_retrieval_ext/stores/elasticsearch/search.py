"""Searches of an Elasticsearch index."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from pydantic_core import to_json

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.stores.elasticsearch.client import (
    Json,
    Requests,
    hits_of_part,
    lines_request,
    read,
)
from llama_retrieval_ext.stores.elasticsearch.filters import compile_condition
from llama_retrieval_ext.stores.elasticsearch.nodes import query_text, route_of
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
)
from llama_retrieval_ext.stores.engine.backend import Candidate, KeywordQuery, VectorQuery
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch
from llama_retrieval_ext.stores.engine.records import in_parts
from llama_retrieval_ext.stores.engine.search import EngineRequest, EngineSearch, NativeSearch

# With at most this many matching nodes, a filtered search is exhaustive: about 1 ms.
_FILTERED_CANDIDATES: Final = 1_000
# Score by the rarity of terms on all shards; free with one shard. With a vector and a text in
# one request the engine always does so; the option must not be sent.
_GLOBAL_STATISTICS: Final = "dfs_query_then_fetch"
_IDS: Final[Json] = {"docvalue_fields": [ID], "stored_fields": "_none_"}
_BY_SCORE: Final = [{"_score": "desc"}, {ID: "asc"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSearch(NativeSearch):
    """Search of an index: by vector, by text, or by both, with the sum of their scores.

    Attributes:
        filter: Query that each hit must match; None for everything.
        route: Routing value of the shard to search; None for all shards.
        vector: The embedding; None for zeros, which have cosine 0 with everything.
        text: The terms.
        candidates: Minimum number of nodes that each shard examines for a vector.
        nearest: Number of nearest nodes in the sum; None without a text.
        boosts: Factors of the vector's and the text's scores.
    """

    filter: Json | None = None
    route: str | None = None
    vector: list[float] | None = None
    text: str | None = None
    candidates: int = 0
    nearest: int | None = None
    boosts: tuple[float, float] = (1.0, 1.0)

    @property
    def is_by_vector(self) -> bool:
        """Whether the search has a vector only; otherwise the engine orders ties by node id."""
        return self.vector is not None and self.text is None

    def body(self, limit: int, *, exhaustive: bool) -> Json:
        """Return the body of the request, without the fields of its hits."""
        body: Json = {"size": limit, "track_total_hits": False}
        if self.vector is not None:
            body["knn"] = self._knn(self.nearest or limit, exhaustive=exhaustive)
        if self.text is not None or self.vector is None:
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
        if self.text is None:
            return {"bool": {"filter": filters}}
        match: Json = {"match": {TEXT: {"query": self.text}}}
        query = {"bool": {"must": [match], "filter": filters}} if filters else match
        if self.nearest is None:
            return query
        return {"bool": {"must": [query], "boost": self.boosts[1]}}

    @property
    def params(self) -> dict[str, str]:
        """Query parameters of the request."""
        params = _params(self.route)
        if self.text is not None and self.vector is None:
            params["search_type"] = _GLOBAL_STATISTICS
        return params


class ElasticsearchSearch(EngineSearch[Json, IndexSearch, Json]):
    """Searches of an index; the steps yield requests."""

    most_hits: ClassVar[int] = WINDOW
    nodes_last: ClassVar[bool] = True  # reading nodes takes longer than the search
    keys_are_ids: ClassVar[bool] = True
    whole_keyword_leg: ClassVar[bool] = True
    scoped_rarity: ClassVar[bool] = False

    _collection: Index

    def compile(self, condition: Condition) -> Json:
        """Return the engine's filter for a condition."""
        return compile_condition(condition)

    def vector_search(self, query: VectorQuery, request: EngineRequest[Json]) -> IndexSearch:
        """Return the search for the nearest nodes."""
        config = self._collection.config
        embedding = config.checked(query.embedding, self._collection.where)
        vector = compact_vector(embedding, config.distance)
        return IndexSearch(
            top_k=request.top_k,
            score=_zero if vector is None else SCORES[config.distance],
            filter=request.filter,
            route=self._route(query),
            vector=vector,
            candidates=self._collection.params.num_candidates,
        )

    def keyword_search(
        self, query: KeywordQuery, request: EngineRequest[Json]
    ) -> IndexSearch | None:
        """Return the search for shared terms; None without terms."""
        text = query_text(query.text, self._collection.config)
        if not text.strip():
            return None
        return IndexSearch(
            top_k=request.top_k,
            score=float,
            filter=request.filter,
            route=self._route(query),
            text=text,
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
            if search.is_by_vector and search.filter is None:
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

    def raw_scores(self, hits: Sequence[Json]) -> list[float]:
        """Return the engine's scores."""
        return [float(hit["sort"][0] if "sort" in hit else hit["_score"]) for hit in hits]

    def candidate(self, hit: Json, score: float) -> Candidate:
        """Return the candidate of a hit."""
        return Candidate.stored(hit["fields"][NODE][0], score)

    def keys(self, hits: Sequence[Json]) -> list[str]:
        """Return the node ids, which are faster to read than the nodes."""
        return [hit["fields"][ID][0] for hit in hits]

    def texts(self, keys: Sequence[str], request: EngineRequest[Json]) -> Requests[dict[str, str]]:
        """Return stored nodes by id; leave out those deleted or changed meanwhile."""
        filters = [] if request.filter is None else [request.filter]
        texts: dict[str, str] = {}
        for some in in_parts(keys, self._collection.window):
            body = {
                "query": {"bool": {"filter": [{"terms": {ID: some}}, *filters]}},
                "size": len(some),
                "track_total_hits": False,
                "docvalue_fields": [ID],
                **STORED_NODES,
            }
            hits = yield from self._collection.hits(body, _params(self._route(request.query)))
            texts |= {hit["fields"][ID][0]: hit["fields"][NODE][0] for hit in hits}
        return texts

    def _send(
        self, bodies: Sequence[Json], searches: Sequence[IndexSearch], *, with_nodes: bool
    ) -> Requests[list[list[Json]]]:
        name = self._collection.name
        fields = STORED_NODES if with_nodes else _IDS
        if len(bodies) == 1:
            hits = yield from self._collection.hits({**bodies[0], **fields}, searches[0].params)
            return [hits]
        lines = []
        for body, search in zip(bodies, searches, strict=True):
            lines += [to_json({"index": name, **search.params}), to_json({**body, **fields})]
        together = lines_request("_msearch", lines=lines)
        return (
            yield from read(
                together, lambda answer: [hits_of_part(part, name) for part in answer["responses"]]
            )
        )

    def _route(self, query: VectorQuery | KeywordQuery) -> str | None:
        scope = query.search.scope
        if scope is None or scope.tenant_id is None or not self._collection.is_routed:
            return None
        return route_of(scope.tenant_id)


def _params(route: str | None) -> dict[str, str]:
    return {**SEARCH_PARAMS} if route is None else {**SEARCH_PARAMS, "routing": route}


def _zero(_: float) -> float:
    return 0.0


def _check_window(top_k: int, hits: Sequence[Json], window: int) -> None:
    """Raise if the server's limit would cut off hits silently."""
    if top_k > window and len(hits) >= window:
        raise ConfigurationError(
            f"this Elasticsearch index returns at most {window} hits at once, top_k is {top_k}; to "
            "read all nodes call get_nodes()"
        )
