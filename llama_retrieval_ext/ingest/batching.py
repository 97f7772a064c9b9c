"""As much of a knowledge base as is worked on at once."""

from collections.abc import Iterable, Iterator, Sequence

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.ingest.ledger import Entry

# In memory at once, each with its embedding, and in one request.
_MANY_NODES = 1000


def batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """The same documents, about a thousand nodes at a time."""
    batch: list[Entry] = []
    weight = 0
    for entry in entries:
        batch.append(entry)
        weight += entry.n_nodes
        if weight >= _MANY_NODES:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


def stored_nodes(store: BasePydanticVectorStore, ids: Sequence[str]) -> Iterator[BaseNode]:
    """The nodes with these ids, in their order; those that are not there are left out."""
    for start in range(0, len(ids), _MANY_NODES):
        yield from store.get_nodes(node_ids=list(ids[start : start + _MANY_NODES]))
