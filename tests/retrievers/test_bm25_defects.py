"""What LlamaIndex's BM25Retriever gets wrong (K1 to K8), and ours must not."""

import asyncio
import copy
import pickle
import threading
from pathlib import Path

import pytest
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.schema import QueryBundle, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
from llama_retrieval_ext.text.tokenizer import Tokenizer


def _node(node_id: str, text: str, **metadata: object) -> TextNode:
    hidden = list(metadata)
    return TextNode(id_=node_id, text=text, metadata=metadata, excluded_embed_metadata_keys=hidden)


def _only(key: str, value: str) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value)])


# Metadata is not searched here, so that every match is one of text.
TENANTS = [
    _node("a", "apples and pears", tenant_id="t1", lang="en"),
    _node("b", "apples", tenant_id="t1", lang="de"),
    _node("c", "apples, apples", tenant_id="t2", lang="en"),
    _node("d", "pears", tenant_id="t2", lang="en"),
    _node("e", "plums", tenant_id="t3", lang="en"),
]


def test_k1_filters_exclude_even_when_top_k_is_larger_than_the_matches() -> None:
    retriever = BM25Retriever(TENANTS, top_k=5, filters=_only("lang", "en"))
    assert node_ids(retriever.retrieve("apples")) == ["c", "a"]


def test_k1_a_scope_excludes_what_others_have() -> None:
    retriever = BM25Retriever(TENANTS, top_k=5).for_scope(Scope("t1"))
    assert sorted(node_ids(retriever.retrieve("apples pears plums"))) == ["a", "b"]


def test_k1_a_filter_of_the_query_narrows_that_of_the_retriever() -> None:
    retriever = BM25Retriever(TENANTS, filters=_only("lang", "en"))
    query = Query("apples", filters=_only("tenant_id", "t1"))
    assert node_ids(retriever.retrieve(query)) == ["a"]


def test_k1_a_node_that_begins_to_match_is_found_and_one_that_stops_is_not() -> None:
    retriever = BM25Retriever(TENANTS, filters=_only("lang", "en"))
    assert node_ids(retriever.retrieve("plums")) == ["e"]
    retriever.add([_node("b", "plums", lang="en"), _node("e", "plums", lang="de")])
    assert node_ids(retriever.retrieve("plums")) == ["b"]


def test_k2_nodes_without_a_term_of_the_query_are_not_returned() -> None:
    hits = BM25Retriever(TENANTS, top_k=5).retrieve("plums")
    assert node_ids(hits) == ["e"]
    assert all((hit.score or 0) > 0 for hit in hits)


@pytest.mark.parametrize("query", ["bananas", "the of", "", "   ", "?!", "\u200b"])
def test_k2_no_match_gives_nothing(query: str) -> None:
    assert BM25Retriever(TENANTS).retrieve(query) == []


def test_k2_a_query_of_stop_words_finds_only_what_has_them() -> None:
    assert node_ids(BM25Retriever(TENANTS).retrieve("the of and")) == ["a"]


def test_k2_a_blank_query_with_an_embedding_gives_nothing() -> None:
    assert BM25Retriever(TENANTS).retrieve(QueryBundle("", embedding=[1.0])) == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("检索增强", ["zh"]),
        ("図書館", ["ja"]),
        ("C++", ["cpp"]),
        ("R", ["r"]),
        ("1.2.3", ["version"]),
        ("user name", ["code"]),
    ],
)
def test_k3_chinese_japanese_and_code_are_found(query: str, expected: list[str]) -> None:
    nodes = [
        _node("zh", "大语言模型的检索增强生成技术"),
        _node("ja", "東京の図書館は九時に開きます"),
        _node("cpp", "Templates in C++ are compiled"),
        _node("c", "Pointers in C are numbers"),
        _node("r", "Data frames in R"),
        _node("version", "Fixed in release 1.2.3 of it"),
        _node("code", "def getUserName(): ..."),
    ]
    assert node_ids(BM25Retriever(nodes).retrieve(query)) == expected


def test_k4_what_is_loaded_answers_as_what_was_persisted(tmp_path: Path) -> None:
    nodes = [_node("r", "running"), _node("s", "runs"), _node("o", "nothing of the kind")]
    before = BM25Retriever(
        nodes,
        top_k=2,
        tokenizer=Tokenizer(language="none", stop_words="none", split_identifiers=False),
        filters=MetadataFilters(
            filters=[MetadataFilter(key="gone", operator=FilterOperator.IS_EMPTY, value=None)]
        ),
        normalise=True,
        k1=0.9,
        b=0.4,
        name="words",
    )
    before.persist(tmp_path)
    after = BM25Retriever.load(tmp_path)
    assert node_ids(after.retrieve("running")) == ["r"]
    for query in ("running of", "runs kind", "the"):
        assert after.retrieve(query) == before.retrieve(query)
    after.add([_node("x", "runs", gone="yes")])
    assert node_ids(after.retrieve("runs")) == ["s"]
    assert (after.top_k, after.normalise, after.name) == (2, True, "words")


