"""What an index says about itself, in its mapping's ``_meta``, and what opening it asks for."""

from dataclasses import dataclass
from typing import Final, Self, get_args

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DimensionMismatchError,
    StoreFormatError,
)
from llama_retrieval_ext.stores.elasticsearch.request import Json
from llama_retrieval_ext.stores.nodes.distance import Distance
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
    """

    tokenizer: Tokenizer
    distance: Distance = "cosine"
    dimension: int | None = None
    analyzer: str | None = None
    routing: bool = False

    def to_json(self) -> Json:
        """What is recorded."""
        return {
            "format": FORMAT,
            "tokenizer": self.tokenizer.to_dict(),
            "distance": self.distance,
            "dimension": self.dimension,
            "analyzer": self.analyzer,
            "routing": self.routing,
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
        return cls(tokenizer, **rest)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the one who opens a store asks for; None takes what is recorded, or the default."""

    tokenizer: Tokenizer | None = None
    distance: Distance | None = None
    dimension: int | None = None
    analyzer: str | None = None
    routing: bool = False

    def __post_init__(self) -> None:
        if self.distance is not None and self.distance not in get_args(Distance):
            raise ConfigurationError(
                f"distance must be one of {get_args(Distance)}, got {self.distance!r}"
            )
        if self.dimension is not None and self.dimension < 1:
            raise ConfigurationError(
                f"dim must be at least 1, got {self.dimension}; to take it from the first node, "
                "leave it out"
            )

    def checked(self, recorded: Manifest | None, index: str) -> Manifest:
        """The manifest of a store that is opened so.

        Args:
            recorded: What the index has; None where there is none yet.
            index: Its name, for messages.

        Raises:
            ConfigurationError: The index has another tokenizer, distance or analyser.
            DimensionMismatchError: It has another dimension.
        """
        if recorded is None:
            return Manifest(
                self.tokenizer or Tokenizer(),
                self.distance or "cosine",
                self.dimension,
                self.analyzer,
                self.routing,
            )
        for name in ("tokenizer", "distance", "analyzer", "routing"):
            asked, has = getattr(self, name), getattr(recorded, name)
            if asked and asked != has:
                raise ConfigurationError(
                    f"the index {index!r} was made with {name}={has!r}, not {asked!r}; leave "
                    f"{name} out, or use another index"
                )
        if self.dimension not in (None, recorded.dimension):
            raise DimensionMismatchError(
                f"the index {index!r} holds embeddings of dimension {recorded.dimension}, not "
                f"{self.dimension}; leave dim out, or use another index"
            )
        return recorded
