"""Every engine indexes the tokenizer's terms; this one leaves them as they are."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import TextNode

from llama_retrieval_ext.stores.elasticsearch.nodes import indexed_text, query_text
from llama_retrieval_ext.stores.elasticsearch.store import ElasticsearchVectorStore
from llama_retrieval_ext.stores.engine.config import StoreConfig
from llama_retrieval_ext.text.tokenizer import Tokenizer

CONFIG = StoreConfig(Tokenizer())
EVERY = "".join(map(chr, range(sys.maxunicode + 1)))


@given(text=st.text())
def test_the_whitespace_of_the_engine_parts_the_tokenizers_terms(text: str) -> None:
    joined = indexed_text(TextNode(text=text), CONFIG)
    assert len(joined.split()) == len(CONFIG.tokenizer.tokens(text))
    asked = query_text(text, CONFIG)
    assert asked == " ".join(asked.split())


@pytest.mark.parametrize("text", ["x" * 10_000, "中" * 1000, "a1" * 500, EVERY])
def test_no_term_is_longer_than_the_engine_takes(text: str) -> None:
    assert max(map(len, indexed_text(TextNode(text=text), CONFIG).split(" "))) <= 255


def test_the_engine_parts_the_terms_as_python_does(store: ElasticsearchVectorStore) -> None:
    terms = indexed_text(TextNode(text=EVERY), CONFIG).split(" ")
    store.add([TextNode(text="a", embedding=[1.0])])
    for start in range(0, min(len(terms), 60_000), 9_000):  # the engine shows 10,000 at a time
        some = terms[start : start + 9_000]
        asked = {"field": "text", "text": " ".join(some)}
        told = store.client.indices.analyze(index=store.index, body=asked)
        assert [each["token"] for each in told["tokens"]] == some


def test_of_a_long_query_the_first_different_terms_count() -> None:
    text = " ".join(f"word{n % 5000}" for n in range(10_000))
    assert len(query_text(text, CONFIG).split()) == 1024
