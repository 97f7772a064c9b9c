"""What a backend promises of vector and keyword search in one request, as tests to inherit."""
# ruff: noqa: D102 - the names of the tests say what they say

import asyncio
from collections.abc import Sequence

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.execution.drivers import arun
from llama_retrieval_ext.execution.steps import call
from llama_retrieval_ext.filters import Compare, matches
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stages.algebra.fusion import FusedId
from llama_retrieval_ext.stores.backend import (
    Backend,
    Dense,
    Keyword,
    ScoredId,
    Search,
    dense_and_keyword,
    fusing,
    ids_first,
)
from llama_retrieval_ext.testing.corpus import ACME, SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.found import assert_same, found_by
from llama_retrieval_ext.testing.fusion_agreement import Asked, assert_fusion_agrees, sample_fusions
from llama_retrieval_ext.testing.with_pytest import pytest

_SCOPES = [None, ACME, Scope("nobody")]


class BothSearchesContract:
    """The part of `BackendContract` on batches, on ids first, and on fusion in the engine."""

    def test_a_batch_finds_what_single_searches_find(
        self, backend: Backend, embed_model: BaseEmbedding
    ) -> None:
        declared = backend.capabilities
        narrow = Compare("lang", FilterOperator.EQ, "en")
        searches = [Search(5), Search(2), Search(5, ACME.condition, ACME), Search(5, narrow)]
        asked: list[Dense | Keyword] = []
        for text in (*SAMPLE_QUERIES, "", "?!"):
            for search in searches:
                if declared.keyword is not None:
                    asked.append(Keyword(text, search))
                if declared.dense is not None and text:
                    asked.append(Dense(tuple(embed_model.get_query_embedding(text)), search))
        batch = backend.batch(asked)
        if batch is None:
            assert not declared.one_round_trip
            return
        for found, each in zip(found_by(batch), asked, strict=True):
            alone = (
                backend.dense(each.embedding, each.search)
                if isinstance(each, Dense)
                else backend.keyword(each.text, each.search)
            )
            assert_same(found, found_by(alone))

    @pytest.mark.parametrize("scope", _SCOPES, ids=repr)
    def test_ids_come_first_and_nodes_later_as_they_come_together(
        self, backend: Backend, embed_model: BaseEmbedding, scope: Scope | None
    ) -> None:
        if not backend.capabilities.ids_first:
            return
        search = Search(4, None if scope is None else scope.condition, scope)
        for text in (*SAMPLE_QUERIES, "?!"):
            vector = embed_model.get_query_embedding(text)
            together = backend.batch(dense_and_keyword(vector, text, search))
            assert together is not None
            both = [each for ranking in found_by(together) for each in ranking]
            asked = vector, text, search, _all_of_both
            top, nodes = found_by(ids_first(backend).best_of_both(*asked))
            assert [each[:2] for each in top] == [(each.node_id, each.score) for each in both]
            assert nodes == {each.node_id: each.node for each in both}
        vector = embed_model.get_query_embedding(SAMPLE_QUERIES[0])
        every = vector, SAMPLE_QUERIES[0], search, _everything_and_more
        _, nodes = found_by(ids_first(backend).best_of_both(*every))
        assert {id_: node.node_id for id_, node in nodes.items()} == {
            node.node_id: node.node_id
            for node in sample_nodes()
            if matches(search.condition, node.metadata)
        }

    @pytest.mark.parametrize("scope", _SCOPES, ids=repr)
    def test_what_the_engine_fuses_is_what_our_fusion_gives_but_for_ties(
        self, backend: Backend, embed_model: BaseEmbedding, scope: Scope | None
    ) -> None:
        condition = None if scope is None else scope.condition
        for native in backend.capabilities.fusions:
            for how in sample_fusions(native, candidates=5):
                for text in (*SAMPLE_QUERIES, "?!"):
                    vector = embed_model.get_query_embedding(text)
                    search = Search(4, condition, scope)
                    assert_fusion_agrees(backend, Asked(vector, text, search), how)

    def test_async_fuses_what_sync_fuses(
        self, backend: Backend, embed_model: BaseEmbedding
    ) -> None:
        text = SAMPLE_QUERIES[0]
        vector, search = embed_model.get_query_embedding(text), Search(5, ACME.condition, ACME)
        for native in backend.capabilities.fusions:
            how = next(sample_fusions(native, candidates=5))
            found = found_by(fusing(backend).fused(vector, text, search, how))
            again = asyncio.run(arun(call(fusing(backend).fused(vector, text, search, how))))
            assert found
            assert_same(again, found)


def _all_of_both(near: Sequence[ScoredId], sharing: Sequence[ScoredId]) -> list[FusedId]:
    return [FusedId(node_id, score, ()) for node_id, score in (*near, *sharing)]


def _everything_and_more(*_: Sequence[ScoredId]) -> list[FusedId]:
    ids = [node.node_id for node in sample_nodes()]
    return [FusedId(node_id, 0.0, ()) for node_id in (*ids, "none such")]
