"""Nodes carry the scope of their document in their metadata, where no model reads it."""

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ScopeError
from llama_retrieval_ext.ingest.documents import DocumentKey
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY


def stamped(node: BaseNode, key: DocumentKey) -> BaseNode:
    """The node, or a copy of it, that carries the tenant and knowledge base of its document.

    Neither is part of the text that is embedded, searched by keyword, or shown to an LLM.

    Raises:
        ScopeError: The node says that it belongs elsewhere: a transformation moved it.
    """
    place = {TENANT_KEY: key.tenant, KB_KEY: key.kb}
    for name, value in place.items():
        claimed = node.metadata.get(name)
        if isinstance(claimed, str) and claimed != value:
            raise ScopeError(
                f"a transformation gave a node of document {key.ref!r} {name}={claimed!r}, and "
                f"the document has {value or 'none'!r}; pass scope= instead"
            )
    metadata = {name: value for name, value in place.items() if value}
    if not metadata:
        return node
    return node.model_copy(
        update={
            "metadata": {**node.metadata, **metadata},
            "excluded_embed_metadata_keys": _with(node.excluded_embed_metadata_keys, metadata),
            "excluded_llm_metadata_keys": _with(node.excluded_llm_metadata_keys, metadata),
        }
    )


def _with(keys: list[str], more: dict[str, str]) -> list[str]:
    return list(dict.fromkeys([*keys, *more]))
