"""Hybrid search over an engine that gives ids first, and the nodes of the best afterwards."""

from collections.abc import Sequence

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import ScopeViolationError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    Choose,
    KeywordQuery,
    VectorQuery,
    scored_ids,
)
from llama_retrieval_ext.testing.corpus import ACME, SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fake_backend import FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
from llama_retrieval_ext.testing.retriever_contract import RankingContract

MODEL = FakeEmbedding()


class IdsFirst(FakeBackend):
    """Remembers which nodes were read; those in ``gone`` were deleted meanwhile."""

    def __init__(self, nodes: Sequence[TextNode], *, gone: Sequence[str] = ()) -> None:
        super().__init__(nodes)
        self.gone = gone
        self.read: list[Sequence[str]] = []

    def hybrid(
        self, vector: VectorQuery, keyword: KeywordQuery, choose: Choose, *, top_k: int
    ) -> Call[list[Candidate]]:
        near = self.dense(vector.embedding, vector.search)
        sharing = self.keyword(keyword.text, keyword.search)
        there = {node.node_id: node for node in self.nodes if node.node_id not in self.gone}

        def chosen() -> list[Candidate]:
            best = choose(scored_ids(near.function()), scored_ids(sharing.function()))[:top_k]
            self.read.append([id_ for id_, _, _ in best])
            return [
                Candidate(there[id_], 0.0).rescored(score, contributions)
                for id_, score, contributions in best
                if id_ in there
            ]

        return Call(chosen)


class TestRetriever(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self) -> Retriever:
        return HybridRetriever(IdsFirst(sample_nodes(MODEL)), embed_model=MODEL, top_k=5)


def test_it_finds_what_nodes_and_ids_together_find_and_says_the_same_of_it() -> None:
    apart, together = IdsFirst(sample_nodes(MODEL)), FakeBackend(sample_nodes(MODEL))
    for text in SAMPLE_QUERIES:
        hits = HybridRetriever(apart, embed_model=MODEL, top_k=5).search(text).hits
        expected = HybridRetriever(together, embed_model=MODEL, top_k=5).search(text).hits
        assert [hit.to_dict() for hit in hits] == [hit.to_dict() for hit in expected]


def test_the_nodes_of_the_best_alone_are_read() -> None:
    backend = IdsFirst(sample_nodes(MODEL))
    hits = HybridRetriever(backend, embed_model=MODEL, top_k=3).retrieve(SAMPLE_QUERIES[0])
    assert backend.read == [[hit.node_id for hit in hits]]


def test_what_was_deleted_meanwhile_is_left_out() -> None:
    whole = HybridRetriever(IdsFirst(sample_nodes(MODEL)), embed_model=MODEL, top_k=3)
    first, *others = [hit.node_id for hit in whole.retrieve(SAMPLE_QUERIES[0])]
    backend = IdsFirst(sample_nodes(MODEL), gone=[first])
    hits = HybridRetriever(backend, embed_model=MODEL, top_k=3).retrieve(SAMPLE_QUERIES[0])
    assert [hit.node_id for hit in hits] == others


def test_the_gate_checks_what_was_read_afterwards() -> None:
    class Leaking(IdsFirst):
        def shows(self, node: TextNode, condition: object) -> bool:
            return True

    retriever = HybridRetriever(Leaking(sample_nodes(MODEL)), embed_model=MODEL).for_scope(ACME)
    with pytest.raises(ScopeViolationError):
        retriever.retrieve(SAMPLE_QUERIES[0])
