"""`Searcher`: what can be asked of an engine of ours."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from llama_retrieval_ext.stores.backend import Sought
from llama_retrieval_ext.stores.native_fusion import FusedSearch

W_contra = TypeVar("W_contra", contravariant=True)

# A ranking, or the engine's steps to one: whoever carries them out knows.
Answer: TypeAlias = Any


class Searcher(Protocol[W_contra]):
    """Asks an engine. Rankings come best first, ties by node id; an empty store gives [].

    How many are wanted, and which nodes may come, each engine says in a type of its own.
    """

    def dense(self, embedding: Sequence[float], wanted: W_contra) -> Answer:
        """Nearest nodes to an embedding."""
        ...

    def keyword(self, text: str, wanted: W_contra) -> Answer:
        """Nodes that share terms with a text, by BM25; each has a score above 0."""
        ...

    def batch(self, asked: Sequence[tuple[Sought, W_contra]]) -> Answer:
        """Any number of the above, in as few requests as the engine can."""
        ...


class FusingSearcher(Searcher[W_contra], Protocol[W_contra]):
    """Asks an engine that fuses by itself."""

    def fused(
        self, embedding: Sequence[float], text: str, wanted: W_contra, how: FusedSearch
    ) -> Answer:
        """The best of vector and keyword search as the engine fuses them."""
        ...


@runtime_checkable
class DiverseSearcher(Searcher[W_contra], Protocol[W_contra]):
    """Asks an engine that has MMR."""

    def diverse(
        self, embedding: Sequence[float], wanted: W_contra, *, lambda_mult: float, candidates: int
    ) -> Answer:
        """Near nodes that do not repeat each other, in the order picked."""
        ...
