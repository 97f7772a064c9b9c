"""Digests: whether a document is still what it was when it was stored."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from struct import pack

from llama_index.core.schema import BaseNode, Node, TransformComponent
from pydantic_core import PydanticSerializationError

from llama_retrieval_ext.errors import ConfigurationError

# Addresses of objects differ from run to run.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def digest_of(nodes: Iterable[BaseNode], fingerprint: str = "") -> str:
    """A digest of everything that decides what is stored of a document.

    Args:
        nodes: The document, or its nodes, in order: text, metadata, relationships, ids, embeddings
            and how their text is put together.
        fingerprint: Of the transformations the document goes through.

    Returns:
        32 hexadecimal digits, the same in every process.

    Raises:
        ConfigurationError: Something in a node has no JSON form.
    """
    digest = blake2b(fingerprint.encode(), digest_size=16)
    for each in nodes:
        node = each.model_copy(update={"metadata": _in_order(each.metadata)})
        digest.update(_content(node))
        if isinstance(node, Node):
            digest.update(node.hash.encode())  # media, which the JSON leaves out
        if node.embedding is not None:
            digest.update(pack(f"{len(node.embedding)}d", *node.embedding))
    return digest.hexdigest()


def fingerprint_of(transformations: Sequence[TransformComponent]) -> str:
    """What the transformations are and how they are set up, as far as they tell."""
    told = [(type(each).__qualname__, each.to_dict()) for each in transformations]
    return _ADDRESS.sub("", repr(told))


def _in_order(value: object) -> object:
    """The same, with lists for sets, whose order differs from process to process."""
    if isinstance(value, Mapping):
        return {key: _in_order(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_in_order(each) for each in value]
    return sorted(value, key=repr) if isinstance(value, AbstractSet) else value


def _content(node: BaseNode) -> bytes:
    try:
        return node.model_dump_json(exclude={"embedding"}).encode()
    except PydanticSerializationError:
        pass  # perhaps only lone surrogates, which Python's own JSON escapes
    try:
        return json.dumps(node.model_dump(mode="json", exclude={"embedding"})).encode()
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{node.node_id!r} has something in its metadata that cannot be stored ({error}); "
            "use strings, numbers, booleans, and lists or dicts of them"
        ) from error
