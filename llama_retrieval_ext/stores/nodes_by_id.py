"""Reading nodes of a store by their ids, in one request."""

from collections.abc import Sequence

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.stores.generic import GenericBackend


def nodes_by_id(backend: Backend, ids: Sequence[str]) -> Call[dict[str, BaseNode]]:
    """Return the nodes with these ids; ids that the store does not have are left out.

    Args:
        backend: The backend of the store.
        ids: Node ids; empty returns no nodes.

    Raises:
        ConfigurationError: The store cannot return nodes by id.
    """
    node_ids, store = list(dict.fromkeys(ids)), backend.store
    if not node_ids:  # some stores return every node for an empty list
        return Call(dict, _nothing)
    if isinstance(backend, GenericBackend) and backend.lookup is not None:
        lookup = backend.lookup
        return Call(lambda: dict(lookup(node_ids)))

    def read() -> dict[str, BaseNode]:
        try:
            return {node.node_id: node for node in store.get_nodes(node_ids=node_ids)}
        except NotImplementedError as error:
            raise _unreadable(store) from error

    async def aread() -> dict[str, BaseNode]:
        try:
            return {node.node_id: node for node in await store.aget_nodes(node_ids=node_ids)}
        except NotImplementedError as error:
            raise _unreadable(store) from error

    is_async = type(store).aget_nodes is not BasePydanticVectorStore.aget_nodes
    return Call(read, aread if is_async else None)


async def _nothing() -> dict[str, BaseNode]:
    return {}


def _unreadable(store: BasePydanticVectorStore) -> ConfigurationError:
    return ConfigurationError(
        f"{type(store).__name__} cannot give nodes by their ids, which graphs know them by; pass a "
        "VectorStoreIndex with a docstore, or a store opened by URL"
    )
