"""Every public stage and retriever prints as the expression that makes it."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.selectors import LLMSingleSelector
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

import llama_retrieval_ext as ext
from llama_retrieval_ext import (
    MMR,
    RRF,
    BM25Retriever,
    Boost,
    Collapse,
    HybridRetriever,
    KeywordRetriever,
    Leg,
    MultiQuery,
    QueryFusionRetriever,
    RetrievalPipeline,
    RuleRerank,
    Scope,
    ScoreDecay,
    Threshold,
    Top,
    VectorRetriever,
    WeightedSum,
    branches,
)
from llama_retrieval_ext.arguments import RecordsArguments, arguments_of
from llama_retrieval_ext.config.searches import MinMaxScores
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.interpretation import Interpretation
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.stages import Operand
from llama_retrieval_ext.retrievers import IntentProfile, LLMSelector
from llama_retrieval_ext.retrievers.kg_rule import process_rules
from llama_retrieval_ext.retrievers.routing.router import Route
from llama_retrieval_ext.retrievers.routing.selectors import (
    CascadeSelector,
    EmbeddingSelector,
    RouteRule,
    RuleSelector,
)
from llama_retrieval_ext.stages import Reranker
from llama_retrieval_ext.stages.rerank.models import RankedDocument
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever, FixedRetriever, ScriptedLLM

ACME = Scope("acme", kb_ids=["handbook"])
RECENT = MetadataFilters(
    filters=[
        MetadataFilter(key="year", value=2020, operator=FilterOperator.GTE),
        MetadataFilters(
            filters=[
                MetadataFilter(key="lang", value=["en", "de"], operator=FilterOperator.IN),
                MetadataFilter(key="draft", value=None, operator=FilterOperator.IS_EMPTY),
            ],
            condition=FilterCondition.OR,
        ),
    ]
)


class Ranker:
    """A live object, as of the package ``rerankers``."""

    def rank(self, query: str, docs: list[str], doc_ids: list[int]) -> list[RankedDocument]:
        """Return nothing."""
        del query, docs, doc_ids
        return []


def best(hits: list[Any]) -> list[Any]:
    """Return the first hit."""
    return hits[:1]


MODEL, LLM, FOREIGN, RANKER = FakeEmbedding(), ScriptedLLM(["x"]), FakeRetriever(), Ranker()
STORE, NODE, DOCSTORE = (
    ext.EmbeddedVectorStore(":memory:"),
    TextNode(text="x"),
    SimpleDocumentStore(),
)
GRAPH, RULES = EmbeddedGraph(":memory:"), process_rules()
a, b = FixedRetriever(name="a"), FixedRetriever(name="b")


class Known:
    """What interprets questions; a knowledge base does."""

    def interpret(self, question: str, **_: object) -> Interpretation:
        return Interpretation(question, question)

    async def ainterpret(self, question: str, **_: object) -> Interpretation:
        return Interpretation(question, question)


KNOWN = Known()
LIVE: Mapping[str, object] = {
    type(each).__name__: lambda _, each=each: each
    for each in (MODEL, LLM, FOREIGN, RANKER, STORE, NODE, DOCSTORE, GRAPH, RULES, KNOWN)
}


def names() -> dict[str, object]:
    """Everything an expression may name: the package's public names, and live objects."""
    known = {name: getattr(ext, name) for name in dir(ext) if not name.startswith("_")}
    return {**known, **globals(), **LIVE}


