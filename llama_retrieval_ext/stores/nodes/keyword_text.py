"""The text of a node that keyword search looks into."""

from typing import Final

from llama_index.core.schema import BaseNode, MetadataMode

from llama_retrieval_ext.query import KB_KEY, TENANT_KEY

_SCOPE_KEYS: Final = (TENANT_KEY, KB_KEY)


def keyword_text(node: BaseNode) -> str:
    r"""What an embedding model would see of a node, without the ids of its tenant and base.

    So a title in the metadata is found, and ``excluded_embed_metadata_keys`` counts here, too.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> keyword_text(TextNode(text="25 days", metadata={"title": "Leave", "tenant_id": "acme"}))
        'title: Leave\n\n25 days'

    """
    shown = set(node.metadata).difference(node.excluded_embed_metadata_keys)
    if shown.isdisjoint(_SCOPE_KEYS):
        return node.get_content(MetadataMode.EMBED)
    hidden = [*node.excluded_embed_metadata_keys, *_SCOPE_KEYS]
    bare = node.model_copy(update={"excluded_embed_metadata_keys": hidden})
    return bare.get_content(MetadataMode.EMBED)
