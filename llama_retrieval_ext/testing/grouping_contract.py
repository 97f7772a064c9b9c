"""What a backend promises of a few nodes of each document, as tests to inherit."""
# ruff: noqa: D102 - the names of the tests say what they say

from collections.abc import Hashable, Sequence
from dataclasses import replace

from llama_index.core.base.embeddings.base import BaseEmbedding

from llama_retrieval_ext.query import Scope, document_of
from llama_retrieval_ext.stores.backend import Backend, Dense, Found, Keyword, Search
from llama_retrieval_ext.stores.grouping import grouping
from llama_retrieval_ext.testing.corpus import ACME, SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.found import found_by
from llama_retrieval_ext.testing.with_pytest import pytest


class GroupingContract:
    """The part of `BackendContract` on engines that go by documents."""

    @pytest.mark.parametrize("scope", [None, ACME, Scope("nobody")], ids=repr)
    @pytest.mark.parametrize("size", [1, 2])
    def test_the_best_nodes_of_the_best_documents_are_those_of_all(
        self, backend: Backend, embed_model: BaseEmbedding, scope: Scope | None, size: int
    ) -> None:
        if not backend.capabilities.grouping:
            return
        condition = None if scope is None else scope.condition
        search = Search(len(sample_nodes()), condition, scope)
        few = replace(search, top_k=3)
        for text in SAMPLE_QUERIES:
            vector = tuple(embed_model.get_query_embedding(text))
            for found, asked in (
                (found_by(backend.dense(vector, search)), Dense(vector, few)),
                (found_by(backend.keyword(text, search)), Keyword(text, few)),
            ):
                everything = _by_document(found)
                groups = _by_document(found_by(grouping(backend).grouped(asked, size)))
                # Which of those that tie is the engine's choice.
                assert [scores[0] for scores in groups.values()] == pytest.approx(
                    [scores[0] for scores in everything.values()][:3], abs=1e-6
                )
                for document, scores in groups.items():
                    assert scores == pytest.approx(everything[document][:size], abs=1e-6)


def _by_document(found: Sequence[Found]) -> dict[Hashable, list[float]]:
    """The scores of each document, best first; the documents by their best."""
    scores: dict[Hashable, list[float]] = {}
    for each in found:
        scores.setdefault(document_of(each.node) or each.node_id, []).append(each.score)
    return scores
