"""`explain`: the account of each hit, why a node is not there, and two explanations compared."""

import asyncio
import copy
import json
import pickle
from collections.abc import Callable
from functools import cache

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_retrieval_ext import (
    MMR,
    RRF,
    AutoMergingRetriever,
    BM25Retriever,
    Collapse,
    Dedupe,
    EmbeddedVectorStore,
    Explanation,
    HybridRetriever,
    Leg,
    Retriever,
    RuleRerank,
    Top,
    VectorRetriever,
    WhyNotReason,
    branches,
)
from llama_retrieval_ext.testing.corpus import ACME, sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever, FixedRetriever
from tests.retrievers.test_auto_merging import family

MODEL = FakeEmbedding()
QUERY = "annual leave days"
SINCE_2021 = MetadataFilters(
    filters=[MetadataFilter(key="year", value=2021, operator=FilterOperator.GTE)]
)


@cache
def stored() -> EmbeddedVectorStore:
    store = EmbeddedVectorStore(":memory:")
    store.add(sample_nodes(MODEL))
    return store


def pipeline(store: EmbeddedVectorStore) -> Retriever:
    return HybridRetriever(store, embed_model=MODEL, top_k=5) >> RuleRerank() >> Top(2)


def test_an_account_says_what_every_leg_and_stage_did_with_the_hit() -> None:
    store = stored()
    hybrid = HybridRetriever(store, embed_model=MODEL, alpha=0.25).explain(QUERY)
    assert hybrid.accounts
    for account in hybrid.accounts:
        legs = {part.leg: part for part in account.legs}
        assert sum(part.share for part in legs.values()) == pytest.approx(account.hit.score)
        for name, part in legs.items():
            weight = {"vector": 0.25, "keyword": 0.75}[name]
            assert part.weight == weight
            assert part.share == pytest.approx(weight * (part.normalised or 0.0))
        at = {each.stage: (each.rank, each.score) for each in account.stages}
        assert at == {
            **{name: (part.rank, part.score) for name, part in legs.items()},
            "hybrid": (account.rank, account.hit.score),
        }
    reranked = pipeline(store).explain(QUERY, filters=SINCE_2021, scope=ACME)
    assert reranked.accounts
    for account in reranked.accounts:
        rerank, cut = account.rescored
        before = next(each for each in account.stages if each.stage == "hybrid")
        assert (rerank.before, rerank.after.stage) == (before, "RuleRerank()")
        assert (cut.after.rank, cut.after.score) == (account.rank, account.hit.score)
        assert account.filters == ("Scope(tenant_id='acme')", "year >= 2021")


def test_a_stage_that_may_be_left_out_is_one_stage() -> None:
    store = stored()
    retriever = HybridRetriever(store, embed_model=MODEL, top_k=5) >> MMR(0.7) >> Top(2)
    *_, mmr, top = retriever.explain(QUERY).stages
    assert (mmr.name, top.name) == ("MMR(lambda_mult=0.7)", "Top(k=2)")
    assert mmr.before is not None
    assert mmr.before.name == "hybrid"


def test_every_reason_why_a_node_is_not_there() -> None:
    explanation = pipeline(stored()).explain(QUERY, filters=SINCE_2021, scope=ACME)
    why = {node.node_id: explanation.why_not(node.node_id) for node in sample_nodes()}
    assert {node_id: each.reason for node_id, each in why.items() if "acme" in node_id} == {
        "acme-leave": WhyNotReason.RETURNED,
        "acme-sick": WhyNotReason.RETURNED,
        "acme-leave-zh": WhyNotReason.CUT,
        "acme-code": WhyNotReason.CUT,
        "acme-safety-zh": WhyNotReason.CUT,
        "acme-lunch": WhyNotReason.FILTERED,
    }
    cut = why["acme-leave-zh"]
    assert (cut.stage, cut.rank, cut.kept) == ("Top(k=2)", 3, 2)
    assert why["acme-lunch"].unmet == ("year >= 2021 (year is 2020)",)
    # Another tenant's node is not told from none at all.
    others = [str(why[id_]).replace(id_, "") for id_ in why if "acme" not in id_]
    assert {*others} == {str(explanation.why_not("no such")).replace("no such", "")}
    again = asyncio.run(explanation.awhy_not("acme-lunch"))
    assert again == why["acme-lunch"]
    assert json.loads(json.dumps(again.to_dict()))["reason"] == "filtered"


