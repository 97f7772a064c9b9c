"""What `BM25Retriever` finds, how it ranks, and what it refuses."""

import asyncio
import copy
import pickle
import threading
from collections.abc import Callable

import pytest
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext import BM25Retriever, Query, Scope
from llama_retrieval_ext.errors import (
    ConfigurationError,
    DuplicateNodeError,
    ScopeError,
    ScopeViolationError,
)
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.testing import IsolationContract, RankingContract, RetrieverContract
from llama_retrieval_ext.testing.corpus import ACME, sample_nodes
from llama_retrieval_ext.text import Tokenizer
from tests.cases import cases


class TestOverNodes(RetrieverContract):
    @pytest.fixture
    def retriever(self) -> BM25Retriever:
        return BM25Retriever(sample_nodes(), top_k=5)

    @pytest.fixture
    def empty_retriever(self) -> BM25Retriever:
        return BM25Retriever()


@pytest.mark.slow
class TestOverDocstore(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self) -> BM25Retriever:
        docstore = SimpleDocumentStore()
        docstore.add_documents(sample_nodes())
        return BM25Retriever.from_docstore(docstore, top_k=5, cache_ttl_s=0)


def _nodes(**texts: str) -> list[TextNode]:
    return [TextNode(id_=node_id, text=text) for node_id, text in texts.items()]


def test_metadata_is_searched_except_tenant_and_knowledge_base() -> None:
    node = TextNode(
        id_="n", text="words", metadata={"tenant_id": "acme", "kb_id": "handbook", "title": "Leave"}
    )
    retriever = BM25Retriever([node])
    assert node_ids(retriever.retrieve("leave")) == ["n"]
    assert retriever.retrieve("acme handbook tenant kb") == []
    assert node.excluded_embed_metadata_keys == []
    assert "acme" in node.get_content(MetadataMode.EMBED)


def test_metadata_excluded_from_embedding_is_not_searched() -> None:
    node = TextNode(text="words", metadata={"a": "x1"}, excluded_embed_metadata_keys=["a"])
    assert BM25Retriever([node]).retrieve("x1") == []


def test_normalised_bm25_scores_reach_from_0_to_1() -> None:
    raw = BM25Retriever(sample_nodes()).retrieve("annual leave days")
    retriever = BM25Retriever(sample_nodes(), normalise=True)
    hits = retriever.retrieve("annual leave days")
    assert node_ids(hits) == node_ids(raw)
    assert (hits[0].score, hits[-1].score) == (1.0, 0.0)
    assert [hit.score for hit in retriever.search("annual leave days", top_k=1)] == [1.0]


def test_a_bound_copy_finds_nodes_added_to_the_original() -> None:
    retriever = BM25Retriever(sample_nodes())
    bound = retriever.for_scope(ACME)
    metadata = {"tenant_id": "acme"}
    retriever.add([TextNode(id_="n", text="quince", metadata=metadata), *_nodes(o="quince")])
    assert node_ids(bound.retrieve("quince")) == ["n"]


def test_a_retriever_bound_to_a_scope_deletes_only_nodes_of_the_scope() -> None:
    retriever = BM25Retriever(sample_nodes())
    assert retriever.for_scope(ACME).delete(["acme-lunch", "globex-lunch", "stray-note"]) == 1
    assert node_ids(retriever.retrieve("canteen")) == ["globex-lunch"]


def test_a_retriever_bound_to_a_scope_adds_only_nodes_of_the_scope() -> None:
    retriever = BM25Retriever(sample_nodes())
    bound = retriever.for_scope(ACME)
    with pytest.raises(ScopeError, match="outside the scope"):
        bound.add(_nodes(n="quince"))
    taken = TextNode(id_="globex-lunch", text="quince", metadata={"tenant_id": "acme"})
    with pytest.raises(DuplicateNodeError, match="globex-lunch"):
        bound.add([taken])
    assert retriever.retrieve("quince") == []


