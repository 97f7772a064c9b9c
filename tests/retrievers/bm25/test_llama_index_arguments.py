"""LlamaIndex's own arguments choose the same retriever."""

import pytest
import Stemmer
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
from llama_retrieval_ext.retrievers.bm25.llama_index_arguments import tokenizer_for
from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.cases import cases

NODES = [
    TextNode(id_=f"n{number}", text="running words", metadata={"even": str(number % 2 == 0)})
    for number in range(5)
]


def test_the_call_of_llama_indexs_documentation_works_unchanged() -> None:
    retriever = BM25Retriever.from_defaults(
        nodes=NODES,
        similarity_top_k=3,
        stemmer=Stemmer.Stemmer("english"),
        language="english",
        filters=MetadataFilters(filters=[MetadataFilter(key="even", value="True")]),
    )
    assert node_ids(retriever.retrieve("run")) == ["n0", "n2", "n4"]


def test_two_hits_are_the_default_as_in_llama_index() -> None:
    assert len(BM25Retriever.from_defaults(nodes=NODES).retrieve("words")) == 2


def test_index_docstore_and_nodes_give_the_same_answer() -> None:
    docstore = SimpleDocumentStore()
    docstore.add_documents(NODES)
    index = VectorStoreIndex(NODES, embed_model=MockEmbedding(2))
    by_nodes = BM25Retriever.from_defaults(nodes=NODES, similarity_top_k=9).retrieve("words")
    assert len(by_nodes) == 5
    for retriever in (
        BM25Retriever.from_defaults(index, similarity_top_k=9),
        BM25Retriever.from_defaults(docstore=docstore, similarity_top_k=9),
    ):
        assert retriever.retrieve("words") == by_nodes


def test_verbose_shows_a_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    docstore = SimpleDocumentStore()
    docstore.add_documents(NODES)
    BM25Retriever.from_defaults(nodes=NODES)
    assert capsys.readouterr().err == ""
    BM25Retriever.from_defaults(nodes=NODES, verbose=True)
    assert "Indexing nodes" in capsys.readouterr().err
    BM25Retriever.from_defaults(docstore=docstore, verbose=True)
    assert "Indexing nodes" in capsys.readouterr().err


@cases("language", ["english", "zh"])
def test_english_chinese_and_korean_have_the_default_tokenizer(language: str) -> None:
    assert tokenizer_for(language, stemmer=None, skip_stemming=False) == Tokenizer()


@cases(
    ("code", "name", "stop_word", "word"),
    [("de", "german", "nicht", "Haus"), ("fr", "french", "dans", "jour")],
)
def test_a_language_brings_its_stemmer_and_its_stop_words(
    code: str, name: str, stop_word: str, word: str
) -> None:
    for language in (code, name):
        stemmer = Stemmer.Stemmer(name)
        tokenizer = tokenizer_for(language, stemmer=stemmer, skip_stemming=False)
        assert tokenizer.language == name
        assert tokenizer.query_tokens(f"{stop_word} {word}") == tokenizer.tokens(word)


def test_stop_words_can_be_listed_or_switched_off() -> None:
    own = tokenizer_for(["foo"], stemmer=None, skip_stemming=False)
    assert own.query_tokens("foo the bar") == ["the", "bar"]
    nothing: tuple[list[str] | None, ...] = (None, [])
    for language in nothing:
        tokenizer = tokenizer_for(language, stemmer=None, skip_stemming=False)
        assert tokenizer.query_tokens("the bar") == ["the", "bar"]


def test_skip_stemming_keeps_endings() -> None:
    retriever = BM25Retriever.from_defaults(nodes=NODES, skip_stemming=True)
    assert retriever.retrieve("run") == []
    assert retriever.retrieve("running")


def test_a_language_without_stemmer_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="klingon"):
        BM25Retriever.from_defaults(nodes=[], language="klingon")


def test_exactly_one_source_of_nodes_is_required() -> None:
    with pytest.raises(ConfigurationError, match="exactly one"):
        BM25Retriever.from_defaults()
