"""`document_key`: what engines go by that find a few nodes of each source."""

import json
from hashlib import blake2b
from typing import Final

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.query import source_of_node

# Characters of every key.
KEY_LENGTH: Final = 32


def document_key(node: BaseNode) -> str:
    """A text that the nodes of a source have in common, and others have not.

    A node without a source is one by itself. Nodes that older versions wrote have one for each
    document, which is a part of a source.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> alone = TextNode(id_="n1")
        >>> document_key(alone) == document_key(alone) != document_key(TextNode(id_="n2"))
        True

    """
    identity = source_of_node(node) or (node.node_id,)
    return blake2b(json.dumps(identity).encode(), digest_size=KEY_LENGTH // 2).hexdigest()
