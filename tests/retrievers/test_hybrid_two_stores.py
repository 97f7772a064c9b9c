"""Hybrid search with the vectors in one store and the keywords in another."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext import MMR, RRF, Collapse, HybridRetriever, Query
from llama_retrieval_ext.errors import ScopeRequiredError, TooFewLegsError, UnsupportedModeError
from llama_retrieval_ext.execution import Call
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.results import origin_of
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.stores.engine.backend import Backend, Candidate, Search
from llama_retrieval_ext.testing import IsolationContract, RankingContract
from llama_retrieval_ext.testing.corpus import ACME, SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fakes import FakeBackend, FakeEmbedding
from tests.searching import Searched
from tests.servers.elasticsearch import elasticsearch_url
from tests.stores.engines import filled

__all__ = ["elasticsearch_url"]

MODEL = FakeEmbedding()
ENGLISH = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])
# Engines for vectors and for keywords.
PAIRS = [
    ("embedded", "embedded"),
    pytest.param(("embedded", "qdrant"), marks=pytest.mark.slow),
    pytest.param(("qdrant", "embedded"), marks=pytest.mark.slow),
    pytest.param(("milvus", "elasticsearch"), marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=PAIRS, ids=str)
def stores(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Backend, Backend, Backend]]:
    """The store for vectors, the store for keywords, and one that is searched for both."""
    vectors, keywords = request.param
    options: dict[str, Any] = {"request": request, "folder": tmp_path_factory.mktemp("stores")}
    nodes = sample_nodes(MODEL)
    settings: dict[str, Any] = {}
    if keywords == "elasticsearch":
        settings = {"store_params": {"number_of_replicas": 0}}
    with (
        filled(vectors, nodes, **options) as first,
        filled(keywords, nodes, **options, **settings) as second,
    ):
        yield first, second, second


@pytest.mark.slow
@pytest.mark.parametrize("fusion", [None, RRF()], ids=repr)
def test_hits_scores_and_shares_are_those_of_one_store(
    stores: tuple[Backend, Backend, Backend], fusion: RRF | None, searched: Searched
) -> None:
    first, second, one = stores
    two = HybridRetriever(first, keyword_store=second, embed_model=MODEL, fusion=fusion, top_k=8)
    both = HybridRetriever(one, embed_model=MODEL, fusion=fusion, top_k=8)
    for text in SAMPLE_QUERIES:
        for query in (Query(text), Query(text, filters=ENGLISH), Query(text, scope=ACME)):
            found, expected = searched(two, query), searched(both, query)
            assert not found.degraded
            assert [hit.node_id for hit in found] == [hit.node_id for hit in expected]
            for hit, other in zip(found, expected, strict=True):
                assert hit.score == pytest.approx(other.score, abs=1e-5)
                assert hit.node.get_content() == other.node.get_content()
                assert hit.node.metadata == other.node.metadata
                shares = {part.leg: part.share for part in hit.contributions}
                assert shares == pytest.approx(
                    {part.leg: part.share for part in other.contributions}, abs=1e-5
                )


@pytest.mark.slow
def test_stages_find_embeddings_of_keyword_hits_in_the_store_for_vectors(
    stores: tuple[Backend, Backend, Backend],
) -> None:
    first, second, one = stores
    two = HybridRetriever(first, keyword_store=second, embed_model=MODEL, top_k=6)
    keywords = HybridRetriever(first, keyword_store=second, embed_model=MODEL, alpha=0.0)
    origins = [origin_of(hit) for each in (two, keywords) for hit in each.retrieve("leave")]
    assert {id(origin and origin.store) for origin in origins} == {id(first.store)}
    model = FakeEmbedding()  # not called by MMR: the embeddings are stored
    two.embed_model = model
    found = (two >> MMR(0.5)).retrieve(Query("leave", embedding=MODEL.get_query_embedding("leave")))
    both = HybridRetriever(one, embed_model=MODEL, top_k=6) >> MMR(0.5)
    assert [hit.node_id for hit in found] == [hit.node_id for hit in both.retrieve("leave")]
    assert model.calls == []


@pytest.mark.slow
class TestTwoStores(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self) -> HybridRetriever:
        keywords = FakeBackend(sample_nodes())
        return HybridRetriever(
            FakeBackend(sample_nodes(MODEL)), keyword_store=keywords, embed_model=MODEL, top_k=5
        )


def two_stores(keyword_store: Backend, **options: Any) -> HybridRetriever:
    vectors = FakeBackend(sample_nodes(MODEL))
    return HybridRetriever(vectors, keyword_store=keyword_store, embed_model=MODEL, **options)


class Broken(FakeBackend):
    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        raise ConnectionError(f"the keyword store is down: {text} {search}")


def test_vectors_answer_while_the_store_for_keywords_is_down(searched: Searched) -> None:
    result = searched(two_stores(Broken(sample_nodes())), "annual leave")
    assert result.hits
    assert [part.where for part in result.degraded] == ["keyword"]
    with pytest.raises(TooFewLegsError, match="keyword store is down"):
        two_stores(Broken(sample_nodes()), min_success=2).retrieve("annual leave")


def embedded(nodes: Sequence[TextNode]) -> EmbeddedVectorStore:
    store = EmbeddedVectorStore(":memory:")
    store.add(list(nodes))
    return store


@pytest.mark.slow
def test_a_node_of_either_store_is_found_by_its_id() -> None:
    nodes = sample_nodes(MODEL)
    retriever = HybridRetriever(
        embedded(nodes[:-1]), keyword_store=embedded(nodes[1:]), embed_model=MODEL
    )
    for node in nodes:
        found = run(retriever.read_node(node.node_id))
        assert found is not None
        assert found.get_content() == node.get_content()
    assert run(retriever.read_node("nowhere")) is None


@pytest.mark.slow
def test_a_node_that_only_one_store_has_is_a_hit() -> None:
    nodes = sample_nodes(MODEL)
    retriever = HybridRetriever(
        embedded(nodes[:6]), keyword_store=embedded(nodes[6:]), embed_model=MODEL, top_k=12
    )
    legs = {
        hit.node_id: [part.leg for part in hit.contributions]
        for hit in retriever.search("annual leave")
    }
    assert legs["acme-leave"] == ["vector"]
    assert legs["globex-leave"] == ["keyword"]


def test_pushdown_over_two_stores_is_refused() -> None:
    with pytest.raises(UnsupportedModeError, match="two stores"):
        two_stores(FakeBackend(sample_nodes()), fusion=RRF(), pushdown=True)


def test_a_keyword_store_that_requires_a_scope_requires_it_of_every_query() -> None:
    keywords = embedded(sample_nodes(MODEL))
    keywords.requires_scope = True
    with pytest.raises(ScopeRequiredError):
        two_stores(keywords).retrieve("annual leave")
    assert two_stores(keywords).for_scope(ACME).retrieve("annual leave")


def test_collapsed_hits_of_two_stores_are_one_of_each_document() -> None:
    retriever = two_stores(FakeBackend(sample_nodes()), collapse=Collapse(1, by="lang"), top_k=2)
    hits = retriever.retrieve("annual leave")
    assert len({hit.node.metadata.get("lang") for hit in hits}) == len(hits) == 2


def test_the_drawing_names_both_engines() -> None:
    keywords = FakeBackend(sample_nodes())
    keywords.engine = "other"
    assert two_stores(keywords).sketch().frame == "hybrid: fake and other"
