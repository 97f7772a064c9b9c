"""How a store of the Qdrant family is set up, and what opening one asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from llama_retrieval_ext.stores.asked_setup import AskedSetup
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
        generation: Which of the shards in a directory counts: one more each time that it was
            compacted.
        params: Settings of the engine that it was made with.
    """

    tokenizer: Tokenizer
    distance: Distance = "cosine"
    dimension: int | None = None
    average_length: float | None = None
    generation: int = 0
    params: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings(AskedSetup):
    """What the one who opens a store asks for; None takes what is recorded, or the default."""

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
                params=self.params or {},
            )
        self.check(recorded, where)
        return recorded
