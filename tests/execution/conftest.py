"""A composite, a leg that embeds, and legs that hang."""

import asyncio
from collections.abc import Callable, Generator
from typing import TypeAlias

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import QueryType, TextNode

from llama_retrieval_ext import Hit, Query, Retriever, SearchResult
from llama_retrieval_ext.execution import Plan
from llama_retrieval_ext.execution.legs import Ask, Leg, ask
from llama_retrieval_ext.execution.retrieval import embed
from llama_retrieval_ext.hits import as_hit, ordered
from llama_retrieval_ext.testing import HangingRetriever

Search: TypeAlias = Callable[[Retriever, QueryType], SearchResult]
# The fixture `fused`: makes a composite of legs.
Composite: TypeAlias = Callable[..., Retriever]


class FusionRetriever(Retriever):
    """The smallest composite: searches every leg; the best score of a node counts."""

    def __init__(
        self, *legs: Leg | BaseRetriever, min_success: int = 1, name: str = "fused"
    ) -> None:
        super().__init__(top_k=10, name=name)
        self.min_success = min_success
        self.legs = [
            each if isinstance(each, Leg) else Leg(f"leg {place}", each)
            for place, each in enumerate(legs)
        ]

    def plan(self, query: Query) -> Plan[list[Hit]]:
        asks = {leg.name: Ask(leg, query) for leg in self.legs}
        rankings = yield from ask(asks, min_success=self.min_success)
        hits = [as_hit(hit, source=self.name) for ranking in rankings.values() for hit in ranking]
        return ordered(hits)[: query.top_k]


class Embedded(Retriever):
    """Embeds the query; its one hit has the length of the embedding for a score."""

    def __init__(self, model: BaseEmbedding, *, name: str = "embedded") -> None:
        super().__init__(top_k=10, name=name)
        self.model = model

    def plan(self, query: Query) -> Plan[list[Hit]]:
        vector = yield from embed(query, self.model)
        node = TextNode(id_=self.name, text=self.name)
        return [Hit(node=node, score=float(len(vector)), source=self.name)]


@pytest.fixture
def fused() -> type[FusionRetriever]:
    return FusionRetriever


@pytest.fixture
def embedded() -> type[Embedded]:
    return Embedded


@pytest.fixture
def hanging() -> Generator[Callable[[], HangingRetriever]]:
    """Make retrievers that hang until the test is over."""
    made: list[HangingRetriever] = []

    def make() -> HangingRetriever:
        made.append(HangingRetriever([("late", 1.0)]))
        return made[-1]

    yield make
    for each in made:
        each.release()


def in_threads(retriever: Retriever, query: QueryType) -> SearchResult:
    return retriever.search(query)


def on_a_loop(retriever: Retriever, query: QueryType) -> SearchResult:
    return asyncio.run(retriever.asearch(query))


def inside_a_running_loop(retriever: Retriever, query: QueryType) -> SearchResult:
    async def notebook_cell() -> SearchResult:
        return retriever.search(query)

    return asyncio.run(notebook_cell())


@pytest.fixture(params=[in_threads, on_a_loop], ids=lambda way: way.__name__)
def search(request: pytest.FixtureRequest) -> Search:
    """Search by either driver."""
    way: Search = request.param
    return way


@pytest.fixture(params=[in_threads, on_a_loop, inside_a_running_loop], ids=lambda way: way.__name__)
def search_anywhere(request: pytest.FixtureRequest) -> Search:
    """Search by either driver, and by the blocking one inside a running event loop."""
    way: Search = request.param
    return way
