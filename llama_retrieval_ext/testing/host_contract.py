"""The promises about where a retriever works: in LlamaIndex, in threads, on event loops."""
# ruff: noqa: D102 - the names of the tests say what they say

import asyncio
from concurrent.futures import ThreadPoolExecutor

from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeWithScore
from llama_index.core.tools import RetrieverTool

from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.ranking import node_ids
from llama_retrieval_ext.stages.algebra.retriever import Retriever
from llama_retrieval_ext.testing.corpus import ACME, GLOBEX
from llama_retrieval_ext.testing.retriever_fixtures import RetrieverFixtures, assert_same_ranking
from llama_retrieval_ext.testing.with_pytest import pytest

_THREADS = 8


class HostContract(RetrieverFixtures):
    """It goes wherever a LlamaIndex retriever goes."""

    def test_a_query_engine_answers_from_its_hits(self, retriever: Retriever) -> None:
        engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
        for query in self.queries:
            expected = retriever.retrieve(query)
            assert_same_ranking(engine.query(query).source_nodes, expected)
            answer = asyncio.run(engine.aquery(query))
            assert_same_ranking(answer.source_nodes, expected)

    @pytest.mark.parametrize("use_async", [False, True])
    def test_it_is_a_leg_of_a_fusion_of_llama_index(
        self, retriever: Retriever, *, use_async: bool
    ) -> None:
        fusion = QueryFusionRetriever(
            [retriever], llm=MockLLM(), num_queries=1, similarity_top_k=100, use_async=use_async
        )
        for query in self.queries:
            expected = node_ids(retriever.retrieve(query))
            assert sorted(node_ids(fusion.retrieve(query))) == sorted(expected)
            assert sorted(node_ids(asyncio.run(fusion.aretrieve(query)))) == sorted(expected)

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

    def test_one_loop_after_another_may_ask_it(self, retriever: Retriever) -> None:
        expected = retriever.retrieve(self.queries[0])
        for _ in range(2):
            assert_same_ranking(asyncio.run(retriever.aretrieve(self.queries[0])), expected)

    def test_many_async_queries_at_once_do_not_get_in_each_others_way(
        self, retriever: Retriever
    ) -> None:
        async def all_at_once() -> list[list[NodeWithScore]]:
            return await asyncio.gather(*map(retriever.aretrieve, self.queries * 3))

        for query, hits in zip(self.queries * 3, asyncio.run(all_at_once()), strict=True):
            assert_same_ranking(hits, retriever.retrieve(query))

    def test_it_works_under_uvloop(self, retriever: Retriever) -> None:
        uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            hits = runner.run(retriever.aretrieve(self.queries[0]))
        assert_same_ranking(hits, retriever.retrieve(self.queries[0]))

    def test_threads_share_it_without_crossed_answers(self, retriever: Retriever) -> None:
        asked = [
            Query(text, scope=scope) for text in self.queries for scope in (ACME, GLOBEX, None)
        ]
        expected = [retriever.retrieve(query) for query in asked]

        def in_thread(turn: int) -> list[tuple[int, list[NodeWithScore]]]:
            places = [(turn + step) % len(asked) for step in range(len(asked))]
            return [(place, retriever.retrieve(asked[place])) for place in places]

        with ThreadPoolExecutor(_THREADS) as threads:
            for answers in threads.map(in_thread, range(_THREADS)):
                for place, hits in answers:
                    assert_same_ranking(hits, expected[place])

    def test_threads_with_scopes_of_their_own_do_not_meet(self, retriever: Retriever) -> None:
        def tenants_seen(scope: Scope) -> set[object]:
            bound = retriever.for_scope(scope)
            hits = [hit for query in self.queries for hit in bound.retrieve(query)]
            return {hit.node.metadata.get("tenant_id") for hit in hits}

        with ThreadPoolExecutor(_THREADS) as threads:
            seen = list(threads.map(tenants_seen, [ACME, GLOBEX] * _THREADS))
        assert seen == [{"acme"}, {"globex"}] * _THREADS
