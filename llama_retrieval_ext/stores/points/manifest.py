"""How a store of the Qdrant family is set up, and what opening one asks for."""

from dataclasses import dataclass, replace
from typing import get_args

from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError
from llama_retrieval_ext.stores.nodes.distance import Distance
from llama_retrieval_ext.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Manifest:
    """How a store is set up.

    Attributes:
        tokenizer: Cuts documents and queries into terms.
        distance: How embeddings are compared.
        dimension: Length of the embeddings; None until the first ones are added.
        average_length: Mean number of terms that the weights of BM25 are computed with; None until
            the first nodes are added.
    """

    tokenizer: Tokenizer
    distance: Distance = "cosine"
    dimension: int | None = None
    average_length: float | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What the one who opens a store asks for; None takes what is recorded, or the default."""

    tokenizer: Tokenizer | None = None
    distance: Distance | None = None
    dimension: int | None = None

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

    def applied(self, recorded: Manifest | None, where: object) -> Manifest:
        """The manifest of a store that is opened with these settings.

        Args:
            recorded: What the store has; None for a new one.
            where: The store, for messages.

        Raises:
            ConfigurationError: The store has another tokenizer or distance.
            DimensionMismatchError: The store has another dimension.
        """
        if recorded is None or recorded.dimension is None:
            old = recorded or Manifest(Tokenizer())
            return replace(
                old,
                tokenizer=self.tokenizer or old.tokenizer,
                distance=self.distance or old.distance,
                dimension=self.dimension,
            )
        for name in ("tokenizer", "distance"):
            asked, has = getattr(self, name), getattr(recorded, name)
            if asked is not None and asked != has:
                raise ConfigurationError(
                    f"{where} was made with {name}={has!r}, not {asked!r}; leave {name} out, or "
                    "use another store"
                )
        if self.dimension not in (None, recorded.dimension):
            raise DimensionMismatchError(
                f"{where} holds embeddings of dimension {recorded.dimension}, not "
                f"{self.dimension}; leave dim out, or use another store"
            )
        return recorded
