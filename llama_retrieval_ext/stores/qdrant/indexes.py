"""Indexes on what is filtered by: without one, a server reads every node."""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, TypeAlias

from qdrant_client import models

from llama_retrieval_ext.query import KB_KEY, TENANT_KEY
from llama_retrieval_ext.stores.points.field_limits import LONGEST_VALUE, MOST_FIELDS
from llama_retrieval_ext.stores.points.payload import DOC, DOC_KEY, LIST, META, Payload, path

Schema: TypeAlias = models.KeywordIndexParams | models.FloatIndexParams

_KEYWORD: Final = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD)
# The engine keeps the nodes of a tenant together, on disk and in its graph.
_TENANT: Final = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
_FLOAT: Final = models.FloatIndexParams(type=models.FloatIndexType.FLOAT)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the payload that gets an index.

    Attributes:
        name: As the engine writes it back: with as few quotes as it can.
        path: As it is written to the engine.
        schema: The kind of index.
    """

    name: str
    path: str
    schema: Schema


def _scope_field(key: str) -> Field:
    return Field(f"{META}.{key}", path(META, key), _TENANT)


# Made with the collection, before the first node: later the engine would not sort by them.
SCOPE_FIELDS: Final = (
    Field(DOC, DOC, _KEYWORD),
    Field(DOC_KEY, DOC_KEY, _KEYWORD),
    _scope_field(TENANT_KEY),
    _scope_field(KB_KEY),
)


def fields_to_index(payloads: Iterable[Payload], indexed: AbstractSet[str]) -> list[Field]:
    """The fields that payloads are the first to have, as far as there is room for more.

    Args:
        payloads: What is about to be stored.
        indexed: Names of the fields that have an index.
    """
    new: dict[str, Field] = {}
    for field in _fields(payloads):
        if len(indexed) + len(new) >= MOST_FIELDS:
            break
        if field.name not in indexed:
            new.setdefault(field.name, field)
    return list(new.values())


def _fields(payloads: Iterable[Payload]) -> Iterator[Field]:
    for payload in payloads:
        for group in (META, LIST):
            values = payload.get(group)
            for key, value in values.items() if isinstance(values, dict) else ():
                if _fits(key, value):
                    schema = _FLOAT if isinstance(value, int | float) else _KEYWORD
                    yield Field(f"{group}.{key}", path(group, key), schema)


def _fits(key: str, value: object) -> bool:
    # {} stands for what cannot be filtered by, and says nothing of the type. A long string is text.
    text = isinstance(value, str) and len(value) > LONGEST_VALUE
    return value != {} and not text and '"' not in key and "\\" not in key
