"""LlamaIndex's own arguments work, or are refused; none is passed over."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import Stemmer
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.schema import IndexNode, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from llama_index.retrievers.bm25 import BM25Retriever as LlamaIndexBM25

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
from llama_retrieval_ext.retrievers.bm25.llama_index_arguments import tokenizer_for
from llama_retrieval_ext.text.tokenizer import Tokenizer

NODES = [
    TextNode(id_=f"n{number}", text="running words", metadata={"even": str(number % 2 == 0)})
    for number in range(5)
]


def test_the_call_of_the_documentation_works_unchanged() -> None:
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
        hits = retriever.retrieve("words")
        assert [(hit.node_id, hit.score) for hit in hits] == [
            (hit.node_id, hit.score) for hit in by_nodes
        ]


def test_skip_stemming_keeps_endings() -> None:
    retriever = BM25Retriever.from_defaults(nodes=NODES, skip_stemming=True)
    assert retriever.retrieve("run") == []
    assert retriever.retrieve("running")


def test_verbose_shows_a_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    BM25Retriever.from_defaults(nodes=NODES)
    assert capsys.readouterr().err == ""
    BM25Retriever.from_defaults(nodes=NODES, verbose=True)
    assert "Indexing nodes" in capsys.readouterr().err
    docstore = SimpleDocumentStore()
    docstore.add_documents(NODES)
    BM25Retriever.from_defaults(docstore=docstore, verbose=True)
    assert "Indexing nodes" in capsys.readouterr().err


@pytest.mark.parametrize("language", ["en", "english", "zh", "ko"])
def test_english_chinese_and_korean_are_what_the_default_knows(language: str) -> None:
    assert tokenizer_for(language, stemmer=None, skip_stemming=False) == Tokenizer()


@pytest.mark.parametrize(
    ("code", "name", "stop_word", "word"),
    [
        ("de", "german", "nicht", "Haus"),
        ("ru", "russian", "не", "дом"),
        ("fr", "french", "dans", "jour"),
    ],
)
def test_a_language_brings_its_stemmer_and_its_stop_words(
    code: str, name: str, stop_word: str, word: str
) -> None:
    for language in (code, name):
        stemmer = Stemmer.Stemmer(name)
        tokenizer = tokenizer_for(language, stemmer=stemmer, skip_stemming=False)
        assert tokenizer.language == name
        assert tokenizer.query_tokens(f"{stop_word} {word}") == tokenizer.tokens(word)


def test_stop_words_can_be_given_one_by_one_or_switched_off() -> None:
    own = tokenizer_for(["foo"], stemmer=None, skip_stemming=False)
    assert own.query_tokens("foo the bar") == ["the", "bar"]
    nothing: tuple[list[str] | None, ...] = (None, [])
    for language in nothing:
        tokenizer = tokenizer_for(language, stemmer=None, skip_stemming=False)
        assert tokenizer.query_tokens("the bar") == ["the", "bar"]


@pytest.mark.parametrize("algorithm", sorted({*Stemmer.algorithms()} - {"english"}))
def test_a_stemmer_of_another_language_is_refused(algorithm: str) -> None:
    with pytest.raises(ConfigurationError, match="leave stemmer out"):
        tokenizer_for("en", stemmer=Stemmer.Stemmer(algorithm), skip_stemming=False)


def test_a_stemmer_that_is_not_to_be_used_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="skip_stemming=True"):
        tokenizer_for("en", stemmer=Stemmer.Stemmer("english"), skip_stemming=True)


def test_the_constructor_takes_llama_indexs_names() -> None:
    door = IndexNode(id_="door", text="running door", index_id="hall", obj=NODES[0])
    retriever = BM25Retriever(
        nodes=NODES,
        stemmer=Stemmer.Stemmer("english"),
        language="en",
        existing_bm25=None,
        similarity_top_k=3,
        callback_manager=CallbackManager(),
        objects=[door],
        object_map={"room": NODES[1]},
        verbose=False,
        skip_stemming=False,
        token_pattern=r"(?u)\b\w\w+\b",
        filters=MetadataFilters(filters=[MetadataFilter(key="even", value="True")]),
        corpus_weight_mask=None,
    )
    assert node_ids(retriever.retrieve("run")) == ["n0", "n2", "n4"]
    retriever.add([door, IndexNode(id_="d2", text="x room", index_id="room")])
    assert retriever.object_map == {"hall": NODES[0], "room": NODES[1]}


def test_from_defaults_takes_its_arguments_in_llama_indexs_order() -> None:
    stemmer = Stemmer.Stemmer("english")
    retriever = BM25Retriever.from_defaults(
        None, NODES, None, stemmer, "en", 3, False, False, r"(?u)\b\w\w+\b", None, None
    )
    assert node_ids(retriever.retrieve("run")) == ["n0", "n1", "n2"]
    names = list(inspect.signature(LlamaIndexBM25.from_defaults).parameters)
    assert list(inspect.signature(BM25Retriever.from_defaults).parameters) == names


def test_the_language_chooses_the_tokenizer_in_the_constructor_too() -> None:
    german = BM25Retriever([TextNode(id_="g", text="die laufenden Kosten")], language="de")
    assert node_ids(german.retrieve("laufend")) == ["g"]
    kept = BM25Retriever(NODES, skip_stemming=True)
    assert kept.retrieve("run") == []


@pytest.mark.parametrize("make", [BM25Retriever, BM25Retriever.from_defaults])
def test_no_nodes_are_an_empty_corpus(make: Callable[..., BM25Retriever]) -> None:
    assert make(nodes=[], similarity_top_k=3).retrieve("words") == []


def test_a_tokenizer_of_ours_is_used_and_a_deprecated_function_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = Tokenizer(language="none")
    assert BM25Retriever.from_defaults(nodes=NODES, tokenizer=own).retrieve("run") == []
    assert not caplog.records
    with pytest.raises(ConfigurationError, match="either tokenizer or language"):
        BM25Retriever.from_defaults(nodes=NODES, tokenizer=own, language="de")
    retriever = BM25Retriever.from_defaults(nodes=NODES, tokenizer=str.split)
    assert retriever.retrieve("run")
    assert "is not used, as in LlamaIndex" in caplog.text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"similarity_top_k": 0}, "at least 1"),
        ({"similarity_top_k": 3, "top_k": 4}, "4 and 3 for top_k and similarity_top_k"),
        ({"language": "de", "tokenizer": Tokenizer()}, "either tokenizer or language"),
        ({"token_pattern": r"\w+"}, "token_pattern"),
        ({"existing_bm25": object()}, "existing_bm25 cannot be honoured"),
        ({"corpus_weight_mask": [1, 0]}, "pass filters="),
        ({"topk": 3}, "no argument topk; the number of hits is top_k"),
    ],
)
def test_what_cannot_be_honoured_or_contradicts_is_refused(
    options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        BM25Retriever(NODES, **options)


def test_persisting_takes_llama_indexs_arguments(tmp_path: Path) -> None:
    BM25Retriever(NODES).persist(str(tmp_path), encoding="utf-8")
    loaded = BM25Retriever.from_persist_dir(str(tmp_path), encoding="utf-8")
    assert len(loaded.retrieve("run")) == len(NODES)
