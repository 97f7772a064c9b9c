"""The node classes a store gives back, and how an instance is put together without validation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    Node,
    TextNode,
)
from pydantic import BaseModel

from llama_retrieval_ext.errors import ConfigurationError

M = TypeVar("M", bound=BaseModel)
_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class Shape:
    """A node class and what its fields hold unless they are stored.

    Attributes:
        type: The class.
        name: What it is stored as.
        defaults: Every field; lists and dicts are to be replaced, not shared.
        plain: The fields that are stored as they are.
        resources: The fields that hold a ``MediaResource``.
    """

    type: type[BaseNode]
    name: str
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
    return Shape(cls, cls.__name__, defaults, plain, resources)


_CLASSES = (TextNode, IndexNode, ImageNode, Node, Document, ImageDocument)
SHAPES: Final[Mapping[str, Shape]] = {cls.__name__: _shape(cls) for cls in _CLASSES}
_BY_CLASS: Final[dict[type[BaseNode], Shape]] = {shape.type: shape for shape in SHAPES.values()}


def shape_of(node: BaseNode) -> Shape:
    """The shape of a node's class, or of the nearest class above it that has one.

    Raises:
        ConfigurationError: There is none.
    """
    for cls in type(node).__mro__:
        shape = _BY_CLASS.get(cls)
        if shape is not None:
            return shape
    raise ConfigurationError(
        f"node {node.node_id!r} is a {type(node).__name__}; this store keeps {', '.join(SHAPES)} "
        "and what derives from them"
    )


def assembled(cls: type[M], values: dict[str, Any]) -> M:
    """An instance with these values, which are known to be valid.

    What ``cls.model_construct(**values)`` gives, in a third of its time: hits are built for every
    query.

    Args:
        cls: The class.
        values: Every field of it.
    """
    made = cls.__new__(cls)
    _set(made, "__dict__", values)
    _set(made, "__pydantic_fields_set__", set(values))
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made
