"""The recorded configuration of a knowledge base: model, dimension, tokenizer and scope."""

from collections.abc import Callable

import pytest
from llama_index.core import MockEmbedding
from llama_index.core.schema import Document

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.errors import ConfigurationError, ModelMismatchError
from llama_retrieval_ext.text import Tokenizer
from tests.knowledge_base.engines import LEDGERS

pytestmark = LEDGERS

Open = Callable[..., KnowledgeBase]


@pytest.mark.slow
def test_another_embedding_model_is_refused_and_both_are_named(open_kb: Open) -> None:
    with open_kb() as kb:
        kb.add([Document(text="leave")])
    with pytest.raises(ModelMismatchError, match=r"PickyEmbedding.*copy_knowledge_base"):
        open_kb(embed_model=MockEmbedding(16))
    assert open_kb().count() == 1  # the failed attempt holds nothing


@pytest.mark.slow
def test_the_tokenizer_is_recorded(open_kb: Open) -> None:
    with open_kb(tokenizer=Tokenizer(language="none")) as kb:
        kb.add([Document(id_="d", text="leaves")])
    again = open_kb()
    assert again.search("leave", "keyword", correct=False).hits == []
    assert len(again.retriever("keyword").retrieve("leaves")) == 1


def test_another_tokenizer_is_refused_after_the_first_document(open_kb: Open) -> None:
    open_kb().close()
    with open_kb(tokenizer=Tokenizer(language="none")) as kb:
        kb.add([Document(text="leave")])
    with pytest.raises(ConfigurationError, match="tokenizer"):
        open_kb(tokenizer=Tokenizer(language="german"))


def test_an_empty_knowledge_base_keeps_its_settings(open_kb: Open) -> None:
    open_kb(require_scope=True, tokenizer=Tokenizer(language="none")).close()
    with pytest.raises(ConfigurationError, match="require_scope"):
        open_kb(require_scope=False)
    with pytest.raises(ModelMismatchError):
        open_kb(embed_model=MockEmbedding(16))
    kb = open_kb()
    assert kb.require_scope
    kb.add([Document(text="leaves")], scope=Scope("acme"))
    assert kb.search("leave", "keyword", scope=Scope("acme"), correct=False).hits == []


@pytest.mark.slow
def test_a_scope_required_with_the_first_document_is_required_of_all(open_kb: Open) -> None:
    with open_kb(), open_kb(require_scope=True) as kb:
        kb.add([Document(text="leave")], scope=Scope("acme"))
    assert open_kb().require_scope


@pytest.mark.slow
def test_a_model_of_another_dimension_is_refused_when_it_is_opened(open_kb: Open) -> None:
    with open_kb(embed_model=MockEmbedding(16)) as kb:
        kb.add([Document(text="leave")], show_progress=False)
    with pytest.raises(ModelMismatchError, match=r"dimension 16.*MockEmbedding.*dimension 8"):
        open_kb(embed_model=MockEmbedding(8))
    assert open_kb(embed_model=MockEmbedding(16)).count() == 1


def test_an_empty_knowledge_base_accepts_a_model_of_another_dimension(open_kb: Open) -> None:
    open_kb(embed_model=MockEmbedding(16)).close()
    kb = open_kb(embed_model=MockEmbedding(8))
    assert kb.add([Document(text="leave")], show_progress=False).added == 1
