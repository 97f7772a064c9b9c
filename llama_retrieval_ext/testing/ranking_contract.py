"""The promises about what `retrieve` returns."""
# ruff: noqa: D102 - the names of the tests say what they say

import asyncio
import copy
import math

from llama_index.core.schema import QueryBundle

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit, node_ids, score_of
from llama_retrieval_ext.stages.algebra.retriever import Retriever
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.retriever_fixtures import (
    CORPUS_SIZE,
    RetrieverFixtures,
    assert_same_ranking,
)
from llama_retrieval_ext.testing.with_pytest import pytest


class RankingContract(RetrieverFixtures):
    """A ranking: best first, bounded, unique, finite, repeatable; and nothing else is touched."""

    def test_every_query_finds_something(self, retriever: Retriever) -> None:
        assert all(retriever.retrieve(query) for query in self.queries)

    @pytest.mark.parametrize("top_k", [1, 3, CORPUS_SIZE])
    def test_there_are_at_most_top_k_hits(self, retriever: Retriever, top_k: int) -> None:
        for query in self.queries:
            assert 1 <= len(retriever.retrieve(Query(query, top_k=top_k))) <= top_k

    def test_the_best_hit_comes_first_and_equal_scores_go_by_node_id(
        self, retriever: Retriever
    ) -> None:
        for query in self.queries:
            hits = retriever.retrieve(Query(query, top_k=CORPUS_SIZE))
            keys = [(-score_of(hit), hit.node.node_id) for hit in hits]
            assert keys == sorted(keys)

    def test_no_node_comes_twice(self, retriever: Retriever) -> None:
        for query in self.queries:
            found = node_ids(retriever.retrieve(Query(query, top_k=CORPUS_SIZE)))
            assert len(set(found)) == len(found)

    def test_scores_are_finite_numbers(self, retriever: Retriever) -> None:
        for query in self.queries:
            for hit in retriever.retrieve(Query(query, top_k=CORPUS_SIZE)):
                assert isinstance(hit.score, float)
                assert math.isfinite(hit.score)

    def test_every_hit_says_where_it_came_from(self, retriever: Retriever) -> None:
        for query in self.queries:
            for hit in retriever.retrieve(query):
                assert isinstance(hit, Hit)
                assert hit.source

    def test_the_same_question_gets_the_same_answer_twice(self, retriever: Retriever) -> None:
        for query in self.queries:
            assert_same_ranking(retriever.retrieve(query), retriever.retrieve(query))

    def test_text_bundle_and_query_get_the_same_answer(self, retriever: Retriever) -> None:
        for query in self.queries:
            by_text = retriever.retrieve(query)
            assert_same_ranking(by_text, retriever.retrieve(QueryBundle(query)))
            assert_same_ranking(by_text, retriever.retrieve(Query(query)))

    def test_async_gives_what_sync_gives(self, retriever: Retriever) -> None:
        for query in self.queries:
            asynchronous = asyncio.run(retriever.aretrieve(query))
            assert_same_ranking(retriever.retrieve(query), asynchronous)

    def test_a_smaller_top_k_gives_the_beginning_of_a_larger(self, retriever: Retriever) -> None:
        for query in self.queries:
            everything = retriever.retrieve(Query(query, top_k=CORPUS_SIZE))
            few = retriever.retrieve(Query(query, top_k=2))
            assert len(few) == min(2, len(everything))
            if self.prefix_stable:
                assert_same_ranking(few, everything[:2])

    def test_a_top_k_beyond_the_corpus_gives_what_there_is(self, retriever: Retriever) -> None:
        for query in self.queries:
            hits = retriever.retrieve(Query(query, top_k=CORPUS_SIZE * 100))
            assert_same_ranking(hits, retriever.retrieve(Query(query, top_k=CORPUS_SIZE)))

    @pytest.mark.parametrize("top_k", [0, -1])
    def test_a_top_k_below_one_is_refused(self, retriever: Retriever, top_k: int) -> None:
        with pytest.raises(ConfigurationError, match="top_k"):
            retriever.search(self.queries[0], top_k=top_k)

    def test_an_empty_corpus_gives_nothing(self, empty_retriever: Retriever) -> None:
        for query in self.queries:
            assert empty_retriever.retrieve(query) == []
            assert asyncio.run(empty_retriever.aretrieve(query)) == []

    @pytest.mark.parametrize("blank", ["", " ", "\n\t "])
    def test_a_blank_query_gives_nothing(self, retriever: Retriever, blank: str) -> None:
        assert retriever.retrieve(blank) == []
        assert asyncio.run(retriever.aretrieve(blank)) == []

    def test_a_query_of_ten_thousand_words_is_answered(self, retriever: Retriever) -> None:
        words = " ".join(self.queries).split()
        hits = retriever.retrieve(" ".join(words * (10_000 // len(words) + 1)))
        assert hits
        assert all(math.isfinite(score_of(hit)) for hit in hits)

    def test_the_query_is_not_changed(self, retriever: Retriever) -> None:
        for query in (
            QueryBundle(self.queries[0]),
            Query(self.queries[0], custom_embedding_strs=[self.queries[0]], context={"key": [1]}),
        ):
            before = copy.deepcopy(query)
            retriever.retrieve(query)
            asyncio.run(retriever.aretrieve(query))
            retriever.search(query, top_k=2)
            assert query == before

    def test_nodes_come_back_as_they_went_in(self, retriever: Retriever) -> None:
        originals = {node.node_id: node for node in sample_nodes()}
        for query in self.queries * 2:
            for hit in retriever.retrieve(query):
                original = originals.get(hit.node.node_id)
                if original is not None:
                    assert hit.node.get_content() == original.text
                    assert hit.node.metadata == original.metadata

    def test_what_is_done_to_a_hit_does_not_show_in_the_next_answer(
        self, retriever: Retriever
    ) -> None:
        first = retriever.retrieve(self.queries[0])
        before = [(hit.node.node_id, hit.score) for hit in first]
        for hit in first:
            hit.score = 0.0
        again = retriever.retrieve(self.queries[0])
        assert [(hit.node.node_id, hit.score) for hit in again] == before

    def test_its_representation_tells_what_it_is_and_stays_the_same(
        self, retriever: Retriever
    ) -> None:
        before = repr(retriever)
        retriever.retrieve(self.queries[0])
        assert repr(retriever) == before
        assert type(retriever).__name__ in before
        assert " at 0x" not in before
