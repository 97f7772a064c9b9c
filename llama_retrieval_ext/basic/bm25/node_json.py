"""LlamaIndex nodes as JSON, of the class they were and with all they have."""

import json
from collections.abc import Mapping
from typing import Final

from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    TextNode,
)

from llama_retrieval_ext.errors import ConfigurationError

# By name and never by a path to import: what is read may have been written by somebody else.
_CLASSES: Final[Mapping[str, type[BaseNode]]] = {
    cls.class_name(): cls for cls in (Document, ImageDocument, ImageNode, IndexNode, Node, TextNode)
}


def node_to_json(node: BaseNode) -> str:
    """The node as one line of ASCII.

    Raises:
        ConfigurationError: The node would not come back as it is: it is of a class that LlamaIndex
            does not have, or holds something that JSON has not.

    Examples:
        >>> node_from_json(node_to_json(TextNode(id_="n1", text="..."))).node_id
        'n1'

    """
    if _CLASSES.get(node.class_name()) is not type(node):
        raise ConfigurationError(
            f"node {node.node_id!r} is a {type(node).__name__}; only LlamaIndex's own node classes "
            f"can be written: {', '.join(_CLASSES)}"
        )
    if isinstance(node, IndexNode) and not isinstance(node.obj, BaseNode | None):
        raise ConfigurationError(
            f"node {node.node_id!r} stands for a {type(node.obj).__name__}, which cannot be "
            "written; give it an index_id instead of obj"
        )
    try:
        return json.dumps(_fields(node))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"node {node.node_id!r} cannot be written as JSON: {error}; metadata may hold strings, "
            "numbers, booleans, None, lists and dicts"
        ) from error


def _fields(node: BaseNode) -> dict[str, object]:
    fields: dict[str, object] = node.to_dict()
    for name in type(node).model_fields:
        resource = getattr(node, name)
        if isinstance(resource, MediaResource) and resource.data is not None:
            # Base64, and left out by to_dict.
            fields[name] = {**resource.model_dump(mode="json"), "data": resource.data.decode()}
    return fields


def node_from_json(line: str | bytes) -> BaseNode:
    """The node that `node_to_json` wrote.

    Raises:
        KeyError: It names no class of LlamaIndex.
        ValueError: It is no JSON of a node.
    """
    data = json.loads(line)
    return _CLASSES[data["class_name"]].from_dict(data)
