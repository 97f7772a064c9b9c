"""Conversion of nodes to JSON text and back, lossless except for the embedding."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.text.normalization import valid_text

M = TypeVar("M", bound=BaseModel)
_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class Shape:
    """A node class and its field defaults; fields with default values are not stored.

    Attributes:
        type: Node class; its name is in the JSON.
        defaults: Default of every field; lists and dicts must be replaced, not shared.
        plain: Fields that are stored unchanged, with defaults.
        resources: Fields that hold a ``MediaResource``.
    """

    type: type[BaseNode]
    defaults: Mapping[str, object]
    plain: tuple[tuple[str, object], ...]
    resources: tuple[str, ...]


def _shape(cls: type[BaseNode]) -> Shape:
    defaults = {
        name: field.get_default(call_default_factory=True) if name != "id_" else ""
        for name, field in cls.model_fields.items()
    }
    resources = tuple(name for name in defaults if name.endswith("_resource"))
    special = {"embedding", "relationships", "obj", *resources}
    plain = tuple((name, value) for name, value in defaults.items() if name not in special)
    return Shape(cls, defaults, plain, resources)


_CLASSES = (TextNode, IndexNode, ImageNode, Node, Document, ImageDocument)
SHAPES: Final[Mapping[str, Shape]] = {cls.__name__: _shape(cls) for cls in _CLASSES}
_BY_CLASS: Final[dict[type[BaseNode], Shape]] = {shape.type: shape for shape in SHAPES.values()}


def shape_of(node: BaseNode) -> Shape:
    """Return the shape of a node's class or of its nearest base class with a shape."""
    for cls in type(node).__mro__:
        shape = _BY_CLASS.get(cls)
        if shape is not None:
            return shape
    raise ConfigurationError(
        f"node {node.node_id!r} is a {type(node).__name__}; this store keeps {', '.join(SHAPES)} "
        "and their subclasses"
    )


def assembled(cls: type[M], values: dict[str, Any]) -> M:
    """Return an instance with these values, without validation.

    Equals ``cls.model_construct(**values)`` in a third of the time; every query builds hits.
    """
    instance = cls.__new__(cls)
    _set(instance, "__dict__", values)
    _set(instance, "__pydantic_fields_set__", set(values))
    _set(instance, "__pydantic_extra__", None)
    _set(instance, "__pydantic_private__", None)
    return instance


Fields: TypeAlias = dict[str, Any]

_TEXT_NODE = SHAPES["TextNode"]
_KINDS = {str(kind.value): kind for kind in NodeRelationship}
_TYPES: dict[str, str] = {str(kind.value): kind for kind in ObjectType}
_ID_FIRST = '{"id_":"'
_ID_START = len(_ID_FIRST)
_JSON = json.JSONDecoder()
# Placeholder for a related node's metadata that equals this node's, as after splitting.
_OWN = 1


# Ends the id of a node's second row. A knowledge base writes a version of a document to the rows
# that the stored version does not have, so that both are whole until one is deleted.
SECOND: Final = "\0second"


def row_id(node_id: str, slot: int) -> str:
    """Return the id of one of the two rows, 0 or 1, that a node may have in a store."""
    return node_id + SECOND if slot else node_id


def rows_of(node_ids: Iterable[str]) -> list[str]:
    """Return the ids of all rows that nodes may have."""
    return [row for node_id in node_ids for row in (node_id, node_id + SECOND)]


def node_to_text(node: BaseNode) -> str:
    """Return the non-default fields of a node or its row as JSON, without its embedding."""
    try:
        return _json(_fields(node))
    except PydanticSerializationError as error:
        raise ConfigurationError(
            f"node {node.node_id!r} cannot be stored: {error}; give its metadata strings, "
            "numbers, lists and dicts"
        ) from error


def fields_from_text(text: str) -> Fields:
    """Return the fields in the output of `node_to_text`."""
    fields: Fields = from_json(text)
    return fields


def node_from_text(text: str) -> BaseNode:
    """Return the node from the output of `node_to_text`, without its embedding."""
    fields: Fields = from_json(text)
    shape = SHAPES[fields.pop("class")] if "class" in fields else _TEXT_NODE
    values = {**shape.defaults, "metadata": {}, "relationships": {}, **fields}
    values["excluded_embed_metadata_keys"] = fields.get("excluded_embed_metadata_keys") or []
    values["excluded_llm_metadata_keys"] = fields.get("excluded_llm_metadata_keys") or []
    if "relationships" in fields:
        values["relationships"] = _unpacked(fields["relationships"], values["metadata"])
    if shape is not _TEXT_NODE:
        _unpack_rest(values, fields)
    return assembled(shape.type, values)


