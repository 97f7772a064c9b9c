"""The contract of retrievers holds for one that keeps it and fails for one that breaks it."""

from collections.abc import Callable, Sequence

import pytest
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext import Hit, Query, Retriever
from llama_retrieval_ext.execution import Plan
from llama_retrieval_ext.execution.legs import Ask, Leg, ask
from llama_retrieval_ext.execution.retrieval import embed
from llama_retrieval_ext.hits import as_hit, ordered
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.testing import (
    FakeBackend,
    FakeEmbedding,
    IsolationContract,
    RankingContract,
    RetrieverContract,
    sample_nodes,
)
from tests.cases import cases


class PlainRetriever(Retriever):
    """Vector search over a list of nodes."""

    def __init__(self, nodes: Sequence[TextNode] | None = None, *, top_k: int = 5) -> None:
        super().__init__(top_k=top_k)
        self.model = FakeEmbedding()
        self.backend = FakeBackend(sample_nodes(self.model) if nodes is None else nodes)

    def plan(self, query: Query) -> Plan[list[Hit]]:
        embedding = yield from embed(query, self.model)
        search = Search(query.top_k or 1, query.condition, query.scope)
        found = yield self.backend.dense(embedding, search)
        return [Hit(node=each.node, score=each.score, source=self.name) for each in found]


class BestOf(Retriever):
    """The best score that any leg gives to a node."""

    def __init__(self, *retrievers: Retriever) -> None:
        super().__init__(top_k=5)
        self.legs = [Leg(f"leg {place}", each) for place, each in enumerate(retrievers)]

    def plan(self, query: Query) -> Plan[list[Hit]]:
        rankings = yield from ask({leg.name: Ask(leg, query, query.top_k) for leg in self.legs})
        hits = [as_hit(hit, source=self.name) for ranking in rankings.values() for hit in ranking]
        return ordered(hits)[: query.top_k]


class TestPlainRetriever(RetrieverContract):
    @pytest.fixture
    def retriever(self) -> Retriever:
        return PlainRetriever()

    @pytest.fixture
    def empty_retriever(self) -> Retriever:
        return PlainRetriever([])


@pytest.mark.slow
class TestCompositeNestedThreeDeep(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self) -> Retriever:
        return BestOf(BestOf(PlainRetriever(), BestOf(PlainRetriever())), PlainRetriever())


class TooMany(PlainRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return super()._retrieve(Query(query_bundle.query_str, top_k=100))


class WorstFirst(PlainRetriever):
    def plan(self, query: Query) -> Plan[list[Hit]]:
        hits = yield from super().plan(query)
        return hits[::-1]


class Nameless(PlainRetriever):
    def plan(self, query: Query) -> Plan[list[Hit]]:
        hits = yield from super().plan(query)
        return [hit.model_copy(update={"source": ""}) for hit in hits]


class Writer(PlainRetriever):
    """Writes into the query, as LlamaIndex's vector retriever does."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query_bundle.embedding = self.model.get_query_embedding(query_bundle.query_str)
        return super()._retrieve(query_bundle)


class Hoarder(PlainRetriever):
    """Gives the same objects every time."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[str, list[Hit]] = {}

    def plan(self, query: Query) -> Plan[list[Hit]]:
        if query.query_str not in self.cache:
            self.cache[query.query_str] = yield from super().plan(query)
        return self.cache[query.query_str]


class Unscoped(PlainRetriever):
    """Ignores scopes and filters."""

    def plan(self, query: Query) -> Plan[list[Hit]]:
        everybody = Query(query.query_str, top_k=query.top_k)
        return (yield from super().plan(everybody))


class Addressed(PlainRetriever):
    def __repr__(self) -> str:
        return object.__repr__(self)


CONTRACT = RetrieverContract()


@cases(
    ("broken", "promise"),
    [
        (TooMany, CONTRACT.test_there_are_at_most_top_k_hits_the_first_of_a_longer_ranking),
        (WorstFirst, CONTRACT.test_every_query_has_hits_best_first_and_equal_scores_go_by_node_id),
        (Nameless, CONTRACT.test_each_hit_is_another_node_whole_with_a_finite_score_and_a_source),
        (Writer, CONTRACT.test_the_query_is_not_changed),
        (Hoarder, CONTRACT.test_what_is_done_to_a_hit_does_not_show_in_the_next_answer),
        (Addressed, CONTRACT.test_the_representation_names_the_class_and_stays_the_same),
    ],
)
def test_a_broken_promise_fails_the_contract(
    broken: Callable[[], Retriever], promise: Callable[[Retriever], None]
) -> None:
    with pytest.raises(AssertionError):
        promise(broken())
