"""Index of a store: config, mapping and creation."""

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from llama_retrieval_ext.stores.elasticsearch.client import (
    HttpRequest,
    Json,
    Requests,
    Transport,
    hits_of,
    json_request,
    read,
)
from llama_retrieval_ext.stores.elasticsearch.filters import DOC, PIECES, TERMS
from llama_retrieval_ext.stores.elasticsearch.params import SIMILARITY_NAMES, IndexParams
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.collection import Collection
from llama_retrieval_ext.stores.engine.config import StoreConfig

FORMAT: Final = 3
# A server's default limit of hits, and of candidates that it examines.
WINDOW: Final = 10_000
_META: Final = "llama_retrieval_ext"
_WINDOW: Final = "max_result_window"
# A missing index returns no hits; a missing shard fails the search: no partial results.
SEARCH_PARAMS: Final = {"ignore_unavailable": "true", "allow_partial_search_results": "false"}
_MISSING_IS_EMPTY: Final = {"ignore_unavailable": "true"}

ID: Final = "id"
NODE: Final = "node"
TEXT: Final = "text"
VECTOR: Final = "vector"

# Requests the nodes of hits; the engine need not parse their source.
STORED_NODES: Final[Json] = {"_source": False, "stored_fields": [NODE]}

# The same parameters for every engine of this package.
_BM25: Final = {"type": "BM25", "k1": 1.2, "b": 0.75}
# For matching whole terms only, so without columns on disk.
_KEYWORD: Final = {"type": "keyword", "doc_values": False}
# Decimals of vectors of length 1: single precision has no more digits.
_DECIMALS: Final = 8
# The default: scores in full precision.
_EXACT: Final = {"type": "hnsw"}


def _cosine(score: float) -> float:
    return min(1.0, max(-1.0, 2.0 * score - 1.0))


def _dot(score: float) -> float:
    return score - 1.0 if score >= 1.0 else 1.0 - 1.0 / score


def _negative_distance(score: float) -> float:
    return -math.sqrt(max(0.0, 1.0 / score - 1.0))


# Converts the engine's scores to ours.
SCORES: Final[Mapping[Distance, Callable[[float], float]]] = {
    "cosine": _cosine,
    "dot": _dot,
    "euclid": _negative_distance,
}


def compact_vector(vector: list[float], distance: Distance) -> list[float] | None:
    """Return a vector in few digits, of length 1 for cosine; None for zeros with cosine.

    Examples:
        >>> compact_vector([3.0, 4.0], "cosine"), compact_vector([0.0, 0.0], "cosine")
        ([0.6, 0.8], None)

    """
    values = np.asarray(vector, dtype=np.float64)
    if distance != "cosine":
        single: list[float] = values.astype(np.float32).tolist()
        return single
    largest = float(np.abs(values).max())
    if largest == 0.0:
        return None
    values = values / largest  # avoids overflow and underflow of the squares
    short: list[float] = np.round(values / np.linalg.norm(values), _DECIMALS).tolist()
    return short


def index_body(config: StoreConfig, params: IndexParams) -> Json:
    """Return the settings and the mapping of a new index."""
    numbers = {
        "number_of_shards": params.number_of_shards,
        "number_of_replicas": params.number_of_replicas,
    }
    counts = {name: number for name, number in numbers.items() if number is not None}
    own: Json = {
        ID: {"type": "keyword"},
        DOC: _KEYWORD,
        # Stored separately, too: the source contains the embedding, and is slower to read.
        NODE: {"type": "text", "index": False, "norms": False, "store": True},
        TEXT: {
            "type": "text",
            "analyzer": config.params.get("analyzer", "whitespace"),
            "index_options": "freqs",
        },
        TERMS: _KEYWORD,
        PIECES: _KEYWORD,
        VECTOR: {
            "type": "dense_vector",
            "dims": config.dimension,
            "similarity": SIMILARITY_NAMES[config.distance],
            "index": True,
            "index_options": dict(params.index_options or _EXACT),
        },
    }
    return {
        "settings": {"similarity": {"default": _BM25}, **counts, **params.settings},
        "mappings": {
            # An undeclared field is an error; it must not extend the mapping.
            "dynamic": "strict",
            "_meta": {_META: {"format": FORMAT, **config.to_dict()}},
            "_routing": {"required": bool(config.params.get("routing"))},
            "properties": own,
        },
    }


class Index(Collection[StoreConfig, Transport, IndexParams]):
    """An Elasticsearch index.

    Attributes:
        is_small: Whether the last search found fewer nodes than it requested.
        window: Maximum number of hits of a search, at most `WINDOW`.
    """

    kind = "index"
    format = FORMAT
    config_type = StoreConfig
    llama_index_store = "ElasticsearchStore"
    is_small = False
    window = WINDOW

    @property
    def is_routed(self) -> bool:
        """Whether all nodes of a tenant are on one shard."""
        return bool(self.config.params.get("routing"))

    def recorded(self) -> Requests[StoreConfig | None]:
        """Return the recorded config; None if the index does not exist."""
        description = yield json_request("GET", self.name, params=_MISSING_IS_EMPTY)
        if not description:
            return None
        settings = [each.get("settings", {}).get("index", {}) for each in description.values()]
        self.window = min(WINDOW, *(int(setting.get(_WINDOW, WINDOW)) for setting in settings))
        # A name could be an alias of several indices.
        metas = [each.get("mappings", {}).get("_meta", {}) for each in description.values()]
        return self.config_of(metas[0].get(_META) if len(metas) == 1 else None)

    def make(self, config: StoreConfig) -> Requests[None]:
        """Create the index."""
        yield json_request("PUT", self.name, body=index_body(config, self.params))
        yield from self.recorded()  # a template of the server may set a window

    def remove(self) -> Requests[None]:
        """Delete the index; raise if this package did not create it."""
        yield from self.look_up(again=True)
        yield json_request("DELETE", self.name, params=_MISSING_IS_EMPTY)

    def hits(self, body: Json, params: Mapping[str, str] = SEARCH_PARAMS) -> Requests[list[Json]]:
        """Return the hits of one search."""
        request = json_request("POST", self.name, "_search", params=params, body=body)
        return (yield from read(request, hits_of))

    def refresh_request(self) -> HttpRequest:
        """Return the request that makes written nodes visible to searches."""
        return json_request("POST", self.name, "_refresh", params=_MISSING_IS_EMPTY)