# A node as text, and its embedding if it was asked for.
StoredNode: TypeAlias = tuple[str, Sequence[float] | None]


def nodes_of(stored: Iterable[StoredNode]) -> list[BaseNode]:
    """Return nodes from their stored form."""
    nodes = []
    for text, embedding in stored:
        node = node_from_text(text)
        if embedding is not None:
            node.embedding = [*embedding]
        nodes.append(node)
    return nodes


def node_id_in(text: str) -> str:
    """Return the node id from the output of `node_to_text`, without building the node."""
    # The id is the first field, so the rest need not be parsed.
    if text.startswith(_ID_FIRST):
        node_id = text[_ID_START : text.index('"', _ID_START)]
        return node_id if "\\" not in node_id else str(_JSON.raw_decode(text, _ID_START - 1)[0])
    return node_from_text(text).node_id


def _json(value: object) -> str:
    try:
        return to_json(value).decode()
    except PydanticSerializationError:  # lone surrogates, perhaps
        return valid_text(json.dumps(value, default=to_jsonable_python, ensure_ascii=False))


def _fields(node: BaseNode) -> Fields:
    shape = shape_of(node)
    state = node.__dict__
    fields = {name: state[name] for name, default in shape.plain if state[name] != default}
    if state["id_"].endswith(SECOND):
        fields["id_"] = state["id_"].removesuffix(SECOND)
    if node.relationships:
        fields["relationships"] = _packed(node)
    if shape is not _TEXT_NODE:
        fields |= _packed_rest(node, shape)
    return fields


def _packed(node: BaseNode) -> Fields:
    metadata_text = _json(node.metadata)

    def one(related: RelatedNodeInfo) -> list[object]:
        metadata: object = related.metadata or None
        if metadata is not None and metadata == node.metadata and _json(metadata) == metadata_text:
            metadata = _OWN
        return [related.node_id, related.node_type, related.hash, metadata]

    return {
        str(kind.value): [one(node_info) for node_info in related]
        if isinstance(related, list)
        else one(related)
        for kind, related in node.relationships.items()
    }


def _unpacked(packed: Fields, metadata_of_node: Fields) -> dict[NodeRelationship, object]:
    relationships: dict[NodeRelationship, object] = {}
    for kind, parts in packed.items():
        if parts and not isinstance(parts[0], list):
            relationships[_KINDS[kind]] = _related(parts, metadata_of_node)
        else:
            relationships[_KINDS[kind]] = [_related(part, metadata_of_node) for part in parts]
    return relationships


def _related(parts: list[Any], metadata_of_node: Fields) -> RelatedNodeInfo:
    node_id, node_type, hash_, metadata = parts
    values = {
        "node_id": node_id,
        "node_type": _TYPES.get(node_type, node_type),
        "metadata": dict(metadata_of_node) if metadata == _OWN else metadata or {},
        "hash": hash_,
    }
    return assembled(RelatedNodeInfo, values)


def _packed_rest(node: BaseNode, shape: Shape) -> Fields:
    """Return the class, the media, and the object of an index node in JSON form."""
    fields: Fields = {"class": shape.type.__name__}
    for name in shape.resources:
        resource = getattr(node, name)
        if resource is not None:
            fields[name] = resource.model_dump(mode="json", exclude_none=True)
            if resource.data is not None:  # base64, which model_dump leaves out
                fields[name]["data"] = resource.data.decode()
    if isinstance(node, IndexNode) and node.obj is not None:
        is_node = isinstance(node.obj, BaseNode)
        fields["obj"] = {"node": node_to_text(node.obj)} if is_node else {"value": node.obj}
    return fields


def _unpack_rest(values: Fields, fields: Fields) -> None:
    for name in fields:
        if name.endswith("_resource"):
            values[name] = MediaResource(**fields[name])
    if "obj" in fields:
        stored = fields["obj"]
        values["obj"] = node_from_text(stored["node"]) if "node" in stored else stored["value"]
