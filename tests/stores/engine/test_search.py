"""Searches of an engine: ties at the cut, hybrid searches that read nodes last, collapsed hits."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.indices.vector_store import VectorStoreIndex
from llama_index.core.schema import NodeRelationship, QueryBundle, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext import RRF, Collapse, Hit, HybridRetriever, Query, Scope, WeightedSum
from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.fusion import Fusion, LegRanking
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.stores.embedded.search import EmbeddedSearch
from llama_retrieval_ext.stores.engine.backend import Search, hybrid_backend
from llama_retrieval_ext.stores.open import source_of
from llama_retrieval_ext.testing import FakeEmbedding
from tests.stores.engines import filled


def test_ties_cost_one_request_and_are_ordered_by_id_within_what_was_fetched(
    store: EmbeddedVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add([TextNode(id_=f"{n * 7 % 60:02}", text="word", embedding=[1.0]) for n in range(60)])
    requests: list[int] = []
    pages = EmbeddedSearch.pages

    def counted(*args: Any, **options: Any) -> Any:
        requests.append(0)
        return pages(*args, **options)

    monkeypatch.setattr(EmbeddedSearch, "pages", counted)
    query = Query("word", embedding=[1.0], top_k=20)
    for retriever in (VectorRetriever(store), KeywordRetriever(store), HybridRetriever(store)):
        requests.clear()
        ids = node_ids(retriever.retrieve(query))
        assert (ids, len(ids), len(requests)) == (sorted(ids), 20, 1)


def test_both_queries_of_a_hybrid_search_have_one_compiled_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scope = Scope("acme", principals=["user:ann"])
    both = Search(10, scope.condition, scope)
    with EmbeddedVectorStore(":memory:") as store:
        compiled: list[Condition] = []
        monkeypatch.setattr(type(store), "compile", lambda _, part: compiled.append(part))
        store.hybrid([1.0], "leave", both, nodes_last=True)
    assert compiled == [scope.condition, Scope("acme").condition]  # the second is for statistics


TIED_WORDS = ["leave", "holiday", "travel", "expense", "invoice", "laptop"]


class Pinned(RRF):
    """Looks at what ids say."""

    def combine(self, shares: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        return {id_: score + id_.endswith("7") for id_, score in super().combine(shares).items()}


def tied_nodes(count: int, *, words: int) -> list[TextNode]:
    """Texts of so many words: of few words, nearly all scores tie."""
    rng = random.Random(7)
    return [
        TextNode(
            id_=f"n{rng.random()}-{number}",
            text=" ".join(rng.choices(TIED_WORDS, k=words)) + " and" * rng.randrange(words),
            embedding=[rng.choice([0.25, 0.5, 0.75]), rng.choice([0.25, 1.0])],
            metadata={"tenant_id": "acme" if number % 2 else "other", "group": number % 3},
        )
        for number in range(count)
    ]


def _as_dicts(hits: Sequence[Hit]) -> list[dict[str, object]]:
    return [hit.to_dict() for hit in hits]


@pytest.mark.slow
@pytest.mark.parametrize("words", [1, 12])
@pytest.mark.parametrize("count", [12, 250])
@pytest.mark.parametrize("fusion", [None, RRF(), Pinned()], ids=repr)
def test_a_hybrid_search_that_reads_nodes_last_finds_what_one_with_all_nodes_finds(
    store: EmbeddedVectorStore, fusion: Fusion | None, count: int, words: int
) -> None:
    store.add(tied_nodes(count, words=words))
    narrow = MetadataFilters(filters=[MetadataFilter(key="group", value=1)])
    retriever = HybridRetriever(store, fusion=fusion, candidates=200 if words == 1 else 40)
    for options in ({}, {"scope": Scope("acme")}, {"filters": narrow}, {"top_k": 1}):
        query = Query("leave travel", embedding=[1.0, 0.5]).but(**options)
        together = retriever.explain(query).hits  # notes the ids of all candidates
        assert together
        for _ in range(2):  # the second time, ids that ties made necessary are known
            assert _as_dicts(retriever.search(query).hits) == _as_dicts(together)


def test_only_a_fusion_that_overrides_combine_reads_ids() -> None:
    assert not RRF().reads_ids
    assert not WeightedSum().reads_ids
    assert Pinned().reads_ids
    leg = LegRanking("a", {"n7": 1.0}, 1.0)
    assert Pinned().combine(Pinned().shares([leg]))["n7"] > 1


N_NODES = 300
WORDS = ["leave", "travel", "budget", "contract", "年假", "报销"]
COLLAPSES = [Collapse(), Collapse(3), Collapse(by="author"), Collapse(2, by="author")]


def random_nodes() -> list[TextNode]:
    """Some have no document, some documents are ids of nodes; one has a third of all nodes."""
    random.seed(7)
    nodes = []
    for place in range(N_NODES):
        node = TextNode(
            id_=f"n{place:03}",
            text=" ".join(random.choices(WORDS, k=random.randint(1, 9))),
            metadata={"tenant_id": random.choice("ab"), "author": random.choice(["Li", 7, None])},
            embedding=[random.gauss(0, 1) for _ in range(8)],
        )
        document = random.choice(["big", "n001", None, f"d{place % 30}", f"d{place % 30}"])
        if document is not None:
            node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
        nodes.append(node)
    return nodes


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["embedded", "milvus"])
def test_collapsed_hits_are_those_of_the_whole_ranking(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with filled(engine, random_nodes(), request=request, folder=tmp_path) as backend:
        for kind in (VectorRetriever, KeywordRetriever):
            whole = kind(backend, top_k=N_NODES)
            for seed, collapse in enumerate(COLLAPSES):
                query = query_of(seed)
                ranking = whole.search(query).hits
                for top_k in (1, 7, 40):
                    found = kind(backend, top_k=top_k, collapse=collapse).search(query)
                    expected = collapse.refine(query, ranking)[:top_k]
                    assert node_ids(found.hits) == node_ids(expected), (kind, collapse, top_k)
                    assert not found.degraded
        hybrid = HybridRetriever(backend, top_k=N_NODES, candidates=N_NODES, scope=Scope("a"))
        retriever = HybridRetriever(
            backend, top_k=40, candidates=N_NODES, collapse=Collapse(), scope=Scope("a")
        )
        expected = Collapse().refine(query_of(1), hybrid.search(query_of(1)).hits)[:40]
        assert node_ids(retriever.retrieve(query_of(1))) == node_ids(expected)


def query_of(seed: int) -> Query:
    random.seed(seed)
    text = " ".join(random.sample(WORDS, k=2))
    return Query.of(QueryBundle(text, embedding=[random.gauss(0, 1) for _ in range(8)]))


def test_features_without_their_methods_are_an_error_that_names_the_protocol() -> None:
    index = VectorStoreIndex([TextNode(text="leave")], embed_model=FakeEmbedding())
    backend = source_of(index).backend
    with pytest.raises(UnsupportedModeError, match=r"GenericBackend .* implement HybridBackend"):
        hybrid_backend(backend)
