"""How `BM25Retriever` ranks, what it searches, and what it refuses."""

from collections.abc import Callable

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import MetadataReplacementPostProcessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import Document, MetadataMode, NodeWithScore, TextNode

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DuplicateNodeError,
    ScopeError,
    ScopeViolationError,
)
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import Hit, node_ids
from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
from llama_retrieval_ext.testing.corpus import ACME, sample_nodes
from llama_retrieval_ext.text.tokenizer import Tokenizer


def _nodes(**texts: str) -> list[TextNode]:
    return [TextNode(id_=node_id, text=text) for node_id, text in texts.items()]


def test_rarer_terms_and_shorter_texts_count_more() -> None:
    nodes = _nodes(
        rare="common rare", common="common common", long="common rare and a good many other words"
    )
    assert node_ids(BM25Retriever(nodes).retrieve("common rare")) == ["rare", "long", "common"]


def test_equal_scores_come_by_node_id_also_at_the_cut() -> None:
    nodes = [TextNode(id_=f"{number * 7 % 50:02}", text="same words") for number in range(50)]
    retriever = BM25Retriever(nodes)
    for top_k in (1, 7, 49):
        hits = retriever.retrieve(Query("words", top_k=top_k))
        assert node_ids(hits) == [f"{number:02}" for number in range(top_k)]


def test_hits_carry_the_nodes_and_the_name() -> None:
    (node,) = nodes = _nodes(n="words")
    (hit,) = BM25Retriever(nodes, name="words").retrieve("words")
    assert isinstance(hit, Hit)
    assert hit.node == node
    assert hit.source == "words"


def test_a_term_that_the_query_repeats_counts_as_often() -> None:
    retriever = BM25Retriever(_nodes(a="apple", p="pear"))
    once, twice = (retriever.retrieve(query)[0].score for query in ("pear", "pear pear"))
    assert twice == pytest.approx(2 * (once or 0))


def test_metadata_is_searched_but_for_tenant_and_knowledge_base() -> None:
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


def test_documents_are_nodes_too() -> None:
    assert node_ids(BM25Retriever([Document(id_="d", text="words")]).retrieve("words")) == ["d"]


def test_normalised_scores_reach_from_0_to_1() -> None:
    raw = BM25Retriever(sample_nodes()).retrieve("annual leave days")
    hits = BM25Retriever(sample_nodes(), normalise=True).retrieve("annual leave days")
    scores = [hit.score or 0.0 for hit in hits]
    assert node_ids(hits) == node_ids(raw)
    assert scores == sorted(scores, reverse=True)
    assert (scores[0], scores[-1]) == (1.0, 0.0)


def test_the_score_of_a_single_hit_normalises_to_1() -> None:
    retriever = BM25Retriever(_nodes(a="apple", p="pear"), normalise=True)
    assert [hit.score for hit in retriever.retrieve("pear")] == [1.0]


def test_of_a_repeated_id_the_last_node_counts() -> None:
    retriever = BM25Retriever([*_nodes(n="pear"), *_nodes(n="apple")])
    assert retriever.retrieve("pear") == []
    assert node_ids(retriever.retrieve("apple")) == ["n"]


def test_a_bound_copy_sees_what_is_added_to_the_original() -> None:
    retriever = BM25Retriever(sample_nodes())
    bound = retriever.for_scope(ACME)
    metadata = {"tenant_id": "acme"}
    retriever.add([TextNode(id_="n", text="quince", metadata=metadata), *_nodes(o="quince")])
    assert node_ids(bound.retrieve("quince")) == ["n"]


def test_a_bound_retriever_deletes_only_what_it_sees() -> None:
    retriever = BM25Retriever(sample_nodes())
    assert retriever.for_scope(ACME).delete(["acme-lunch", "globex-lunch", "stray-note"]) == 1
    assert node_ids(retriever.retrieve("canteen")) == ["globex-lunch"]


