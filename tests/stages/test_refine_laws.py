"""What holds for every refinement."""

import asyncio
import copy
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import TextNode

from llama_retrieval_ext import MMR, Contribution, Hit, Query, Refine, RuleRerank
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.hits import node_ids, ordered, score_of
from llama_retrieval_ext.pipeline.chains import refined
from llama_retrieval_ext.stages import EmbeddingRerank, LLMRerank, RerankChain, ScoreDecay
from llama_retrieval_ext.stages.selection import (
    Collapse,
    Dedupe,
    LongContextReorder,
    Threshold,
    Top,
)
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM
from tests.quick import examples

QUERY = Query("annual leave")
FEW = examples(15)  # of each stage
WORDS = ("annual", "sick", "leave", "days", "travel", "年假", "员工")
# Of none to two words. Drawing one is much faster than drawing its words.
TEXTS = [" ".join(words) for length in range(3) for words in product(WORDS, repeat=length)]


REORDERING: list[Refine] = [
    MMR(0.5, embed_model=FakeEmbedding()),
    EmbeddingRerank(FakeEmbedding()),
    RuleRerank(),
    LLMRerank(ScriptedLLM(lambda _: "Doc: 2, Relevance: 7\nDoc: 1, Relevance: 7")),
    ScoreDecay("year", half_life=3, origin=2026),
    RerankChain(RuleRerank()),
    LongContextReorder(),
]
DROPPING: list[Refine] = [
    Top(2),
    Threshold(0.5),
    Collapse(by="year"),
    Dedupe("id"),
    Dedupe(),
    Dedupe("nearly", at_least=0.5),
]
EVERY = REORDERING + DROPPING


def names(stages: list[Refine]) -> list[str]:
    return [repr(stage).replace("(embed_model=FakeEmbedding(...))", "") for stage in stages]


@st.composite
def rankings(draw: st.DrawFn) -> list[Hit]:
    ids = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8))
    return ordered(
        Hit(
            node=TextNode(
                id_=id_,
                text=draw(st.sampled_from(TEXTS)),
                metadata={"year": draw(st.integers(2015, 2027))},
            ),
            score=draw(st.sampled_from([-0.2, 0.1, 0.5, 0.9])),
            source="fake",
        )
        for id_ in ids
    )


@pytest.mark.parametrize("stage", EVERY, ids=names(EVERY))
@FEW
@given(hits=rankings())
def test_a_refinement_ranks_its_hits_changes_no_input_and_sync_equals_async(
    stage: Refine, hits: list[Hit]
) -> None:
    before = copy.deepcopy(hits)
    query = Query("annual leave", embedding=None)
    ranking = run(refined(stage, query, hits))
    if not isinstance(stage, LongContextReorder):  # the only one with another order
        assert node_ids(ranking) == node_ids(ordered(ranking))
    assert set(node_ids(ranking)) <= set(node_ids(hits))
    assert len(set(node_ids(ranking))) == len(ranking)
    assert asyncio.run(_arun(stage, query, hits)) == ranking
    assert hits == before
    assert query == QUERY


@pytest.mark.parametrize("stage", DROPPING, ids=names(DROPPING))
@FEW
@given(hits=rankings())
def test_dropping_hits_keeps_order_and_scores_and_is_idempotent(
    stage: Refine, hits: list[Hit]
) -> None:
    once = run(refined(stage, QUERY, hits))
    assert once == [hit for hit in hits if hit in once]
    assert run(refined(stage, QUERY, once)) == once


async def _arun(stage: Refine, query: Query, hits: list[Hit]) -> list[Hit]:
    return await arun(refined(stage, query, hits))


@pytest.mark.parametrize("stage", REORDERING, ids=names(REORDERING))
@FEW
@given(hits=rankings())
def test_a_reordering_keeps_every_hit_and_its_shares_sum_to_its_score(
    stage: Refine, hits: list[Hit]
) -> None:
    found = run(refined(stage, QUERY, hits))
    assert sorted(node_ids(found)) == sorted(node_ids(hits))
    for hit in () if isinstance(stage, LongContextReorder) else found:
        total = sum(part.share for part in hit.contributions)
        assert total == pytest.approx(score_of(hit), abs=1e-9)
        assert all(isinstance(part, Contribution) for part in hit.contributions)


@FEW
@given(rankings())
def test_mmr_by_relevance_alone_is_the_order_by_cosine(hits: list[Hit]) -> None:
    model = FakeEmbedding()
    by_cosine = run(EmbeddingRerank(model).refine_plan(QUERY, hits))
    found = run(MMR(1.0, embed_model=model).refine_plan(QUERY, by_cosine))
    assert node_ids(found) == node_ids(by_cosine)


@FEW
@given(rankings(), st.integers(1, 8))
def test_fewer_picks_of_mmr_are_the_first_of_more(hits: list[Hit], top_k: int) -> None:
    model = FakeEmbedding()
    few = run(MMR(top_k=top_k, embed_model=model).refine_plan(QUERY, hits))
    assert node_ids(few) == node_ids(run(MMR(embed_model=model).refine_plan(QUERY, hits)))[:top_k]
