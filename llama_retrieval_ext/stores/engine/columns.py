"""Columns of the texts of searched fields, for engines with their own BM25: one column a field."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.schema import EVERYTHING, Schema
from llama_retrieval_ext.text.segmentation import term_id


class ColumnMatch(NamedTuple):
    """What the column of a field is searched for, and the factor of its score."""

    column: str
    terms: str
    weight: float


def column_of(kind: str, name: str) -> str:
    """Return the column of a field of the schema; several kinds of columns have other prefixes."""
    return kind if name == EVERYTHING else f"{kind}_{term_id(name):08x}"


def indexed_columns(
    node: BaseNode, schema: Schema, encode: Callable[[str], str], *, kind: str, separator: str
) -> dict[str, str]:
    """Return the encoded text of each searched field by column."""
    texts = {name: encode(text) for name, text in schema.texts(node).items()}
    texts[EVERYTHING] = separator.join(filter(None, texts.values()))
    return {column_of(kind, name): texts[name] for name in schema.text}


def column_matches(
    kind: str, weights: Mapping[str, float], schema: Schema, *, terms: str, stop_words: str
) -> list[ColumnMatch]:
    """Return what the column of each weighed field is searched for; empty without terms."""
    matches = []
    for name, weight in weights.items():
        column, of_stop_words = column_of(kind, name), weight * schema.stop_word_weight(name)
        matches.append(ColumnMatch(column, terms, weight))
        matches.append(ColumnMatch(column, stop_words, of_stop_words))
    return [match for match in matches if match.terms and match.weight]
