"""MMR: relevant hits that do not repeat each other."""

from typing import Any

import pytest
from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings

from llama_retrieval_ext import MMR, Query
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.hits import node_ids, score_of
from tests.cases import cases
from tests.stages.embedded_hits import QUERY, VECTORS, hits


def test_mmr_scores_fall_where_the_first_pick_scores_below_the_second() -> None:
    # Without redundancy the first pick has 0.5 x 0.6; the opposed second one has more than that.
    opposed = hits({"a": [0.6, 0.8], "b": [0.59, -0.81]})
    found = run(MMR(0.5).refine_plan(Query("q", embedding=[1.0, 0.0]), opposed))
    plain = [hit.contributions[-1].score for hit in found]
    assert plain[0] is not None
    assert plain[1] is not None
    assert plain[0] < plain[1]
    assert node_ids(found) == ["a", "b"]
    assert score_of(found[0]) >= score_of(found[1]) == plain[1]


def test_mmr_adds_a_contribution_to_those_of_the_hit() -> None:
    first = run(MMR().refine_plan(QUERY, hits()))[0]
    before, mmr = first.contributions
    assert (before.leg, before.rank, before.score, before.share) == ("vector", 1, 1.0, 0.0)
    assert (mmr.leg, mmr.rank) == ("MMR", 1)
    assert mmr.share == first.score


def test_mmr_of_an_empty_ranking_needs_no_embeddings() -> None:
    assert run(MMR().refine_plan(Query("no embedding"), [])) == []


def test_mmr_leaves_the_order_unchanged_where_an_embedding_is_nan() -> None:
    rows = hits({"a": [float("nan"), 0.0, 0.0], "b": VECTORS["b"]})
    assert node_ids(run(MMR().refine_plan(QUERY, rows))) == ["a", "b"]


@cases("wrong", [{"lambda_mult": 1.5}, {"lambda_mult": -0.1}, {"top_k": 0}, {"timeout_s": 0}])
def test_mmr_refuses_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        MMR(**wrong)


def test_mmr_puts_a_duplicate_of_any_earlier_pick_last() -> None:
    found = run(MMR(0.5).refine_plan(QUERY, hits()))
    assert node_ids(found) == ["a", "b", "c", "a_dup"]
    stock = get_top_k_mmr_embeddings(
        [1.0, 0.0, 0.0], list(VECTORS.values()), similarity_top_k=4, embedding_ids=list(VECTORS)
    )
    assert stock[1] == ["a", "b", "a_dup", "c"]
