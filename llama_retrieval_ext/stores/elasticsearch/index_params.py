"""What a user may say about the index that a store makes for itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.made_with import made_with

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
