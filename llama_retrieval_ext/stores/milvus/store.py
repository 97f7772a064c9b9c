"""`MilvusStore`: vectors and keywords of LlamaIndex nodes in a Milvus collection."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias, Unpack

from pydantic import PrivateAttr
from pymilvus import AnnSearchRequest, MilvusClient, RRFRanker, WeightedRanker
from pymilvus.client.abstract import BaseRanker

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.encoding.vectors import BM25_RANGE, SCORE_RANGES, cosine_score
from llama_retrieval_ext.stores.engine.backend import Candidate, EngineFeatures, Search
from llama_retrieval_ext.stores.engine.collection import column_matches
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore, StoreOptions
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch, NativeFusion
from llama_retrieval_ext.stores.engine.search import EngineBackend, NativeSearch
from llama_retrieval_ext.stores.milvus.client import MilvusConnection, parse_address
from llama_retrieval_ext.stores.milvus.filters import ID, LANGUAGE, filter_text, one_of
from llama_retrieval_ext.stores.milvus.params import METRICS, MilvusParams
from llama_retrieval_ext.stores.milvus.schema import (
    BM25,
    DENSE,
    NODE,
    MilvusCollection,
    joined_terms,
)
from llama_retrieval_ext.text.segmentation import term_id

# Milvus Lite also adds scores, of similarities that are linear.
_BY_RANK: Final = NativeFusion(kind=RRF, least_k=1, most_k=16_383, equal_weights=True)
_BY_SUM: Final = NativeFusion(kind=WeightedSum, scales=(Normalisation.NONE, Normalisation.NONE))

Hit: TypeAlias = Mapping[str, Any]  # the type in pymilvus: id, distance, entity

# Number of hits of each field in a sum; their score in a field beyond counts as 0.
_BEST_OF_FIELD: Final = 1_000
# Limit of hits per request, on every Milvus.
MAX_HITS: Final = 16_384


# By metric. Milvus reports squared Euclidean distances, and only Milvus Lite negates BM25 scores;
# none is below 0.
SCORES: Final[Mapping[str, Callable[[float], float]]] = {
    "COSINE": cosine_score,
    "IP": float,
    "L2": lambda squared: -math.sqrt(max(0.0, squared)),
    "BM25": abs,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSearch(NativeSearch):
    """Searches of columns: one, or several whose fusion or weighted sum has the hits.

    Attributes:
        legs: The searches; the limit of each is its number of candidates.
        ranker: Milvus's fusion of the legs; None for one search, or a sum.
        weights: Factors of the scores of the legs in their sum; empty for one search, or a fusion.
    """

    legs: Sequence[AnnSearchRequest]
    ranker: BaseRanker | None = None
    weights: Sequence[float] = ()


class MilvusStore(CollectionStore, EngineBackend[ColumnSearch, Hit]):
    """A vector store in a collection of Milvus, with keyword search and exact filters.

    LlamaIndex's own ``MilvusVectorStore`` inverts some filters and does not escape values;
    this store keeps the same nodes in another form. The collection is created with the first nodes,
    and loaded when needed. Threads may share a store.

    Similarities are cosine, inner product or negative Euclidean distance, or BM25 for keywords:
    raw, and higher is better. BM25 is Milvus's own function (k1 = 1.2, b = 0.75) over all nodes of
    the collection, regardless of the scope; Milvus Lite uses k1 = 1.5, and the rarity of terms in
    each of its data files separately. A node may have up to 65,535 bytes of text and metadata, and
    the same for its terms (about 7,000 terms).

    Args:
        url: ``milvus://host:19530/collection`` or ``milvus:./file.db``.
        **options: Arguments of `CollectionStore`; ``store_params`` are the fields of
            `MilvusParams`.
    """

    engine_name: ClassVar[str] = "milvus"
    most_candidates: ClassVar[int] = MAX_HITS
    scoped_rarity: ClassVar[bool] = False

    language = LANGUAGE
    params_type = MilvusParams
    connection_type = MilvusConnection
    collection_type = MilvusCollection
    parse_address = staticmethod(parse_address)

    _collection: MilvusCollection = PrivateAttr()

    def __init__(self, url: str, **options: Unpack[StoreOptions]) -> None:
        super().__init__(url, **options)

    @property
    def features(self) -> EngineFeatures:
        """Vector and keyword search, each with a request of its own: `hybrid_search` only fuses."""
        adds = self._collection.connection.is_lite and self.distance != "euclid"
        return EngineFeatures(
            dense=SCORE_RANGES[self.distance],
            keyword=BM25_RANGE,
            most_hits=MAX_HITS,
            fusions=(_BY_RANK, _BY_SUM) if adds else (_BY_RANK,),
        )

    @property
    def client(self) -> MilvusClient:
        """The client of pymilvus."""
        return self._collection.connection.client

    def persist(self, persist_path: str = "", fs: object = None) -> None:  # noqa: ARG002 - LlamaIndex's
        """Make Milvus Lite index its log, which is durable already; a no-op on servers."""
        self.call(self._collection.flush, empty=None).function()

    def vector_search(self, embedding: Sequence[float], search: Search) -> ColumnSearch | None:
        """Return the search for the nearest nodes; None if the filter excludes all nodes."""
        collection, metric = self._collection, METRICS[self.distance]
        vector = self._checked(embedding, collection.where)
        if search.filter is False:
            return None
        params = dict(collection.params.search_params)
        if collection.index_type.startswith("HNSW"):
            params["ef"] = max(search.top_k, params.get("ef", 0))  # Milvus rejects a smaller ef
        leg = AnnSearchRequest(
            data=[vector],
            anns_field=DENSE,
            param={"metric_type": metric, "params": params},
            limit=search.top_k,
            expr=filter_text(search.filter),
        )
        return ColumnSearch(top_k=search.top_k, score=SCORES[metric], legs=[leg])

    def keyword_search(self, text: str, search: Search) -> ColumnSearch | None:
        """Return the search for shared terms; None without terms."""
        terms = joined_terms(self.tokenizer.query_terms(text))
        stops = " ".join(f"{term_id(word):x}" for word in self.tokenizer.query_stop_words(text))
        weights = self.field_weights(search)
        fields = column_matches(BM25, weights, self.field_schema, terms=terms, stop_words=stops)
        if search.filter is False or not fields:
            return None
        is_one = len(fields) == 1 and fields[0].weight == 1
        limit = search.top_k if is_one else min(max(search.top_k, _BEST_OF_FIELD), MAX_HITS)
        legs = [
            AnnSearchRequest(
                data=[field.terms],
                anns_field=field.column,
                param={"metric_type": "BM25"},
                limit=limit,
                expr=filter_text(search.filter),
            )
            for field in fields
        ]
        return ColumnSearch(
            top_k=search.top_k,
            score=SCORES["BM25"] if is_one else float,
            positive=True,
            legs=legs,
            weights=() if is_one else [field.weight for field in fields],
        )

    def fused_search(
        self, vector: ColumnSearch, keyword: ColumnSearch, how: FusedSearch, *, top_k: int
    ) -> ColumnSearch | None:
        """Return Milvus's fusion of two searches; None for a search of several fields."""
        if keyword.weights:
            return None
        legs, weight, rrf = [*vector.legs, *keyword.legs], how.weights[0], how.by_rank
        if rrf is None:
            ranker = WeightedRanker(*how.proportions, norm_score=False)
            return ColumnSearch(top_k=top_k, score=float, legs=legs, ranker=ranker)
        return ColumnSearch(
            top_k=top_k, score=lambda score: weight * score, legs=legs, ranker=RRFRanker(int(rrf.k))
        )

    def pages(
        self, searches: Sequence[ColumnSearch], *, with_nodes: bool
    ) -> Steps[list[list[Hit]]]:
        """Send searches, one after the other."""
        most = max(max(part.top_k, *(leg.limit for leg in part.legs)) for part in searches)
        if most > MAX_HITS:
            raise ConfigurationError(f"Milvus returns at most {MAX_HITS} hits, got top_k={most}")
        options = {
            "output_fields": [NODE] if with_nodes else [],
            "timeout": self._collection.connection.timeout_s,
        }

        def send(client: MilvusClient) -> list[list[Hit]]:
            return [list(self._send(client, search, options)) for search in searches]

        pages: list[list[Hit]] = yield self._collection.loaded(send)
        return pages

    def _send(self, client: MilvusClient, search: ColumnSearch, options: Mapping[str, Any]) -> Any:  # noqa: ANN401 - pymilvus's hits
        name, limit = self._collection.name, search.top_k
        if search.ranker is not None:
            return client.hybrid_search(name, [*search.legs], search.ranker, limit, **options)[0]
        if not search.weights:
            return self._search(client, search.legs[0], options)
        scores: dict[str, float] = {}
        for leg, weight in zip(search.legs, search.weights, strict=True):
            for hit in self._search(client, leg, {**options, "output_fields": []}):
                scores[hit[ID]] = scores.get(hit[ID], 0.0) + weight * abs(float(hit["distance"]))
        best = sorted(scores, key=lambda key: (-scores[key], key))[:limit]
        rows: dict[str, Hit] = {}
        if options["output_fields"] and best:
            matching, columns = filter_text(one_of(ID, best)), [ID, NODE]
            stored = client.query(name, matching, columns, timeout=options["timeout"])
            rows = {row[ID]: row for row in stored}  # one that was deleted meanwhile is missing
            best = [key for key in best if key in rows]
        return [{ID: k, "distance": scores[k], "entity": rows.get(k, {})} for k in best]

    def _search(
        self, client: MilvusClient, leg: AnnSearchRequest, options: Mapping[str, Any]
    ) -> Any:  # noqa: ANN401 - pymilvus's hits
        return client.search(
            self._collection.name,
            data=leg.data,  # pyright: ignore[reportArgumentType]
            anns_field=leg.anns_field,
            filter=leg.expr or "",
            limit=leg.limit,
            search_params=leg.param,
            **options,
        )[0]

    def scores(self, search: ColumnSearch, hits: Sequence[Hit]) -> list[float]:
        """Return our scores of hits, whose ``distance`` is Milvus's."""
        return [search.score(float(hit["distance"])) for hit in hits]

    def candidate(self, hit: Hit, score: float) -> Candidate:
        """Return the candidate of a hit."""
        return Candidate(hit["entity"][NODE], score)

    def _location(self) -> Mapping[str, object]:
        return {
            "place": self._collection.connection.where,
            "collection": self._collection.name,
            "nodes": self.count(),
        }


open_milvus: Final = MilvusStore
