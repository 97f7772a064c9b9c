"""Columns of the terms of searched fields, and what they are searched for."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.schema import EVERYTHING, Schema
from llama_retrieval_ext.stores.engine.config import StoreConfig
from llama_retrieval_ext.text.segmentation import term_id
from llama_retrieval_ext.text.tokenizer import Tokenizer

TERMS: Final = "terms"
BM25: Final = "bm25"


def column_of(kind: str, name: str) -> str:
    """Return the column of a field's terms, or of their vector."""
    return kind if name == EVERYTHING else f"{kind}_{term_id(name):08x}"


def indexed_terms(node: BaseNode, config: StoreConfig) -> dict[str, str]:
    """Return the terms of each searched field by column."""
    texts = config.schema.texts(node)
    terms = {name: document_terms(text, config.tokenizer) for name, text in texts.items()}
    terms[EVERYTHING] = " ".join(filter(None, terms.values()))
    return {column_of(TERMS, name): terms[name] for name in config.schema.text}


def document_terms(text: str, tokenizer: Tokenizer) -> str:
    """Return the terms of a document with repetitions, joined by spaces.

    Milvus Lite has no analyser that splits at spaces only: ``c++`` would become ``c``. So terms are
    stored as hexadecimal numbers, which no analyser splits.

    Examples:
        >>> len(document_terms("R or C or R", Tokenizer()).split())
        5

    """
    return _joined(tokenizer.term_counts(text))


class FieldSearch(NamedTuple):
    """What the vector of a field is searched for, and the factor of its score."""

    column: str
    terms: str
    weight: float


def field_searches(
    text: str, tokenizer: Tokenizer, schema: Schema, weights: Mapping[str, float]
) -> list[FieldSearch]:
    """Return what each field is searched for; empty without terms."""
    terms = _joined(tokenizer.query_terms(text))
    stops = " ".join(f"{term_id(word):x}" for word in tokenizer.query_stop_words(text))
    searches = []
    for name, weight in weights.items():
        column = column_of(BM25, name)
        searches.append(FieldSearch(column, terms, weight))
        searches.append(FieldSearch(column, stops, weight * schema.stop_word_weight(name)))
    return [search for search in searches if search.terms and search.weight]


def _joined(counts: Mapping[int, int]) -> str:
    return " ".join(f"{term:x}" for term, count in counts.items() for _ in range(count))