def test_a_node_that_no_leg_found_comes_with_how_far_the_legs_looked() -> None:
    bm25 = BM25Retriever(sample_nodes(), top_k=2)
    vector = VectorRetriever(stored(), embed_model=MODEL, top_k=3)
    explanation = (branches(Leg("words", bm25), Leg("meaning", vector)) >> RRF()).explain(QUERY)
    missing = explanation.why_not("globex-travel")
    assert missing.reason is WhyNotReason.NOT_FOUND
    assert [(each.leg, each.count) for each in missing.depths] == [("words", 2), ("meaning", 3)]
    assert "'globex-travel' was not found by any leg: words returned 2 hits" in str(missing)
    below = (branches(words=bm25, meaning=vector) >> RRF() >> Top(1)).explain(QUERY)
    ids = {id_ for stage in below.stages for id_ in stage.ranks} - {below.hits[0].node_id}
    fallen = {below.why_not(id_).stage for id_ in ids}
    assert fallen == {"Top(k=1)"}


SAME = [("a", 0.9, "annual leave days"), ("b", 0.8, "Annual  leave days"), ("c", 0.1, "lunch")]


def merging() -> Retriever:
    docstore = SimpleDocumentStore()
    nodes = family("P", 2)
    docstore.add_documents(nodes)
    found = FixedRetriever([("P0", 0.9), ("P1", 0.8)])
    found.hits = [hit.model_copy(update={"node": nodes[n + 1]}) for n, hit in enumerate(found.hits)]
    return AutoMergingRetriever(found, docstore)


@pytest.mark.parametrize(
    ("retriever", "node_id", "into"),
    [
        (lambda: FakeRetriever(SAME) >> Dedupe(), "b", "a"),
        (lambda: FakeRetriever(SAME) >> Dedupe("nearly") >> Top(1), "b", "a"),
        (merging, "P1", "P"),
    ],
    ids=["content", "nearly", "parent"],
)
def test_a_node_that_was_left_out_for_another_names_it(
    retriever: Callable[[], Retriever], node_id: str, into: str
) -> None:
    explanation = retriever().explain("leave")
    why = explanation.why_not(node_id)
    assert (why.reason, why.into) == (WhyNotReason.MERGED, into)
    assert node_id in explanation.accounts[0].merged


def test_a_store_that_collapses_documents_names_the_better_hit() -> None:
    pages = [
        TextNode(id_=f"p{n}", text=f"annual leave {'days ' * n}", metadata={"file_path": "a.pdf"})
        for n in range(3)
    ]
    store = EmbeddedVectorStore(":memory:")
    store.add(
        [
            page.model_copy(update={"embedding": MODEL.get_text_embedding(page.text)})
            for page in pages
        ]
    )
    found = HybridRetriever(store, embed_model=MODEL, collapse=Collapse()).explain("annual leave")
    (kept,) = found.hits
    assert {found.why_not(page.node_id).into for page in pages} == {None, kept.node_id}


def test_what_the_engine_did_and_what_was_known_already_is_noted_by_explain_alone() -> None:
    store = stored()
    vector, hybrid = (kind(store, embed_model=MODEL) for kind in (VectorRetriever, HybridRetriever))
    retriever = branches(both=hybrid, again=vector) >> RRF()
    shown = str(retriever.explain(QUERY, scope=ACME))
    assert "pushed down: both searches in one request; Scope(tenant_id='acme')" in shown
    assert "from cache: query embedding" in shown
    searched = retriever.search(QUERY).trace
    assert searched is not None
    assert "notes={'" not in repr(searched.to_dict()).replace("'notes': {}", "")
    assert searched.ranking is None


def test_two_explanations_are_compared_hit_by_hit() -> None:
    old = FixedRetriever([("a", 0.9), ("b", 0.5), ("c", 0.4)]).explain("leave")
    new = FixedRetriever([("b", 0.8), ("a", 0.7), ("d", 0.1)]).explain("annual leave")
    comparison = old.compare(new)
    moved = {pair.hit.node_id: pair.moved for pair in comparison.pairs}
    assert moved == {"a": -1, "b": 1, "c": None, "d": None}
    assert (comparison.only_first, comparison.only_second, comparison.overlap) == (
        *(["c"], ["d"]),
        0.5,
    )
    assert json.loads(json.dumps(comparison.to_dict()))["queries"] == ["leave", "annual leave"]
    assert "  #2   #1       ▲1  b" in repr(comparison)


def test_an_explanation_is_a_result_that_travels() -> None:
    retriever = branches(good=pipeline(stored()), bad=FakeRetriever(error=OSError("down"))) >> RRF()
    explanation = retriever.explain(QUERY)
    assert "bad: " in str(explanation)
    assert "OSError: down" in str(explanation)
    for copied in (pickle.loads(pickle.dumps(explanation)), copy.deepcopy(explanation)):
        assert isinstance(copied, Explanation)
        assert copied.hits == explanation.hits == retriever.search(QUERY).hits
        assert copied.why_not("acme-code") == explanation.why_not("acme-code")
    told = json.loads(json.dumps(explanation.to_dict()))
    assert [each["node_id"] for each in told["accounts"]] == [h.node_id for h in explanation]
