"""How a `BM25Retriever` is set up, as arguments and as JSON."""

from collections.abc import Mapping
from typing import Any, TypedDict

from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.text.tokenizer import Tokenizer


class BM25Options(TypedDict, total=False):
    """The arguments of `BM25Retriever` after the first, which says what they mean."""

    top_k: int
    tokenizer: Tokenizer | None
    filters: MetadataFilters | None
    scope: Scope | None
    normalise: bool
    k1: float
    b: float
    name: str


class DocstoreOptions(BM25Options, total=False):
    """The arguments of `BM25Retriever.from_docstore` after the first, which says what they mean."""

    cache_ttl_s: float | None
    max_chunks: int | None
    show_progress: bool


class Settings(TypedDict):
    """What of a retriever is written down: all but its scope, which is not the file's to say."""

    top_k: int
    tokenizer: Tokenizer
    filters: MetadataFilters | None
    normalise: bool
    k1: float
    b: float
    name: str


def settings_to_json(settings: Settings) -> dict[str, object]:
    """The settings as JSON has them."""
    filters = settings["filters"]
    return {
        **settings,
        "tokenizer": settings["tokenizer"].to_dict(),
        "filters": None if filters is None else filters.model_dump(mode="json"),
    }


def settings_from_json(data: Mapping[str, Any]) -> Settings:  # Any: JSON
    """The settings that `settings_to_json` gave.

    Raises:
        KeyError: One is missing.
        ValueError: One has a value that cannot work.
    """
    filters = data["filters"]
    return Settings(
        top_k=data["top_k"],
        tokenizer=Tokenizer.from_dict(data["tokenizer"]),
        filters=None if filters is None else MetadataFilters.model_validate(filters),
        normalise=data["normalise"],
        k1=data["k1"],
        b=data["b"],
        name=data["name"],
    )
