"""What a retriever is made of and bound to can be read off its repr, outline and chart."""

from pathlib import Path

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext import (
    RRF,
    EmbeddedVectorStore,
    FallbackRetriever,
    KeywordRetriever,
    KnowledgeBase,
    Leg,
    Scope,
    Top,
    branches,
)
from llama_retrieval_ext.filter_syntax import describe_filters
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FixedRetriever
from tests.cases import cases

ACME = Scope("acme")
RECENT = MetadataFilters(
    filters=[MetadataFilter(key="year", value=2020, operator=FilterOperator.GTE)]
)


def keyword(**options: object) -> KeywordRetriever:
    return KeywordRetriever(EmbeddedVectorStore(":memory:"), **options)  # type: ignore[arg-type]


def test_a_bound_retriever_shows_its_scope_and_filters() -> None:
    bound = keyword(filters=RECENT).for_scope(ACME)
    assert repr(bound) == (
        "KeywordRetriever(EmbeddedVectorStore(...), filters=MetadataFilters(filters=["
        "MetadataFilter(key='year', value=2020, operator=FilterOperator.GTE)]), "
        "scope=Scope(tenant_id='acme'))"
    )
    assert bound.outline() == (
        "KeywordRetriever(EmbeddedVectorStore(...)) "
        "[scope=Scope(tenant_id='acme'), filters=[year >= 2020]]"
    )
    assert repr(keyword()) == "KeywordRetriever(EmbeddedVectorStore(...))"


def test_a_bound_composite_shows_its_scope_around_its_expression() -> None:
    pipeline = (FixedRetriever(name="a") >> Top(3)).for_scope(ACME)
    assert repr(pipeline) == "(a >> Top(k=3)).for_scope(Scope(tenant_id='acme'))"
    assert pipeline.outline() == "Top(k=3) [scope=Scope(tenant_id='acme')]\n└─ a"
    a, b = FixedRetriever(name="a"), FixedRetriever(name="b")
    fallback = FallbackRetriever(a, b, enough=3).for_scope(ACME)
    assert repr(fallback) == "FallbackRetriever(a, b, enough=3, scope=Scope(tenant_id='acme'))"


def test_legs_keep_the_names_of_their_branches() -> None:
    a, b = FixedRetriever(name="dense"), FixedRetriever(name="bm25")
    fused = branches(meaning=a, terms=b) >> RRF()
    assert repr(fused) == "branches(meaning=dense, terms=bm25) >> RRF()"
    assert fused.outline() == "RRF()\n├─ meaning: dense\n└─ terms: bm25"
    assert '["meaning: dense"]' in fused.mermaid()
    odd = branches(Leg("by meaning", a), b)
    assert repr(odd) == "branches(Leg('by meaning', dense), Leg('bm25', bm25))"
    assert repr(branches(a, b, b)) == "(dense | bm25 | bm25)"


def test_a_knowledge_base_shows_the_backend_of_its_retrievers(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        retriever = kb.retriever("hybrid")
        assert repr(retriever).startswith("HybridRetriever(EmbeddedVectorStore(...), ")
        assert retriever.backend.describe()["engine"] == "embedded"


@cases(
    ("filters", "text"),
    [
        (RECENT, "year >= 2020"),
        (
            MetadataFilters(
                filters=[
                    MetadataFilter(key="lang", value=["en", "zh"], operator=FilterOperator.IN),
                    MetadataFilters(
                        filters=[RECENT, MetadataFilter(key="draft", value="no")],
                        condition=FilterCondition.OR,
                    ),
                ]
            ),
            "lang in ['en', 'zh'] and (year >= 2020 or draft == 'no')",
        ),
        (MetadataFilters(filters=[RECENT], condition=FilterCondition.NOT), "not (year >= 2020)"),
        (
            MetadataFilters(
                filters=[MetadataFilter(key="year", value=None, operator=FilterOperator.IS_EMPTY)]
            ),
            "year is_empty",
        ),
    ],
)
def test_filters_are_described_in_a_line(filters: MetadataFilters, text: str) -> None:
    assert describe_filters(filters) == text
