"""The calls of the retriever architecture: basic and composite retrievers, stores by injection."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext import (
    MMR,
    RRF,
    HybridRetriever,
    KeywordRetriever,
    QueryFusionRetriever,
    RecursiveRetriever,
    RerankRetriever,
    Route,
    RouterRetriever,
    RuleRerank,
    Top,
    VectorRetriever,
    branches,
    open_store,
)
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever, sample_nodes
from tests.cases import cases

MODEL = FakeEmbedding()
QUERY = "annual leave days"


@pytest.fixture(
    scope="module", params=["embedded", "qdrant", pytest.param("milvus", marks=pytest.mark.slow)]
)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineStore]:
    folder = tmp_path_factory.mktemp("designs")
    url = {"milvus": f"milvus:{folder / 'designs.db'}"}.get(
        request.param, f"{request.param}::memory:"
    )
    with open_store(url) as opened:
        opened.add(sample_nodes(MODEL))
        yield opened


def ids(hits: Sequence[NodeWithScore]) -> list[str]:
    return [hit.node_id for hit in hits]


def test_basic_retrievers_search_an_injected_store_with_an_injected_model(
    store: EngineStore,
) -> None:
    for retriever in (
        VectorRetriever(store, embed_model=MODEL, top_k=10),
        KeywordRetriever(store, top_k=10),
        HybridRetriever(store, embed_model=MODEL, top_k=10, alpha=0.5),
    ):
        hits = retriever.retrieve(QUERY)
        assert 0 < len(hits) <= 10
        assert "leave" in hits[0].text


def test_a_hybrid_over_two_stores_is_explained_as_one_over_one_store(store: EngineStore) -> None:
    with open_store("embedded::memory:") as other:
        other.add(sample_nodes(MODEL))
        explained = HybridRetriever(store, keyword_store=other, embed_model=MODEL, top_k=2).explain(
            QUERY
        )
        assert {part.leg for hit in explained for part in hit.contributions} == {
            "vector",
            "keyword",
        }
        missing = next(node.id_ for node in sample_nodes() if node.id_ not in ids(explained))
        assert explained.why_not(missing).reason.name == "CUT"


def test_hybrid_by_rrf_sums_alpha_and_its_rest_over_sixty_plus_rank(store: EngineStore) -> None:
    vector = ids(VectorRetriever(store, embed_model=MODEL, top_k=100).retrieve(QUERY))
    keyword = ids(KeywordRetriever(store, top_k=100).retrieve(QUERY))
    retriever = HybridRetriever(
        store, embed_model=MODEL, fusion=RRF(weights={"vector": 0.7, "keyword": 0.3})
    )
    for hit in retriever.retrieve(QUERY):
        parts = [(0.7, vector), (0.3, keyword)]
        expected = sum(
            weight / (60 + ranking.index(hit.node_id) + 1)
            for weight, ranking in parts
            if hit.node_id in ranking
        )
        assert hit.score == pytest.approx(expected)


A = FakeRetriever([("x", 0.9), ("y", 0.5), ("z", 0.1)])
B = FakeRetriever([("y", 30.0), ("w", 10.0)])


@cases(
    ("mode", "expected"),
    [
        # The best score of a node, each node once.
        ("simple", {"y": 30.0, "w": 10.0, "x": 0.9, "z": 0.1}),
        ("reciprocal_rerank", {"y": 3 / 62 + 1 / 61, "x": 3 / 61, "z": 3 / 63, "w": 1 / 62}),
        # Min-max of each retriever times its share of the weights.
        ("relative_score", {"x": 0.75, "y": 0.375 + 0.25, "z": 0.0, "w": 0.0}),
    ],
)
def test_query_fusion_has_the_modes_of_the_design(mode: str, expected: dict[str, float]) -> None:
    weights = None if mode == "simple" else [3, 1]
    retriever = QueryFusionRetriever(
        [A, B], mode=mode, retriever_weights=weights, similarity_top_k=10, num_queries=1
    )
    scores = {hit.node_id: hit.score for hit in retriever.retrieve("q")}
    assert scores == pytest.approx(expected)


class NumberSelector:
    """A selector as in the design: it returns the number of the retriever."""

    def select(self, query: QueryBundle, choices: Sequence[object]) -> int:
        return 1 if "second" in query.query_str else 0


def test_hybrid_in_fusion_in_rerank_in_router_in_recursive_answers(store: EngineStore) -> None:
    hybrid = HybridRetriever(store, embed_model=MODEL, top_k=10)
    fusion = QueryFusionRetriever([hybrid, A], mode="reciprocal_rerank", num_queries=1, top_k=10)
    reranked = RerankRetriever(fusion, RuleRerank(), top_k=5)
    router = RouterRetriever(NumberSelector(), {"a": Route(reranked, "all"), "b": Route(B, "b")})
    nested = RecursiveRetriever("root", {"root": router})
    assert "leave" in nested.retrieve(QUERY)[0].text


class ByNumber:
    """A reranker as in the design, which gives scores, or orders alone."""

    def __init__(self, *, scores: bool) -> None:
        self.scores = scores

    def rerank(self, query: QueryBundle, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        best = sorted(nodes, key=lambda hit: int(hit.text.split()[1]))
        if not self.scores:
            return best
        return [NodeWithScore(node=hit.node, score=5.0 - rank) for rank, hit in enumerate(best)]


@pytest.mark.slow
@cases("scores", [True, False])
def test_diversity_weighs_the_score_of_the_reranker(scores: bool) -> None:
    texts = [f"tables {n} {'about ' * (12 - n)}leave" for n in range(12)]
    with open_store("embedded::memory:") as own:
        nodes = [
            TextNode(id_=text, text=text, embedding=MODEL.get_text_embedding(text))
            for text in texts
        ]
        own.add(nodes)
        found = VectorRetriever(own, embed_model=MODEL, top_k=12)
        for before in (RerankRetriever(found, ByNumber(scores=scores), 12), found >> by_number):
            hits = (before >> Top(12) >> MMR(1.0)).retrieve("leave")
            assert [hit.text for hit in hits] == texts
            assert all(0 <= (hit.score or 0) <= 1 for hit in hits)
            assert (before >> MMR(0.7)).retrieve("leave")[0].text == texts[0]
        cosine = [hit.text for hit in found.retrieve("leave")]
        assert [hit.text for hit in (found >> MMR(1.0)).retrieve("leave")] == cosine != texts
        fused = branches(a=found >> by_number, b=found) >> RRF()
        assert [hit.text for hit in (fused >> MMR(1.0)).retrieve("leave")] == cosine


def by_number(hits: list[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: int(hit.text.split()[1]))


@pytest.mark.slow
def test_two_databases_are_fused(tmp_path: Path) -> None:
    with open_store(f"embedded:{tmp_path / 'a'}") as a, open_store("qdrant::memory:") as b:
        nodes = sample_nodes(MODEL)
        a.add(nodes[:6])
        b.add(nodes[6:])
        both = QueryFusionRetriever(
            [VectorRetriever(each, embed_model=MODEL) for each in (a, b)],
            mode="reciprocal_rerank",
            num_queries=1,
            top_k=12,
        )
        assert {node.id_ for node in nodes} == set(ids(both.retrieve(QUERY)))
