"""One composite, shared by many threads and tasks, each with a scope of its own."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.stages.fusion import RRF

THREADS, QUERIES = 8, 300


class Echo(Retriever):
    """Finds one node: who asks, and what."""

    def __init__(self, name: str) -> None:
        super().__init__(top_k=5, name=name)

    def plan(self, query: Query) -> Plan[list[Hit]]:
        yield from ()
        tenant = "nobody" if query.scope is None else query.scope.tenant_id
        text = f"{tenant} asks {query.query_str}"
        node = TextNode(id_=f"{self.name}: {text}", text=text, metadata={"tenant_id": tenant})
        return [Hit(node=node, score=1.0, source=self.name)]


def texts(retriever: Retriever, tenant: str, number: int) -> list[str]:
    query = Query(f"question {number}", scope=Scope(tenant))
    return [hit.node.get_content() for hit in retriever.retrieve(query)]


@pytest.mark.slow
def test_eight_threads_with_hundreds_of_queries_each_get_their_own_answers() -> None:
    shared = branches(Echo("a"), Echo("b")) >> RRF()

    def wrong_answers(thread: int) -> int:
        tenant = f"tenant{thread}"
        retriever = shared.for_scope(Scope(tenant)) if thread % 2 else shared
        return sum(
            texts(retriever, tenant, number) != [f"{tenant} asks question {number}"] * 2
            for number in range(QUERIES)
        )

    with ThreadPoolExecutor(THREADS) as threads:
        assert list(threads.map(wrong_answers, range(THREADS))) == [0] * THREADS
