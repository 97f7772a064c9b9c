"""`explain`: the account of each hit, and two explanations compared."""

import copy
import json
import pickle
from functools import cache

import pytest
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_retrieval_ext import (
    MMR,
    RRF,
    EmbeddedVectorStore,
    Explanation,
    HybridRetriever,
    Retriever,
    RuleRerank,
    Top,
    VectorRetriever,
    branches,
)
from llama_retrieval_ext.testing.corpus import ACME, sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever

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


def test_an_account_holds_the_rank_and_score_of_a_hit_at_every_leg_and_stage() -> None:
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
        at = {stage.stage: (stage.rank, stage.score) for stage in account.stages}
        assert at == {
            **{name: (part.rank, part.score) for name, part in legs.items()},
            "hybrid": (account.rank, account.hit.score),
        }
    reranked = pipeline(store).explain(QUERY, filters=SINCE_2021, scope=ACME)
    assert reranked.accounts
    for account in reranked.accounts:
        (before, reranked_at), (_, cut) = account.rescored
        assert before == next(stage for stage in account.stages if stage.stage == "hybrid")
        assert reranked_at.stage == "RuleRerank()"
        assert (cut.rank, cut.score) == (account.rank, account.hit.score)
        assert account.filters == ("Scope(tenant_id='acme')", "year >= 2021")


def test_a_stage_that_can_be_skipped_is_one_stage_of_the_explanation() -> None:
    store = stored()
    retriever = HybridRetriever(store, embed_model=MODEL, top_k=5) >> MMR(0.7) >> Top(2)
    *_, mmr, top = retriever.explain(QUERY).stages
    assert (mmr.name, top.name) == ("MMR(lambda_mult=0.7)", "Top(k=2)")
    assert mmr.before is not None
    assert mmr.before.name == "hybrid"


def test_only_an_explanation_notes_pushdown_and_cached_embeddings() -> None:
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


def test_an_explanation_can_be_copied_pickled_and_written_as_json() -> None:
    retriever = branches(good=pipeline(stored()), bad=FakeRetriever(error=OSError("down"))) >> RRF()
    explanation = retriever.explain(QUERY)
    assert "bad: " in str(explanation)
    assert "OSError: down" in str(explanation)
    for copied in (pickle.loads(pickle.dumps(explanation)), copy.deepcopy(explanation)):
        assert isinstance(copied, Explanation)
        assert copied.hits == explanation.hits == retriever.search(QUERY).hits
        assert copied.why_not("acme-code") == explanation.why_not("acme-code")
    shown = json.loads(json.dumps(explanation.to_dict()))
    assert [each["node_id"] for each in shown["accounts"]] == [h.node_id for h in explanation]
