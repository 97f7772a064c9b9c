"""What a collection says about itself, in its properties, and what opening it asks for."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

from llama_retrieval_ext.errors import StoreFormatError
from llama_retrieval_ext.stores.asked_setup import AskedSetup
from llama_retrieval_ext.stores.nodes.distance import Distance
from llama_retrieval_ext.text.tokenizer import Tokenizer

FORMAT: Final = 3
PROPERTY: Final = "llama_retrieval_ext"


@dataclass(frozen=True, slots=True)
class Manifest:
    """How a collection is set up.

    Attributes:
        tokenizer: Cuts documents and queries into terms.
        distance: How embeddings are compared.
        dimension: Length of the embeddings; None until the collection is made.
        analyzer: Milvus's own analyser, which does the tokenizer's work; None for the tokenizer.
        by_tenant: Whether the tenant is the partition key.
        params: What else Milvus was told when it was made.
    """

    tokenizer: Tokenizer
    distance: Distance = "cosine"
    dimension: int | None = None
    analyzer: Mapping[str, Any] | None = None  # Any: JSON
    by_tenant: bool = False
    params: Mapping[str, Any] = field(default_factory=dict)

    def to_text(self) -> str:
        """What is recorded."""
        data = {
            "format": FORMAT,
            "tokenizer": self.tokenizer.to_dict(),
            "distance": self.distance,
            "dimension": self.dimension,
            "analyzer": None if self.analyzer is None else dict(self.analyzer),
            "by_tenant": self.by_tenant,
            "params": dict(self.params),
        }
        return json.dumps(data)

    @classmethod
    def of_properties(cls, properties: Mapping[str, str], where: str) -> Self:
        """What a collection records.

        Args:
            properties: Of the collection.
            where: The collection, for messages.

        Raises:
            StoreFormatError: The collection is none of ours, or from a newer release.
        """
        try:
            data = json.loads(properties[PROPERTY])
            if data["format"] == FORMAT:
                rest = {k: data[k] for k in ("distance", "dimension", "analyzer", "by_tenant")}
                params = data["params"]
                return cls(Tokenizer.from_dict(data["tokenizer"]), **rest, params=params)
        except (KeyError, TypeError, ValueError) as error:
            raise StoreFormatError(
                f"{where} was not made by this package; name another collection, or hand in the "
                "LlamaIndex MilvusVectorStore that it belongs to"
            ) from error
        raise StoreFormatError(
            f"{where} has format {data['format']!r}, this release reads {FORMAT}; install the "
            "release that wrote it, or index the documents again"
        )


@dataclass(frozen=True, slots=True)
class Asked(AskedSetup):
    """What the one who opens a store asks for; None takes what is recorded, or the default."""

    kept_in: ClassVar[str] = "collection"
    also_called: ClassVar[Mapping[str, str]] = {
        "by_tenant": "by_tenant (of a knowledge base: many_tenants)"
    }

    analyzer: Mapping[str, Any] | None = None  # Any: JSON
    by_tenant: bool | None = None

    @property
    def fresh(self) -> Manifest:
        """The manifest of a collection that is made so."""
        return Manifest(
            self.tokenizer or Tokenizer(),
            self.distance or "cosine",
            self.dimension,
            self.analyzer,
            bool(self.by_tenant),
            dict(self.params or {}),
        )

    def with_dimension(self, dimension: int) -> Manifest:
        """The manifest of a new collection for such embeddings, unless others are asked for."""
        return replace(self.fresh, dimension=self.dimension or dimension)
