"""Columns of the texts of searched fields, and what they are searched for."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.schema import EVERYTHING, Schema
from llama_retrieval_ext.stores.elasticsearch.client import Json
from llama_retrieval_ext.stores.engine.config import StoreConfig
from llama_retrieval_ext.text.segmentation import term_id

TEXT: Final = "text"
# Limit of servers for the terms of a query; repeated terms count each time.
_MAX_TERMS: Final = 1024


def text_columns(config: StoreConfig) -> Json:
    """Return the mapping of the columns of searched fields."""
    analyzer = config.params.get("analyzer", "whitespace")
    column = {"type": "text", "analyzer": analyzer, "index_options": "freqs"}
    return {column_of(name): column for name in config.schema.text}


def column_of(name: str) -> str:
    """Return the column of a field of the schema."""
    return TEXT if name == EVERYTHING else f"{TEXT}_{term_id(name):08x}"


def indexed_texts(node: BaseNode, config: StoreConfig) -> dict[str, str]:
    """Return the text of each column: terms joined by spaces; unchanged for an analyser."""
    texts, tokens = config.schema.texts(node), config.tokenizer.tokens
    if "analyzer" not in config.params:
        texts = {name: " ".join(tokens(text)) for name, text in texts.items()}
    texts[EVERYTHING] = "\n".join(filter(None, texts.values()))
    return {column_of(name): texts[name] for name in config.schema.text}


class Match(NamedTuple):
    """What a column is searched for, and the factor of its score."""

    column: str
    terms: str
    boost: float


def matches_of(
    text: str, config: StoreConfig, schema: Schema, weights: Mapping[str, float]
) -> list[Match]:
    """Return what each field is searched for; above 1,024 terms, the first distinct ones."""
    if "analyzer" in config.params:
        terms, stops = text.strip(), ""
    else:
        tokens, most = config.tokenizer.query_tokens(text), _MAX_TERMS // max(1, len(weights))
        if len(tokens) > most:
            tokens = list(dict.fromkeys(tokens))[:most]
        terms, stops = " ".join(tokens), " ".join(config.tokenizer.query_stop_words(text))
    matches = []
    for name, weight in weights.items():
        matches.append(Match(column_of(name), terms, weight))
        matches.append(Match(column_of(name), stops, weight * schema.stop_word_weight(name)))
    return [match for match in matches if match.terms and match.boost]
