"""Hybrid search over an engine that gives ids first, and the nodes of the best afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import ScopeViolationError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.stores.engine.backend import Candidate, HybridRankings, Search
from llama_retrieval_ext.testing.corpus import ACME, SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fake_backend import FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding

MODEL = FakeEmbedding()


class IdsFirst(FakeBackend):
    """Remembers which nodes were read; those in ``gone`` were deleted meanwhile."""

    def __init__(self, nodes: Sequence[TextNode], *, gone: Sequence[str] = ()) -> None:
        super().__init__(nodes)
        self.gone = gone
        self.read: list[Sequence[str]] = []

    def hybrid(
        self, embedding: Sequence[float], text: str, search: Search, *, nodes_last: bool
    ) -> Call[HybridRankings]:
        both = super().hybrid(embedding, text, search, nodes_last=nodes_last)
        if not nodes_last:
            return both
        present = {node.node_id: node for node in self.nodes if node.node_id not in self.gone}

        def read(ids: Sequence[str]) -> Call[Mapping[str, Candidate]]:
            self.read.append(ids)
            return Call(
                lambda: {id_: Candidate(present[id_], 0.0) for id_ in ids if id_ in present}
            )

        return both.then(lambda found: replace(found, found={}, read=read))


def test_hits_are_equal_whether_nodes_are_read_with_the_rankings_or_afterwards() -> None:
    apart, together = IdsFirst(sample_nodes(MODEL)), FakeBackend(sample_nodes(MODEL))
    for text in SAMPLE_QUERIES:
        hits = HybridRetriever(apart, embed_model=MODEL, top_k=5).search(text).hits
        expected = HybridRetriever(together, embed_model=MODEL, top_k=5).search(text).hits
        assert [hit.to_dict() for hit in hits] == [hit.to_dict() for hit in expected]


def test_only_the_nodes_of_the_best_hits_are_read() -> None:
    backend = IdsFirst(sample_nodes(MODEL))
    hits = HybridRetriever(backend, embed_model=MODEL, top_k=3).retrieve(SAMPLE_QUERIES[0])
    assert backend.read == [[hit.node_id for hit in hits]]


def test_a_node_deleted_between_ranking_and_reading_is_left_out() -> None:
    whole = HybridRetriever(IdsFirst(sample_nodes(MODEL)), embed_model=MODEL, top_k=3)
    first, *others = [hit.node_id for hit in whole.retrieve(SAMPLE_QUERIES[0])]
    backend = IdsFirst(sample_nodes(MODEL), gone=[first])
    hits = HybridRetriever(backend, embed_model=MODEL, top_k=3).retrieve(SAMPLE_QUERIES[0])
    assert [hit.node_id for hit in hits] == others


def test_nodes_read_after_the_ranking_are_checked_against_the_scope() -> None:
    class Leaking(IdsFirst):
        def shows(self, node: TextNode, condition: object) -> bool:
            return True

    retriever = HybridRetriever(Leaking(sample_nodes(MODEL)), embed_model=MODEL).for_scope(ACME)
    with pytest.raises(ScopeViolationError):
        retriever.retrieve(SAMPLE_QUERIES[0])
