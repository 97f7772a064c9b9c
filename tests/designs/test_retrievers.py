"""The calls of the retriever architecture: basic and composite retrievers, stores by injection."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext import (
    RRF,
    BM25Retriever,
    HybridRetriever,
    KeywordRetriever,
    LLMSelector,
    QueryFusionRetriever,
    RecursiveRetriever,
    RerankRetriever,
    Route,
    RouterRetriever,
    RouteRule,
    RuleRerank,
    RuleSelector,
    VectorRetriever,
    open_store,
)
from llama_retrieval_ext.errors import ArgumentError
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever, ScriptedLLM, sample_nodes

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


def test_hybrid_takes_vectors_from_one_store_and_keywords_from_another(store: EngineStore) -> None:
    with open_store("embedded::memory:") as other:
        other.add(sample_nodes(MODEL))
        one = HybridRetriever(store, embed_model=MODEL, top_k=10, alpha=0.5)
        two = HybridRetriever(store, keyword_store=other, embed_model=MODEL, top_k=10, alpha=0.5)
        assert set(ids(two.retrieve(QUERY))) == set(ids(one.retrieve(QUERY)))
        assert {each.leg for hit in two.search(QUERY) for each in hit.contributions} == {
            "vector",
            "keyword",
        }


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
        missing = next(each.id_ for each in sample_nodes() if each.id_ not in ids(explained))
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(("score", "share"), [(0.4, 1.0), (0.0, 0.0)])
def test_relative_score_of_equal_scores_is_one_above_zero_and_zero_otherwise(
    score: float, share: float
) -> None:
    equal = FakeRetriever([("a", score), ("b", score)])
    retriever = QueryFusionRetriever([equal], mode="relative_score", num_queries=1, top_k=5)
    assert [hit.score for hit in retriever.retrieve("q")] == [share, share]


class NumberSelector:
    """A selector as in the design: it returns the number of the retriever."""

    def select(self, query: QueryBundle, choices: Sequence[object]) -> int:
        return 1 if "second" in query.query_str else 0


@pytest.mark.parametrize(
    "selector",
    [
        LLMSelector(ScriptedLLM(lambda prompt: "2")),
        RuleSelector([RouteRule("b", any_of=["second"])]),
        NumberSelector(),
    ],
    ids=["llm", "rules", "own"],
)
def test_router_asks_the_retriever_that_the_selector_picks(selector: object) -> None:
    routes = {"a": Route(A, "the first"), "b": Route(B, "the second")}
    router = RouterRetriever(selector, routes)  # type: ignore[arg-type]  # duck-typed selectors
    assert ids(router.retrieve("second question")) == ["y", "w"]


def test_recursive_retriever_follows_index_nodes_and_gives_the_additional_nodes() -> None:
    class Root(FakeRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            return [
                NodeWithScore(node=IndexNode(text="to r1", index_id="r1", id_="i1"), score=0.9),
                NodeWithScore(node=IndexNode(text="to n1", index_id="n1", id_="i2"), score=0.8),
            ]

    leaf = TextNode(id_="n1", text="a leaf")
    retriever = RecursiveRetriever("root", {"root": Root(), "r1": A}, node_dict={"n1": leaf})
    hits, additional = retriever.retrieve_all("q")
    assert set(ids(hits)) >= {"x", "n1"}
    assert isinstance(additional, list)


class ByLength:
    """A reranker as in the design: any object with ``rerank(query, nodes)``."""

    def rerank(self, query: QueryBundle, nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
        return sorted(nodes, key=lambda hit: len(hit.text))


@pytest.mark.parametrize(
    "reranker",
    [RuleRerank(), SimilarityPostprocessor(similarity_cutoff=0.0), ByLength()],
    ids=["ours", "llama-index", "duck-typed"],
)
def test_rerank_retriever_takes_any_reranker(reranker: object) -> None:
    bm25 = BM25Retriever(sample_nodes(), top_k=10)
    retriever = RerankRetriever(bm25, reranker, top_k=3)  # type: ignore[arg-type]  # duck-typed
    hits = retriever.retrieve(QUERY)
    assert set(ids(hits)) <= set(ids(bm25.retrieve(QUERY)))
    if isinstance(reranker, ByLength):
        assert [len(hit.text) for hit in hits] == sorted(len(hit.text) for hit in hits)


def test_hybrid_in_fusion_in_rerank_in_router_in_recursive_answers(store: EngineStore) -> None:
    hybrid = HybridRetriever(store, embed_model=MODEL, top_k=10)
    fusion = QueryFusionRetriever([hybrid, A], mode="reciprocal_rerank", num_queries=1, top_k=10)
    reranked = RerankRetriever(fusion, RuleRerank(), top_k=5)
    router = RouterRetriever(NumberSelector(), {"a": Route(reranked, "all"), "b": Route(B, "b")})
    nested = RecursiveRetriever("root", {"root": router})
    assert "leave" in nested.retrieve(QUERY)[0].text


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
        assert {each.id_ for each in nodes} == set(ids(both.retrieve(QUERY)))


@pytest.mark.parametrize(
    ("name", "ours"),
    [("vector_store", "store"), ("embedder", "embed_model"), ("embedding", "embed_model")],
)
def test_an_argument_name_of_the_design_is_answered_with_ours(name: str, ours: str) -> None:
    with pytest.raises(ArgumentError, match=f"write {ours}="):
        VectorRetriever(**{name: "embedded::memory:"})  # type: ignore[arg-type]
