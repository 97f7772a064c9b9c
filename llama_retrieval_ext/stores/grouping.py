"""`GroupingBackend`: what an engine says that finds a few nodes of each document by itself."""

from typing import Protocol, runtime_checkable

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.stores.backend import Asked, Backend, Found


@runtime_checkable
class GroupingBackend(Backend, Protocol):
    """A backend whose engine looks for more until it has found enough documents."""

    def grouped(self, asked: Asked, size: int) -> Call[list[Found]]:
        """The best nodes of the best documents, best first.

        Of nodes that tie where they are cut the engine chooses, and engines give up looking at some
        time: whoever needs the exact ranking must look whether it depends on that.

        Args:
            asked: A search; its ``top_k`` counts documents.
            size: How many nodes of each at most. A node without a document counts as one.

        Raises:
            UnsupportedModeError: The store has no such search.
            UnsupportedFilterError: The store cannot evaluate the condition; nothing was sent.
            DimensionMismatchError: The embedding does not have the store's dimension.
        """
        ...


def grouping(backend: Backend) -> GroupingBackend:
    """The backend as one that groups.

    Raises:
        UnsupportedModeError: It is none.
    """
    if not isinstance(backend, GroupingBackend):
        raise UnsupportedModeError(f"{type(backend).__name__} does not group by itself")
    return backend