# What is written differently from its defaults, by class; others need no arguments.
SAMPLES: tuple[Callable[[], object], ...] = (
    lambda: RRF(k=10, weights={"a": 2.0}, min_success=1),
    lambda: WeightedSum([1, 3], normalise={"a": Normalisation.Z_SCORE, "b": Normalisation.COSINE}),
    lambda: ext.Max(unscored="zero"),
    lambda: ext.WeightedSum(normalise=Normalisation.DISTRIBUTION_BASED, min_success=2),
    lambda: Top(3),
    lambda: Threshold(0.5),
    lambda: ext.BestPart(0.3),
    MinMaxScores,
    lambda: ext.Dedupe("nearly", at_least=0.8),
    lambda: ext.Expand(300),
    lambda: Collapse(2, by="file"),
    ext.LongContextReorder,
    lambda: ScoreDecay("year", half_life=3, origin=2026),
    lambda: RuleRerank(title_key="name"),
    lambda: ext.Boosts([Boost(where="lang=en", weight=0.1), Boost(date="day", weight=-0.5)]),
    lambda: ext.Ranking(
        boosts=(Boost(number="votes", weight=0.1, curve="saturation"),),
        pins=(ext.Pin("a", position=2, query="b"),),
        blocks=(ext.Block("c"), ext.Block(where="d=1")),
        synonyms=("e = f",),
    ),
    lambda: MMR(0.7, top_k=5),
    lambda: MMR(embed_model=MODEL, store=STORE),
    lambda: ext.EmbeddingRerank(MODEL),
    lambda: ext.ModelRerank(RANKER, score_kind="logit", top_k=3),
    lambda: ext.LLMRerank(LLM, top_k=2),
    lambda: ext.RerankChain(RuleRerank(), RANKER, timeout_s=2.0),
    lambda: ext.HyDE(LLM, n=2),
    lambda: ext.HyDEFanOut(LLM, include_original=False),
    lambda: ext.Interpret(KNOWN, llm=LLM),
    lambda: MultiQuery(LLM, n=2, prompt="{query}\n'{n}'"),
    lambda: ext.Decompose(LLM, timeout_s=1.0),
    lambda: ext.StepBack(LLM),
    lambda: ext.IntentAdaptive(
        {"exact": IntentProfile("codes", filters=RECENT, refine=(Top(3), Threshold(0.1)))}
    ),
    lambda: VectorRetriever(STORE, embed_model=MODEL, top_k=3, filters=RECENT, scope=ACME),
    lambda: KeywordRetriever(STORE, collapse=Collapse(1), name="words").for_scope(ACME),
    lambda: HybridRetriever(STORE, embed_model=MODEL, alpha=0.3, similarity_top_k=4),
    lambda: HybridRetriever(STORE, embed_model=MODEL, fusion=RRF(k=1), candidates=20),
    lambda: BM25Retriever([NODE], k1=1.5),
    lambda: ext.FallbackRetriever(a, Leg("second", b, retries=2), enough=3, scope=ACME),
    lambda: ext.RerankRetriever(a, RuleRerank(), top_k=5).for_scope(ACME),
    lambda: ext.MultiQueryRetriever(a, LLM, num_queries=1),
    lambda: ext.HyDERetriever(a, LLM, hyde_queries=2),
    lambda: QueryFusionRetriever([a, FOREIGN], LLM, num_queries=2, mode="reciprocal_rerank"),
    lambda: ext.AutoMergingRetriever(a, DOCSTORE, 0.2),
    lambda: ext.RecursiveRetriever("a", {"a": a}, node_dict={"n": NODE}),
    lambda: ext.RouterRetriever(
        CascadeSelector(
            RuleSelector([RouteRule("a", any_of=["x"], pattern=r"\w")]),
            EmbeddingSelector(MODEL, min_similarity=0.1),
            LLMSelector(LLM, max_routes=2),
        ),
        {"a": Route(a, "letters"), "b": Route(b, "more")},
        fallback="b",
    ),
    lambda: ext.GraphRetriever(STORE, graph=GRAPH, seed=a, embed_model=MODEL, max_hops=1),
    lambda: ext.KGRetriever(GRAPH, top_k=3).for_scope(ACME),
    lambda: ext.KGRuleRetriever(GRAPH, RULES, top_k=3, filters=RECENT),
    lambda: ext.KnowledgeRetriever(a, Leg("rules", ext.KGRetriever(GRAPH), retries=1)),
    lambda: ext.IntentAdaptiveRetriever({"vector": a, "keyword": b}, top_k=3),
    lambda: RetrievalPipeline("faq", top_k=3).add_stage(a | b).add_stage(RRF()).add_stage(Top(1)),
    lambda: Pipeline(a, refines=[Top(3)], top_k=2, filters=RECENT, name="short"),
    lambda: FusionRetriever(a | b, RRF(), top_k=2).for_scope(ACME),
    lambda: (MultiQuery(LLM) >> (a | FOREIGN) >> RRF() >> best >> Top(1)).for_scope(ACME),
    lambda: branches(Leg("odd name", a, weight=2.0, timeout_s=1.0), b, min_success=1) >> RRF(),
    lambda: branches(meaning=a, terms=b),
    lambda: RRF() >> Top(2),
    lambda: ext.HyDE(LLM) >> MultiQuery(LLM),
    lambda: Top(3) >> RuleRerank(),
    lambda: ext.CircuitBreaker(failures=1, reset_s=60),
)


def public_classes() -> Iterator[type]:
    """The public stages and retrievers that can be made."""
    for name in dir(ext):
        kind = getattr(ext, name)
        if isinstance(kind, type) and issubclass(kind, Operand) and not inspect.isabstract(kind):
            yield kind


@pytest.mark.slow
def test_the_representation_evaluates_to_an_equal_part(subtests: pytest.Subtests) -> None:
    for part in [make() for make in SAMPLES]:
        with subtests.test(part=part):
            again = eval(repr(part), names())
            assert type(again) is type(part)
            assert repr(again) == repr(part)
            assert " at 0x" not in repr(part)
            has_equality = type(part).__eq__ is not object.__eq__ and "HyDE" not in repr(part)
            # A HyDE keeps answers, so is itself.
            if isinstance(part, RecordsArguments) and has_equality:
                assert again == part


def test_every_public_stage_and_retriever_is_among_the_samples() -> None:
    made = [make() for make in SAMPLES]
    bases = {ext.Fusion, ext.Refine, ext.Rewrite, ext.FanOut, ext.Retriever, Reranker}
    inside: set[type] = {ext.Postprocessed}
    assert set(public_classes()) - bases - inside <= {type(part) for part in made}
    assert {str(each) for each in (RRF(), MMR(), Collapse(), ext.Dedupe(), RuleRerank())} == {
        "RRF()",
        "MMR()",
        "Collapse()",
        "Dedupe()",
        "RuleRerank()",
    }


def test_arguments_of_returns_current_values_that_differ_from_the_defaults() -> None:
    retriever = QueryFusionRetriever([a, b], num_queries=1)
    assert dict(arguments_of(retriever)) == {"retrievers": [a, b], "num_queries": 1}
    retriever.similarity_top_k = 7
    retriever.mode = "simple"
    assert arguments_of(retriever)["similarity_top_k"] == 7
    hybrid = HybridRetriever(STORE, embed_model=MODEL, similarity_top_k=5).for_scope(ACME)
    assert list(arguments_of(hybrid)) == ["store", "embed_model", "top_k", "scope"]
    assert dict(arguments_of(RRF(k=60))) == dict(arguments_of(object())) == {}


def test_a_part_of_llama_index_prints_as_its_class() -> None:
    selector = LLMSingleSelector.from_defaults(llm=LLM)
    router = ext.RouterRetriever(selector, {"a": Route(FOREIGN, "letters")})
    assert repr(router) == (
        "RouterRetriever(LLMSingleSelector(...), {'a': Route(FakeRetriever(...), 'letters')})"
    )
