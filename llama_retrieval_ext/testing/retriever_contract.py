"""`RetrieverContract`: requirements for every retriever, as tests to inherit."""
# ruff: noqa: D102 - the names of the tests say what they say

import asyncio
import copy
import json
import math
from concurrent.futures import ThreadPoolExecutor
from html import unescape

from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.tools import RetrieverTool

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids, score_of
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.testing.corpus import ACME, CORPUS_SIZE, GLOBEX, sample_nodes
from llama_retrieval_ext.testing.isolation_contract import (
    IsolationContract,
    RetrieverFixtures,
    assert_same_ranking,
)
from llama_retrieval_ext.testing.with_pytest import case, pytest


class RankingContract(RetrieverFixtures):
    """Tests of a ranking: sorted, bounded, unique, finite, repeatable, without side effects."""

    def test_every_query_has_hits_best_first_and_equal_scores_go_by_node_id(
        self, retriever: Retriever
    ) -> None:
        for query in self.queries:
            with case(query):
                assert retriever.retrieve(query)
                hits = retriever.retrieve(Query(query, top_k=CORPUS_SIZE))
                keys = [(-score_of(hit), hit.node.node_id) for hit in hits]
                assert keys == sorted(keys)

    def test_each_hit_is_another_node_whole_with_a_finite_score_and_a_source(
        self, retriever: Retriever
    ) -> None:
        originals = {node.node_id: node for node in sample_nodes()}
        for query in self.queries:
            hits = retriever.retrieve(Query(query, top_k=CORPUS_SIZE))
            ids = node_ids(hits)
            assert len(set(ids)) == len(ids)
            for hit in (*hits, *retriever.retrieve(query)):
                with case(query, hit.node.node_id):
                    assert isinstance(hit, Hit)
                    assert hit.source
                    assert isinstance(hit.score, float)
                    assert math.isfinite(hit.score)
                    original = originals.get(hit.node.node_id)
                    if original is not None:
                        assert hit.node.get_content() == original.text
                        assert hit.node.metadata == original.metadata

    def test_there_are_at_most_top_k_hits_the_first_of_a_longer_ranking(
        self, retriever: Retriever
    ) -> None:
        for query in self.queries:
            everything = retriever.retrieve(Query(query, top_k=CORPUS_SIZE))
            for top_k in (1, 2, 3, CORPUS_SIZE):
                with case(query, top_k):
                    hits = retriever.retrieve(Query(query, top_k=top_k))
                    assert 1 <= len(hits) <= top_k
                    if top_k == 2:
                        assert len(hits) == min(2, len(everything))
                    if top_k == 2 and self.prefix_stable:
                        assert_same_ranking(hits, everything[:2])
            beyond = retriever.retrieve(Query(query, top_k=CORPUS_SIZE * 100))
            assert_same_ranking(beyond, everything)

    def test_a_top_k_below_one_is_refused(self, retriever: Retriever) -> None:
        for top_k in (0, -1):
            with case(top_k), pytest.raises(ConfigurationError, match="top_k"):
                retriever.search(self.queries[0], top_k=top_k)

    def test_the_same_question_gets_the_same_answer_as_text_bundle_or_query_and_async(
        self, retriever: Retriever
    ) -> None:
        for query in self.queries:
            with case(query):
                by_text = retriever.retrieve(query)
                assert_same_ranking(by_text, retriever.retrieve(query))
                assert_same_ranking(by_text, retriever.retrieve(QueryBundle(query)))
                assert_same_ranking(by_text, retriever.retrieve(Query(query)))
                assert_same_ranking(by_text, asyncio.run(retriever.aretrieve(query)))

    def test_an_empty_corpus_gives_nothing(self, empty_retriever: Retriever) -> None:
        for query in self.queries:
            assert empty_retriever.retrieve(query) == []
            assert asyncio.run(empty_retriever.aretrieve(query)) == []

    def test_a_blank_query_gives_nothing(self, retriever: Retriever) -> None:
        for blank in ("", " ", "\n\t "):
            with case(blank):
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

    def test_what_is_done_to_a_hit_does_not_show_in_the_next_answer(
        self, retriever: Retriever
    ) -> None:
        first = retriever.retrieve(self.queries[0])
        before = [(hit.node.node_id, hit.score) for hit in first]
        for hit in first:
            hit.score = 0.0
        again = retriever.retrieve(self.queries[0])
        assert [(hit.node.node_id, hit.score) for hit in again] == before

    def test_the_representation_names_the_class_and_stays_the_same(
        self, retriever: Retriever
    ) -> None:
        before = repr(retriever)
        retriever.retrieve(self.queries[0])
        assert repr(retriever) == before
        assert type(retriever).__name__ in before
        assert " at 0x" not in before