def test_a_node_whose_metadata_left_the_scope_after_indexing_is_not_returned() -> None:
    nodes = sample_nodes()
    retriever = BM25Retriever(nodes, scope=ACME)
    assert "acme-lunch" in node_ids(retriever.retrieve("canteen"))
    next(node for node in nodes if node.node_id == "acme-lunch").metadata["tenant_id"] = "globex"
    with pytest.raises(ScopeViolationError, match="acme-lunch"):
        retriever.retrieve("canteen")


@cases(
    ("make", "says"),
    [
        (lambda: BM25Retriever(k1=-1.0), "k1"),
        (lambda: BM25Retriever(b=1.5), "b from 0 to 1"),
        (lambda: BM25Retriever(top_k=0), "top_k"),
        (lambda: BM25Retriever([NodeWithScore(node=TextNode())]), "hit.node"),  # type: ignore[list-item]
        (lambda: BM25Retriever().delete("n1"), "write"),
        (lambda: BM25Retriever(top_k=3, similarity_top_k=4), "4 and 3|3 and 4"),
        (lambda: BM25Retriever(colour="red"), "no argument 'colour'"),  # type: ignore[call-arg]
    ],
)
def test_bm25_arguments_out_of_range_are_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        make()


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


def test_filters_apply_to_the_new_metadata_of_a_replaced_node() -> None:
    retriever = BM25Retriever(TENANTS, filters=_only("lang", "en"))
    assert node_ids(retriever.retrieve("plums")) == ["e"]
    retriever.add([_node("b", "plums", lang="en"), _node("e", "plums", lang="de")])
    assert node_ids(retriever.retrieve("plums")) == ["b"]


def test_a_query_of_stop_words_finds_only_nodes_with_them() -> None:
    assert node_ids(BM25Retriever(TENANTS).retrieve("the of and")) == ["a"]


def test_query_and_nodes_have_the_same_tokenizer() -> None:
    nodes = [_node("n", "to be or not to be"), _node("o", "something else")]
    for retriever in (
        BM25Retriever(nodes, tokenizer=Tokenizer(stop_words="none")),
        BM25Retriever.from_defaults(nodes=nodes, language=[]),
    ):
        assert node_ids(retriever.retrieve("not")) == ["n"]
    german = BM25Retriever.from_defaults(nodes=[_node("h", "die Häuser am See")], language="de")
    assert node_ids(german.retrieve("Haus")) == ["h"]


def test_a_retriever_can_be_pickled_and_copied() -> None:
    original = BM25Retriever(TENANTS, filters=_only("lang", "en"))
    for twin in (pickle.loads(pickle.dumps(original)), copy.deepcopy(original)):
        assert twin.retrieve("apples pears") == original.retrieve("apples pears")
        twin.add([_node("f", "figs", lang="en")])
        assert node_ids(twin.retrieve("figs")) == ["f"]
        assert original.retrieve("figs") == []


async def test_async_search_runs_outside_the_event_loop_thread() -> None:
    class Noting(BM25Retriever):
        def _find(self, query: Query) -> list[object]:  # type: ignore[override]
            threads.append(threading.get_ident())
            return super()._find(query)  # type: ignore[return-value]

    threads: list[int] = []
    retriever = Noting(TENANTS)
    both = await asyncio.gather(retriever.aretrieve("apples"), retriever.aretrieve("plums"))
    assert [node_ids(hits) for hits in both] == [["c", "b", "a"], ["e"]]
    assert threading.get_ident() not in threads


def test_principals_see_what_names_none_or_one_of_them() -> None:
    rows = {"open": {}, "hr": {"allowed": ["group:hr"]}, "no list": {"allowed": "group:hr"}}
    nodes = [TextNode(id_=name, text=f"leave {name}", metadata=own) for name, own in rows.items()]
    retriever = BM25Retriever(nodes)
    for principals, expected in ((["group:hr"], {"open", "hr"}), ([], {"open"})):
        found = retriever.retrieve(Query("leave", scope=Scope(principals=principals)))
        assert {hit.node.node_id for hit in found} == expected
    assert retriever.retrieve("group") == []
