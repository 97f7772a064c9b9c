"""Hybrid search that reads the nodes of the best last finds what it finds with all nodes."""

import random
from collections.abc import Mapping, Sequence

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext.pipeline.fusion import Fusion, LegRanking
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.engine import search

WORDS = ["leave", "holiday", "travel", "expense", "invoice", "laptop"]


class Pinned(RRF):
    """Looks at what ids say."""

    def combine(self, shares: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        return {id_: score + id_.endswith("7") for id_, score in super().combine(shares).items()}


def nodes(count: int, *, words: int) -> list[TextNode]:
    """Texts of so many words: of few words, nearly all scores tie."""
    rng = random.Random(7)
    return [
        TextNode(
            id_=f"n{rng.random()}-{number}",
            text=" ".join(rng.choices(WORDS, k=words)) + " and" * rng.randrange(words),
            embedding=[rng.choice([0.25, 0.5, 0.75]), rng.choice([0.25, 1.0])],
            metadata={"tenant_id": "acme" if number % 2 else "other", "group": number % 3},
        )
        for number in range(count)
    ]


def _as_dicts(hits: Sequence[Hit]) -> list[dict[str, object]]:
    return [hit.to_dict() for hit in hits]


@pytest.mark.parametrize("words", [1, 12])
@pytest.mark.parametrize("count", [12, 250])
@pytest.mark.parametrize("fusion", [None, RRF(), Pinned()], ids=repr)
def test_both_ways_find_the_same(
    store: EmbeddedVectorStore, fusion: Fusion | None, count: int, words: int
) -> None:
    store.add(nodes(count, words=words))
    narrow = MetadataFilters(filters=[MetadataFilter(key="group", value=1)])
    retriever = HybridRetriever(store, fusion=fusion, candidates=200 if words == 1 else 40)
    for options in ({}, {"scope": Scope("acme")}, {"filters": narrow}, {"top_k": 1}):
        query = Query("leave travel", embedding=[1.0, 0.5]).but(**options)
        together = retriever.explain(query).hits  # notes the ids of all candidates
        assert together
        for _ in range(2):  # the second time, ids that ties made necessary are known
            assert _as_dicts(retriever.search(query).hits) == _as_dicts(together)


def test_ids_are_opaque_only_to_fusions_that_do_not_read_them() -> None:
    assert not RRF().reads_ids
    assert not WeightedSum().reads_ids
    assert Pinned().reads_ids
    leg = LegRanking("a", {"n7": 1.0}, 1.0)
    assert Pinned().combine(Pinned().shares([leg]))["n7"] > 1


def test_ids_that_are_forgotten_during_a_search_still_decide_between_its_ties(
    store: EmbeddedVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_MOST_NAMES", 150)
    store.add(nodes(250, words=1))
    retriever = HybridRetriever(store, candidates=200)
    query = Query("leave travel", embedding=[1.0, 0.5])
    retriever.search(query.but(scope=Scope("acme")))  # notes the ids of a half
    found = retriever.search(query)
    assert _as_dicts(found.hits) == _as_dicts(retriever.explain(query).hits)
