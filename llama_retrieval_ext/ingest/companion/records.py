"""Records, which are texts with a name, as nodes: what every engine keeps.

A record is one node, its head, which is replaced as a whole or not at all. What does not fit lies
in parts, under ids of their own, and the head says which: so a record is changed by writing new
parts, then the head, and whoever dies in between has changed nothing.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from llama_index.core.schema import BaseNode, TextNode

# Milvus takes 65,535 bytes a node; in JSON within JSON a character of ASCII takes two.
SLICE: Final = 30_000
_RECORD: Final = "record"
# Records are found by their ids. Two numbers is the least that Milvus takes.
_NOWHERE: Final = (1.0, 0.0)


@dataclass(frozen=True, slots=True)
class Record:
    """A record as nodes.

    Attributes:
        head: What counts.
        parts: What has to be there before.
    """

    head: TextNode
    parts: tuple[TextNode, ...]


def record_of(name: str, text: str) -> Record:
    """The nodes of a record.

    Args:
        name: Also the id of the head.
        text: ASCII; not empty.
    """
    stamp = secrets.token_hex(4)  # so that nobody's parts are overwritten
    slices = [text[start : start + SLICE] for start in range(0, len(text), SLICE)]
    head = _node(name, {"text": slices[0], "stamp": stamp, "n_parts": len(slices) - 1})
    ids = parts_of(head) or []
    parts = [_node(id_, {"text": each}) for id_, each in zip(ids, slices[1:], strict=True)]
    return Record(head, tuple(parts))


def parts_of(node: BaseNode) -> list[str] | None:
    """The ids of a head's parts; None for a node that is a part itself."""
    fields = _fields(node)
    if "stamp" not in fields:
        return None
    return [f"{node.node_id}/{fields['stamp']}/{n}" for n in range(fields["n_parts"])]


def text_of(head: BaseNode, parts: Mapping[str, BaseNode]) -> str | None:
    """The text of a record; None where a part is missing."""
    ids = parts_of(head) or []
    if any(id_ not in parts for id_ in ids):
        return None
    return "".join(_fields(node)["text"] for node in (head, *(parts[id_] for id_ in ids)))


def _node(name: str, fields: Mapping[str, object]) -> TextNode:
    # A dict in the metadata is kept as it is, and neither searched nor filtered by.
    return TextNode(
        id_=name,
        metadata={_RECORD: fields},
        excluded_embed_metadata_keys=[_RECORD],
        excluded_llm_metadata_keys=[_RECORD],
        embedding=list(_NOWHERE),
    )


def _fields(node: BaseNode) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = node.metadata[_RECORD]
    return fields
