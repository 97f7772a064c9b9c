"""The index of a store: whether it is there, how it is set up, and how it comes to be.

How embeddings are compared, and the engine's scores turned back into what they stand for.

The engine makes every similarity positive: https://www.elastic.co/guide/en/elasticsearch/reference/8.19/dense-vector.html
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final, Self

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DimensionMismatchError,
    StoreError,
    StoreFormatError,
)
from llama_retrieval_ext.stores.elasticsearch.filters import PIECES, TERMS
from llama_retrieval_ext.stores.elasticsearch.requests import Json, Request, Steps, request
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.backend import ScoreRange
from llama_retrieval_ext.stores.engine.config import ConfigRequest, made_with
from llama_retrieval_ext.text.tokenizer import Tokenizer

FORMAT: Final = 1
META: Final = "llama_retrieval_ext"


@dataclass(frozen=True, slots=True)
class Manifest:
    """How an index is set up.

    Attributes:
        tokenizer: Cuts documents and queries into terms.
        distance: How embeddings are compared.
        dimension: Length of the embeddings; None until the index is made.
        analyzer: The server's analyser that does the tokenizer's work; None for the tokenizer.
        routing: Whether a tenant's nodes lie on one shard.
        params: What else the server was told when it was made.
    """

    tokenizer: Tokenizer
    distance: Distance = "cosine"
    dimension: int | None = None
    analyzer: str | None = None
    routing: bool = False
    params: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> Json:
        """What is recorded."""
        return {
            "format": FORMAT,
            "tokenizer": self.tokenizer.to_dict(),
            "distance": self.distance,
            "dimension": self.dimension,
            "analyzer": self.analyzer,
            "routing": self.routing,
            "params": dict(self.params),
        }

    @classmethod
    def of_index(cls, told: Json, index: str) -> Self | None:
        """What an index records; None where there is no index.

        Args:
            told: The engine's description of every index by that name.
            index: The name.

        Raises:
            StoreFormatError: The index is none of ours, is from a newer release, or there are two.
        """
        if not told:
            return None
        metas = [each.get("mappings", {}).get("_meta", {}).get(META) for each in told.values()]
        data = metas[0]
        if len(metas) > 1 or not isinstance(data, dict):
            raise StoreFormatError(
                f"the Elasticsearch index {index!r} was not made by this package; name another "
                "one, or hand in the LlamaIndex ElasticsearchStore that it belongs to"
            )
        if data.get("format") != FORMAT:
            raise StoreFormatError(
                f"the index {index!r} has format {data.get('format')!r}, this release "
                f"reads {FORMAT}; install the release that wrote it, or index the documents again"
            )
        tokenizer = Tokenizer.from_dict(data["tokenizer"])
        rest = {name: data[name] for name in ("distance", "dimension", "analyzer", "routing")}
        return cls(tokenizer, **rest, params=data.get("params", {}))


@dataclass(frozen=True, slots=True)
class RequestedConfig(ConfigRequest):
    """What the one who opens a store asks for; None takes what is recorded, or the default."""

    kept_in: ClassVar[str] = "index"
    also_called: ClassVar[Mapping[str, str]] = {
        "routing": "routing (of a knowledge base: many_tenants)"
    }

    analyzer: str | None = None
    routing: bool | None = None

    def checked(self, recorded: Manifest | None, index: str) -> Manifest:
        """The manifest of a store that is opened so.

        Args:
            recorded: What the index has; None where there is none yet.
            index: Its name, for messages.

        Raises:
            ConfigurationError: The index has another tokenizer, distance or setting.
            DimensionMismatchError: It has another dimension.
        """
        if recorded is None:
            return Manifest(
                self.tokenizer or Tokenizer(),
                self.distance or "cosine",
                self.dimension,
                self.analyzer,
                bool(self.routing),
                dict(self.params or {}),
            )
        self.check(recorded, f"the index {index!r}")
        return recorded


_KEPT: Final = ("number_of_shards", "number_of_replicas", "index_options", "settings", "properties")


@dataclass(frozen=True, kw_only=True)
class IndexParams:
    """How the index is made.

    All but ``num_candidates`` counts when the index is made. Of one that is there it must be what
    it was made with, or be left out.

    Attributes:
        number_of_shards: Parts that the index is spread over; None for the server's default, 1.
        number_of_replicas: Copies of each; None for the server's default, 1.
        index_options: How embeddings are indexed. ``hnsw``, the default, keeps scores exact;
            ``int8_hnsw`` and its like need a quarter of the memory and less, and score in that
            precision; ``flat`` compares every embedding.
        analyzer: One of the server's analysers for keyword search, in place of our tokenizer.
        routing: Whether a tenant's nodes lie on one shard, which its queries then go to alone: for
            many tenants, together with ``number_of_shards``. None for as it is, or no.
        num_candidates: How many nodes each shard looks at for its nearest, at least. 100, or twice
            ``top_k`` where that is more, is what Elastic recommends to begin with.
        settings: Further index settings, such as analysers.
        properties: Further fields of the mapping; ours stay as they are.

    Raises:
        ConfigurationError: A value is out of range.
    """

    number_of_shards: int | None = None
    number_of_replicas: int | None = None
    index_options: Mapping[str, Any] | None = None
    analyzer: str | None = None
    routing: bool | None = None
    num_candidates: int = 100
    settings: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        least = {"number_of_shards": 1, "number_of_replicas": 0, "num_candidates": 1}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < lowest):
                raise ConfigurationError(f"{name} must be at least {lowest}, got {value!r}")

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Self:
        """The parameters that a mapping names.

        Raises:
            ConfigurationError: It names others, too.
        """
        known = [each.name for each in fields(cls)]
        unknown = sorted(set(params).difference(known))
        if unknown:
            raise ConfigurationError(
                f"Elasticsearch has no store parameters {', '.join(unknown)}; it has "
                f"{', '.join(known)}"
            )
        return cls(**params)

    @property
    def recorded(self) -> Mapping[str, Any]:
        """What counts when the index is made, as JSON has it; some is recorded by itself."""
        return made_with(self, _KEPT)


# An index that is gone has no hits; one whose shards are in trouble must not give half of them.
SEARCH_PARAMS = {"ignore_unavailable": "true", "allow_partial_search_results": "false"}
_ABSENT_IS_EMPTY = {"ignore_unavailable": "true"}
_EXISTS = "resource_already_exists_exception"


class Index:
    """An index by its name, and what is known about it.

    Args:
        name: On the server.
        asked: What the one who opens the store asks for.
        params: How the index is made where it is not there yet.
    """

    def __init__(self, name: str, asked: RequestedConfig, params: IndexParams) -> None:
        self.name = name
        self.params = params
        self.manifest = asked.checked(None, name)
        self.is_there = False
        self.is_small = False  # as far as the last searches tell
        self._asked = asked

    def look(self) -> Steps[None]:
        """See whether it is there, and whether it is as asked.

        Raises:
            StoreFormatError: It is none of ours.
            ConfigurationError: It has another tokenizer, distance or setting.
            DimensionMismatchError: It has another dimension.
        """
        told = yield request("GET", self.name, params=_ABSENT_IS_EMPTY)
        recorded = Manifest.of_index(told, self.name)
        self.manifest = self._asked.checked(recorded, self.name)
        self.is_there = recorded is not None

    def known(self) -> Steps[bool]:
        """Whether it is there; looks again where it was not."""
        if not self.is_there:
            yield from self.look()
        return self.is_there

    def establish(self, dimension: int) -> Steps[Manifest]:
        """Make it if need be; every time, because a write to an index that is gone would make one.

        Args:
            dimension: Of the embeddings that are to be added.

        Raises:
            DimensionMismatchError: It takes another dimension.
        """
        yield from self.look()
        if not self.is_there:
            self.manifest = replace(self.manifest, dimension=self.manifest.dimension or dimension)
            try:
                yield self._creation()
            except StoreError as error:
                if _EXISTS not in str(error):
                    raise
            # Somebody else may have been first, with a dimension of their own.
            yield from self.look()
        if self.manifest.dimension != dimension:
            raise DimensionMismatchError(
                f"the nodes have embeddings of dimension {dimension}, the index {self.name!r} "
                f"takes {self.manifest.dimension}; use the embedding model that it was filled with"
            )
        return self.manifest

    def drop(self) -> Steps[None]:
        """Delete it; what is added next may have another dimension."""
        yield from self.look()  # so that nothing is deleted that is not ours
        yield request("DELETE", self.name, params=_ABSENT_IS_EMPTY)
        self.is_there = False

    def refresh(self) -> Request:
        """Make what was written visible to searches."""
        return request("POST", self.name, "_refresh", params=_ABSENT_IS_EMPTY)

    def _creation(self) -> Request:
        return request("PUT", self.name, body=index_body(self.manifest, self.params))


ID: Final = "id"
DOC: Final = "doc"
NODE: Final = "node"
TEXT: Final = "text"
VECTOR: Final = "vector"

# Every engine of this package weighs terms so.
_BM25: Final = {"type": "BM25", "k1": 1.2, "b": 0.75}
# Looked up by whole terms only: no columns on disk are needed for it.
_KEYWORD: Final = {"type": "keyword", "doc_values": False}
# Scores in full precision, where nothing else is asked for.
_EXACT: Final = {"type": "hnsw"}


def index_body(manifest: Manifest, params: IndexParams) -> Json:
    """Settings and mapping of a new index.

    Raises:
        ConfigurationError: The user's mapping has a field by the name of one of ours.
    """
    own: Json = {
        ID: {"type": "keyword"},
        DOC: _KEYWORD,
        # Kept beside the source as well, which holds the embedding and takes longer to read.
        NODE: {"type": "text", "index": False, "norms": False, "store": True},
        TEXT: {
            "type": "text",
            "analyzer": manifest.analyzer or "whitespace",
            "index_options": "freqs",
        },
        TERMS: _KEYWORD,
        PIECES: _KEYWORD,
        VECTOR: {
            "type": "dense_vector",
            "dims": manifest.dimension,
            "similarity": SIMILARITIES[manifest.distance].name,
            "index": True,
            "index_options": dict(params.index_options or _EXACT),
        },
    }
    clash = sorted(set(own).intersection(params.properties))
    if clash:
        raise ConfigurationError(
            f"the fields {', '.join(clash)} belong to the store; give yours other names"
        )
    return {
        "settings": _settings(params),
        "mappings": {
            # A field that nobody declared is a mistake, and must not become a mapping.
            "dynamic": "strict",
            "_meta": {META: manifest.to_json()},
            "_routing": {"required": manifest.routing},
            "properties": {**own, **params.properties},
        },
    }


def _settings(params: IndexParams) -> Mapping[str, Any]:
    counts = {
        name: getattr(params, name)
        for name in ("number_of_shards", "number_of_replicas")
        if getattr(params, name) is not None
    }
    return {"similarity": {"default": _BM25}, **counts, **params.settings}


@dataclass(frozen=True, slots=True)
class Similarity:
    """One way to compare embeddings.

    Attributes:
        name: The engine's name of it.
        range: What its scores mean here.
        raw: From the engine's score to ours; higher is better.
        checked_as: What embeddings are prepared for.
    """

    name: str
    range: ScoreRange
    raw: Callable[[float], float]
    checked_as: Distance


def _cosine(score: float) -> float:
    return min(1.0, max(-1.0, 2.0 * score - 1.0))


def _dot(score: float) -> float:
    return score - 1.0 if score >= 1.0 else 1.0 - 1.0 / score


def _negative_distance(score: float) -> float:
    return -math.sqrt(max(0.0, 1.0 / score - 1.0))


_COSINE: Final = Similarity("cosine", ScoreRange("cosine", -1.0, 1.0), _cosine, "cosine")

SIMILARITIES: Final[Mapping[Distance, Similarity]] = {
    "cosine": _COSINE,
    "dot": Similarity("max_inner_product", ScoreRange("dot"), _dot, "dot"),
    "euclid": Similarity(
        "l2_norm", ScoreRange("negative_distance", None, 0.0), _negative_distance, "euclid"
    ),
}
# The engine takes it for vectors of length 1 only, where it is the cosine.
_DOT_PRODUCT: Final = replace(_COSINE, name="dot_product")


def of_engine(name: str) -> Similarity:
    """The similarity that the engine calls so."""
    known = {each.name: each for each in (*SIMILARITIES.values(), _DOT_PRODUCT)}
    return known[name]
