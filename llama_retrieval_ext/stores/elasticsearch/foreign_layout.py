"""How LlamaIndex's ``ElasticsearchStore`` lays out an index: which field holds what, as what."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from llama_retrieval_ext.stores.elasticsearch.request import Json

# What the engine makes of a string it meets first, and what users declare instead.
_WORDS: Final = {"keyword"}
_NUMBERS: Final = {"long", "integer", "short", "byte", "double", "float", "half_float"}
_UNLIMITED: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KeywordField:
    """A field of whole strings.

    Attributes:
        path: Its name.
        longest: Characters of a string that it takes; longer ones are not in it.
    """

    path: str
    longest: int


@dataclass(frozen=True, slots=True)
class ForeignLayout:
    """The fields of an index.

    Attributes:
        similarity: The engine's name of how embeddings are compared; None where there are none.
        dimension: Of the embeddings.
        keywords: Fields of whole strings by metadata key.
        numbers: Fields of numbers, by metadata key.
    """

    similarity: str | None = None
    dimension: int | None = None
    keywords: Mapping[str, KeywordField] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_index(cls, told: Json, *, vector_field: str) -> "ForeignLayout":
        """The layout that the engine's description of an index shows."""
        for index in told.values():
            properties: Json = index.get("mappings", {}).get("properties", {})
            vector = properties.get(vector_field, {})
            keywords: dict[str, KeywordField] = {}
            numbers: dict[str, str] = {}
            _collect(properties.get("metadata", {}), "", keywords, numbers)
            return cls(vector.get("similarity"), vector.get("dims"), keywords, numbers)
        return cls()


def _collect(
    parent: Json, key: str, keywords: dict[str, KeywordField], numbers: dict[str, str]
) -> None:
    for name, mapping in parent.get("properties", {}).items():
        own = f"{key}.{name}" if key else name
        path, kind = f"metadata.{own}", mapping.get("type")
        below = mapping.get("fields", {}).get("keyword", {})
        if kind in _WORDS:
            keywords[own] = KeywordField(path, mapping.get("ignore_above", _UNLIMITED))
        elif below.get("type") in _WORDS:
            longest = below.get("ignore_above", _UNLIMITED)
            keywords[own] = KeywordField(f"{path}.keyword", longest)
        elif kind in _NUMBERS:
            numbers[own] = path
        _collect(mapping, own, keywords, numbers)