_HIT_KEYS = {"node_id", "text", "score", "metadata", "kb_id", "document_id", "source"}


class ResultContract(RetrieverFixtures):
    """Tests of a search result: the hits of `retrieve`, a trace, and missing parts."""

    def test_search_and_asearch_have_the_hits_of_retrieve_and_nothing_is_missing(
        self, retriever: Retriever
    ) -> None:
        for query in self.queries:
            with case(query):
                result = retriever.search(query)
                assert_same_ranking(result.hits, retriever.retrieve(query))
                assert (list(result), len(result), result.query) == (
                    result.hits,
                    len(result.hits),
                    query,
                )
                assert result.degraded == ()
                assert asyncio.run(retriever.asearch(query)).degraded == ()
                few = asyncio.run(retriever.asearch(query, top_k=3))
                assert_same_ranking(few.hits, retriever.search(query, top_k=3).hits)

    def test_the_trace_says_what_ran_how_long_and_what_came_out(self, retriever: Retriever) -> None:
        result = retriever.search(self.queries[0])
        assert result.trace is not None
        assert result.trace.name == retriever.name
        assert result.trace.count == len(result.hits)
        for _, part in result.trace.walk():
            assert part.name
            assert part.error is None
            assert part.duration_s is not None
            assert 0 <= part.duration_s <= (result.trace.duration_s or 0)

    def test_a_limit_on_the_time_does_not_change_the_answer(self, retriever: Retriever) -> None:
        for query in self.queries:
            limited = retriever.retrieve(Query(query, timeout_s=60))
            assert_same_ranking(limited, retriever.retrieve(query))

    def test_explain_has_the_same_hits_and_notes_the_best(self, retriever: Retriever) -> None:
        result = retriever.explain(self.queries[0])
        assert_same_ranking(result.hits, retriever.retrieve(self.queries[0]))
        assert result.trace is not None
        assert result.trace.notes["top"] == node_ids(result.hits[:5])
        assert [account.hit for account in result.accounts] == result.hits
        for account in result.accounts:
            assert account.stages[-1].rank == account.rank
            assert result.why_not(account.hit.node_id).rank == account.rank
        assert json.loads(json.dumps(result.to_dict()))["accounts"]
        assert retriever.outline() in unescape(retriever._repr_html_())
        assert result._repr_html_()
        asynchronous = asyncio.run(retriever.aexplain(self.queries[0])).trace
        assert asynchronous is not None
        assert asynchronous.notes["top"] == result.trace.notes["top"]

    def test_the_result_is_json_with_the_documented_names(self, retriever: Retriever) -> None:
        result = retriever.search(self.queries[0])
        parsed = json.loads(json.dumps(result.to_dict()))
        assert {"hits", "degraded", "trace"} <= parsed.keys()
        assert len(parsed["hits"]) == len(result.hits)
        for shown, hit in zip(parsed["hits"], result.hits, strict=True):
            assert shown.keys() >= _HIT_KEYS
            assert shown["node_id"] == hit.node.node_id
            assert shown["text"] == hit.node.get_content()
            assert shown["kb_id"] == hit.node.metadata.get("kb_id")
            assert shown["document_id"] == hit.node.ref_doc_id


_THREADS = 8