def test_a_bound_retriever_adds_only_what_it_sees() -> None:
    retriever = BM25Retriever(sample_nodes())
    bound = retriever.for_scope(ACME)
    with pytest.raises(ScopeError, match="outside the scope"):
        bound.add(_nodes(n="quince"))
    taken = TextNode(id_="globex-lunch", text="quince", metadata={"tenant_id": "acme"})
    with pytest.raises(DuplicateNodeError, match="globex-lunch"):
        bound.add([taken])
    assert retriever.retrieve("quince") == []


def test_a_node_that_left_the_scope_behind_the_index_is_not_returned() -> None:
    nodes = sample_nodes()
    retriever = BM25Retriever(nodes, scope=ACME)
    assert "acme-lunch" in node_ids(retriever.retrieve("canteen"))
    next(node for node in nodes if node.node_id == "acme-lunch").metadata["tenant_id"] = "globex"
    with pytest.raises(ScopeViolationError, match="acme-lunch"):
        retriever.retrieve("canteen")


def test_the_tokenizer_can_be_chosen() -> None:
    nodes = _nodes(n="Häuser")
    assert BM25Retriever(nodes).retrieve("Haus") == []
    german = BM25Retriever(nodes, tokenizer=Tokenizer(language="german"))
    assert node_ids(german.retrieve("Haus")) == ["n"]


def test_without_k1_repetition_and_without_b_length_do_not_count() -> None:
    nodes = _nodes(a="pear", b="pear pear pear and many other words", c="apple")
    hits = BM25Retriever(nodes, k1=0.0).retrieve("pear")
    assert hits[0].score == hits[1].score
    assert node_ids(BM25Retriever(nodes, b=0.0).retrieve("pear")) == ["b", "a"]


def test_the_search_is_a_step_of_the_trace() -> None:
    trace = BM25Retriever(sample_nodes()).search("lunch").trace
    assert trace is not None
    assert [(step.name, step.count) for step in trace.children] == [("search", 2)]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: BM25Retriever(k1=-1.0), "k1"),
        (lambda: BM25Retriever(k1=float("nan")), "k1"),
        (lambda: BM25Retriever(b=1.5), "b from 0 to 1"),
        (lambda: BM25Retriever(top_k=0), "top_k"),
        (lambda: BM25Retriever(["text"]), "got str"),  # type: ignore[list-item]
        (lambda: BM25Retriever([NodeWithScore(node=TextNode())]), "hit.node"),  # type: ignore[list-item]
        (lambda: BM25Retriever().delete("n1"), "write"),
        (BM25Retriever.from_defaults, "exactly one"),
        (lambda: BM25Retriever.from_defaults(nodes=[], token_pattern=r"\w"), "token_pattern"),
        (lambda: BM25Retriever.from_defaults(nodes=[], language="klingon"), "klingon"),
    ],
)
def test_what_cannot_work_is_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        make()


def test_a_scope_is_narrowed_by_that_of_the_query() -> None:
    retriever = BM25Retriever(sample_nodes(), scope=ACME)
    handbook = Query("parse_filters leave", scope=Scope("acme", kb_ids=["handbook"]))
    assert "acme-code" in node_ids(retriever.retrieve("parse_filters leave"))
    assert "acme-code" not in node_ids(retriever.retrieve(handbook))


def test_what_is_done_to_a_hit_does_not_reach_the_index() -> None:
    node = TextNode(id_="n", text="annual leave", metadata={"tenant_id": "acme", "window": "all"})
    retriever = BM25Retriever([node])
    engine = RetrieverQueryEngine.from_args(
        retriever,
        llm=MockLLM(),
        node_postprocessors=[MetadataReplacementPostProcessor(target_metadata_key="window")],
    )
    assert engine.query("leave").source_nodes[0].text == "all"  # it changes the nodes it gets
    (hit,) = retriever.retrieve("leave")
    assert hit.text == "annual leave"
    hit.node.metadata["tenant_id"] = "globex"
    assert len(retriever.for_scope(Scope("acme")).retrieve("leave")) == 1
    assert node.metadata["tenant_id"] == "acme"