def test_k5_query_and_nodes_are_cut_by_the_same_tokenizer() -> None:
    nodes = [_node("n", "to be or not to be"), _node("o", "something else")]
    for retriever in (
        BM25Retriever(nodes, tokenizer=Tokenizer(stop_words="none")),
        BM25Retriever.from_defaults(nodes=nodes, language=[]),
    ):
        assert node_ids(retriever.retrieve("not")) == ["n"]
    german = BM25Retriever.from_defaults(nodes=[_node("h", "die Häuser am See")], language="de")
    assert node_ids(german.retrieve("Haus")) == ["h"]


@pytest.mark.parametrize("nodes", [[], [_node("n", "")], [_node("n", "...")]])
def test_k6_a_corpus_without_words_gives_nothing(nodes: list[TextNode]) -> None:
    assert BM25Retriever(nodes).retrieve("anything") == []
    assert BM25Retriever.from_defaults(nodes=nodes).retrieve("anything") == []
    assert BM25Retriever.from_docstore(SimpleDocumentStore()).retrieve("anything") == []


def test_k6_a_filter_that_nothing_satisfies_gives_nothing() -> None:
    assert BM25Retriever(TENANTS, filters=_only("lang", "fr")).retrieve("apples") == []


def test_k6_a_top_k_beyond_the_corpus_is_kept() -> None:
    retriever = BM25Retriever(TENANTS[:1], top_k=4)
    assert len(retriever.retrieve("apples")) == 1
    retriever.add(TENANTS)
    assert retriever.top_k == 4
    assert len(retriever.retrieve("apples pears plums")) == 4
    assert len(retriever.search("apples pears plums", top_k=100).hits) == 5


def test_k7_added_nodes_are_found_by_the_next_query() -> None:
    retriever = BM25Retriever(TENANTS)
    retriever.add([_node("f", "figs")])
    assert node_ids(retriever.retrieve("figs")) == ["f"]


def test_k7_deleted_nodes_are_not_found_by_the_next_query() -> None:
    retriever = BM25Retriever(TENANTS)
    assert retriever.delete(["c", "a", "unknown"]) == 2
    assert node_ids(retriever.retrieve("apples")) == ["b"]


def test_k7_a_node_that_is_added_again_is_replaced() -> None:
    retriever = BM25Retriever(TENANTS)
    retriever.add([_node("e", "figs")])
    assert retriever.retrieve("plums") == []
    assert node_ids(retriever.retrieve("figs")) == ["e"]


def test_k7_a_node_added_to_the_docstore_is_found() -> None:
    docstore = SimpleDocumentStore()
    docstore.add_documents(TENANTS)
    retriever = BM25Retriever.from_docstore(docstore, cache_ttl_s=0)
    docstore.add_documents([_node("f", "figs")])
    assert node_ids(retriever.retrieve("figs")) == ["f"]


def test_k7_an_index_that_keeps_its_nodes_in_its_vector_store_is_refused() -> None:
    class StoreWithText(SimpleVectorStore):
        stores_text: bool = True

    index = VectorStoreIndex.from_vector_store(StoreWithText(), embed_model=MockEmbedding(2))
    with pytest.raises(ConfigurationError, match="docstore is empty"):
        BM25Retriever.from_index(index)


def test_k7_the_docstore_of_an_index_is_searched() -> None:
    index = VectorStoreIndex(TENANTS, embed_model=MockEmbedding(2))
    assert node_ids(BM25Retriever.from_index(index).retrieve("plums")) == ["e"]


def test_k8_a_retriever_can_be_pickled_and_copied() -> None:
    original = BM25Retriever(TENANTS, filters=_only("lang", "en"))
    for twin in (pickle.loads(pickle.dumps(original)), copy.deepcopy(original)):
        assert twin.retrieve("apples pears") == original.retrieve("apples pears")
        twin.add([_node("f", "figs", lang="en")])
        assert node_ids(twin.retrieve("figs")) == ["f"]
        assert original.retrieve("figs") == []


def test_k8_one_over_a_docstore_can_be_pickled_and_still_follows_it() -> None:
    docstore = SimpleDocumentStore()
    docstore.add_documents(TENANTS)
    twin = copy.deepcopy(BM25Retriever.from_docstore(docstore, cache_ttl_s=0))
    own_docstore = twin._follower._docstore  # type: ignore[union-attr]
    assert own_docstore is not docstore
    own_docstore.add_documents([_node("f", "figs")])
    assert node_ids(twin.retrieve("figs")) == ["f"]
    again = pickle.loads(pickle.dumps(twin))
    assert node_ids(again.retrieve("figs")) == ["f"]


async def test_k8_asking_asynchronously_leaves_the_loop_free() -> None:
    class Noting(BM25Retriever):
        def _find(self, query: Query) -> list[object]:  # type: ignore[override]
            threads.append(threading.get_ident())
            return super()._find(query)  # type: ignore[return-value]

    threads: list[int] = []
    retriever = Noting(TENANTS)
    both = await asyncio.gather(retriever.aretrieve("apples"), retriever.aretrieve("plums"))
    assert [node_ids(hits) for hits in both] == [["c", "b", "a"], ["e"]]
    assert threading.get_ident() not in threads
