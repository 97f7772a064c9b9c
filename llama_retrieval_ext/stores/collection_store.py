"""`CollectionStore`: what all stores have in common that are a collection among others."""

from typing import Protocol, Self, runtime_checkable

from llama_retrieval_ext.text.tokenizer import Tokenizer


@runtime_checkable
class CollectionStore(Protocol):
    """A store in a collection of an engine that has room for others."""

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts text into terms."""
        ...

    @property
    def dimension(self) -> int | None:
        """Dimension of the embeddings; None while the collection is not made."""
        ...

    def count(self) -> int:
        """How many nodes there are."""
        ...

    def beside(self, suffix: str) -> Self:
        """A store in a collection with a longer name, for records that are read by id.

        It is open as long as this one; closing either closes both.
        """
        ...

    def clear(self) -> None:
        """Drop the collection; nothing happens where there is none."""
        ...

    def close(self) -> None:
        """Close it."""
        ...
