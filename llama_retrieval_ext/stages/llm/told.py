"""The expression that makes a stage."""

from dataclasses import MISSING, Field, fields
from typing import Any

from pydantic import BaseModel


def told(stage: object) -> str:
    """The expression that makes a stage, without the arguments that have their defaults.

    A live handle, such as a model, is told by its class: ``MMR(embed_model=FakeEmbedding(...))``.

    Args:
        stage: A dataclass instance.
    """
    given = [
        (field.name, getattr(stage, field.name), _default(field))
        for field in fields(stage)  # type: ignore[arg-type]  # a dataclass instance
        if field.init
    ]
    parts = [f"{name}={value_told(value)}" for name, value, default in given if value != default]
    return f"{type(stage).__name__}({', '.join(parts)})"


def value_told(value: object) -> str:
    """The expression that makes a value, or the class of one that has none."""
    if isinstance(value, BaseModel):  # LlamaIndex's models and stores print all they are set to
        return f"{type(value).__name__}(...)"
    expression = repr(value)
    if " at 0x" in expression:
        return str(getattr(value, "__name__", f"{type(value).__name__}(...)"))
    return expression


def _default(field: Field[Any]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default
