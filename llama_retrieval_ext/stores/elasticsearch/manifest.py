"""What an index says about itself, in its mapping's ``_meta``, and what opening it asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Self

from llama_retrieval_ext.errors import StoreFormatError
from llama_retrieval_ext.stores.asked_setup import AskedSetup
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
class Asked(AskedSetup):
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
