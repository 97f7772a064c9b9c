"""`Setup`: how a store of ours is set up."""

from collections.abc import Mapping
from typing import Protocol

from llama_retrieval_ext.stores.nodes.distance import Distance
from llama_retrieval_ext.text.tokenizer import Tokenizer


class Setup(Protocol):
    """How a store is set up; its engine may know more."""

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts text into terms."""
        ...

    @property
    def distance(self) -> Distance:
        """How embeddings are compared."""
        ...

    @property
    def dimension(self) -> int | None:
        """Dimension of the embeddings; None while it is not known."""
        ...

    @property
    def params(self) -> Mapping[str, object]:
        """Settings of the engine that it was made with, as JSON has them."""
        ...