class HostContract(RetrieverFixtures):
    """Tests that the retriever works wherever a LlamaIndex retriever does."""

    def test_a_query_engine_answers_from_its_hits(self, retriever: Retriever) -> None:
        engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
        for query in self.queries:
            expected = retriever.retrieve(query)
            assert_same_ranking(engine.query(query).source_nodes, expected)
            answer = asyncio.run(engine.aquery(query))
            assert_same_ranking(answer.source_nodes, expected)

    def test_it_is_a_leg_of_a_fusion_of_llama_index(self, retriever: Retriever) -> None:
        for use_async in (False, True):
            fusion = QueryFusionRetriever(
                [retriever], llm=MockLLM(), num_queries=1, similarity_top_k=100, use_async=use_async
            )
            for query in self.queries:
                with case(f"{use_async=}", query):
                    expected = sorted(node_ids(retriever.retrieve(query)))
                    assert sorted(node_ids(fusion.retrieve(query))) == expected
                    assert sorted(node_ids(asyncio.run(fusion.aretrieve(query)))) == expected

    def test_it_is_a_tool_for_agents(self, retriever: Retriever) -> None:
        tool = RetrieverTool.from_defaults(retriever, description="documents")
        hits = retriever.retrieve(self.queries[0])
        output = tool.call(self.queries[0])
        assert_same_ranking(output.raw_output, hits)
        assert hits[0].node.get_content() in output.content
        asynchronous = asyncio.run(tool.acall(self.queries[0]))
        assert_same_ranking(asynchronous.raw_output, hits)

    def test_sync_calls_work_inside_a_running_loop(self, retriever: Retriever) -> None:
        async def notebook_cell() -> list[list[NodeWithScore]]:
            return [retriever.retrieve(query) for query in self.queries]

        inside = asyncio.run(notebook_cell())
        for query, hits in zip(self.queries, inside, strict=True):
            assert_same_ranking(hits, retriever.retrieve(query))

    def test_many_queries_at_once_on_one_loop_after_another_get_their_own_answers(
        self, retriever: Retriever
    ) -> None:
        async def all_at_once() -> list[list[NodeWithScore]]:
            return await asyncio.gather(*map(retriever.aretrieve, self.queries * 3))

        expected = [retriever.retrieve(query) for query in self.queries]
        for loop in ("the first", "the second"):
            with case(loop):
                answers = asyncio.run(all_at_once())
                for query, hits, best in zip(self.queries * 3, answers, expected * 3, strict=True):
                    with case(query):
                        assert_same_ranking(hits, best)

    def test_it_works_under_uvloop(self, retriever: Retriever) -> None:
        uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            hits = runner.run(retriever.aretrieve(self.queries[0]))
        assert_same_ranking(hits, retriever.retrieve(self.queries[0]))

    def test_threads_share_it_without_crossed_answers(self, retriever: Retriever) -> None:
        queries = [
            Query(text, scope=scope) for text in self.queries for scope in (ACME, GLOBEX, None)
        ]
        expected = [retriever.retrieve(query) for query in queries]

        def in_thread(turn: int) -> list[tuple[int, list[NodeWithScore]]]:
            places = [(turn + step) % len(queries) for step in range(len(queries))]
            return [(index, retriever.retrieve(queries[index])) for index in places]

        with ThreadPoolExecutor(_THREADS) as threads:
            for answers in threads.map(in_thread, range(_THREADS)):
                for index, hits in answers:
                    assert_same_ranking(hits, expected[index])

    def test_threads_with_scopes_of_their_own_do_not_meet(self, retriever: Retriever) -> None:
        def tenants_seen(scope: Scope) -> set[object]:
            bound = retriever.for_scope(scope)
            hits = [hit for query in self.queries for hit in bound.retrieve(query)]
            return {hit.node.metadata.get("tenant_id") for hit in hits}

        with ThreadPoolExecutor(_THREADS) as threads:
            seen = list(threads.map(tenants_seen, [ACME, GLOBEX] * _THREADS))
        assert seen == [{"acme"}, {"globex"}] * _THREADS


class RetrieverContract(RankingContract, ResultContract, IsolationContract, HostContract):
    """Tests of a retriever: subclass it with a fixture ``retriever`` over `sample_nodes`.

    ::

        class TestMyRetriever(RetrieverContract):
            @pytest.fixture
            def retriever(self):
                return MyRetriever(sample_nodes(FakeEmbedding()), top_k=5)

    If one retriever over an engine passes, `RankingContract` and `IsolationContract` are enough for
    its variants: their answers may differ, but their calls do not. The fixture ``empty_retriever``
    may return a retriever without nodes. Class attributes of
    `RetrieverFixtures`, of the module of `IsolationContract`, declare legitimate differences.

    """
