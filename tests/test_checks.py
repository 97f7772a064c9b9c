"""What is of another type is refused where it comes in, not while a query is answered."""

import asyncio
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.schema import TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore

import llama_retrieval_ext as ext
from llama_retrieval_ext.checks import checked_call
from llama_retrieval_ext.errors import ArgumentError, ConfigurationError
from llama_retrieval_ext.execution import CircuitBreaker
from llama_retrieval_ext.testing import FakeEmbedding, FixedRetriever, ScriptedLLM
from tests.cases import cases

GOOD = FixedRetriever()
MODEL = FakeEmbedding()
# Its transformations are the model because the default ones load a tokenizer.
INDEX: Any = VectorStoreIndex([TextNode(text="leave")], embed_model=MODEL, transformations=[MODEL])
GRAPH: Any = ext.open_graph("graph::memory:")
WORD: Any = "max"
NUMBER: Any = 7
HALF: Any = 1.5
ROUTE = ext.Route(GOOD, "everything")


def store() -> ext.EmbeddedVectorStore:
    return ext.EmbeddedVectorStore(":memory:")


WRONG: Mapping[str, tuple[Callable[[], object], str]] = {
    "a leg of an index": (lambda: ext.Leg("a", INDEX), "as_retriever"),
    "a fusion of an index": (lambda: ext.QueryFusionRetriever([GOOD, INDEX]), "as_retriever"),
    "an index to begin with": (lambda: ext.RecursiveRetriever("a", {"a": INDEX}), "as_retriever"),
    "no docstore": (lambda: ext.AutoMergingRetriever(GOOD, INDEX), "StorageContext"),
    "the name of a model": (
        lambda: ext.HybridRetriever(store(), embed_model=WORD),
        r"got 'max'; pass .* resolve_embed_model",
    ),
    "no number of hits": (lambda: ext.VectorRetriever(store(), top_k=None), "top_k"),  # type: ignore[arg-type]
    "a word for a collapse": (lambda: ext.KeywordRetriever(store(), collapse=WORD), "Collapse"),
    "a word for a fusion": (lambda: ext.HybridRetriever(store(), fusion=WORD), "Fusion"),
    "a word for a score": (
        lambda: ext.AutoMergingRetriever(GOOD, SimpleDocumentStore(), merged_score="median"),  # type: ignore[arg-type]
        "'mean'",
    ),
    "a word for the unscored": (lambda: ext.WeightedSum(unscored=WORD), "'refuse'"),
    "a word for a scale": (lambda: ext.WeightedSum(normalise=WORD), "Normalisation.MIN_MAX"),
    "a word for a leg's scale": (lambda: ext.WeightedSum(normalise={"a": WORD}), "of 'a' must"),
    "weights as a dict": (lambda: ext.RuleRerank({"terms": 2}), "write RuleWeights"),  # type: ignore[arg-type]
    "a boost without a list": (lambda: ext.Boosts(ext.Boost(where="a=b", weight=1)), "boosts"),  # type: ignore[arg-type]
    "a word for a weight": (lambda: ext.RuleWeights(terms=WORD), "got 'max'"),
    "a word for a time": (
        lambda: ext.Leg("a", GOOD, timeout_s=WORD),
        r"Leg\('a'\): timeout_s must be a number of seconds above 0 or None, got 'max'",
    ),
    "half a retry": (lambda: ext.Leg("a", GOOD, retries=0.5), r"Leg\('a'\): retries"),  # type: ignore[arg-type]
    "a breaker that never opens": (lambda: CircuitBreaker(failures=float("nan")), "failures"),  # type: ignore[arg-type]
    "a number for a name": (lambda: FixedRetriever(name=NUMBER), "name must be of type str"),
    "more hits than can be": (lambda: ext.Query("leave", top_k=10**30), "top_k must be at most"),
    "a word for a selector": (lambda: ext.RouterRetriever(WORD, {"a": ROUTE}), "Selector"),
    "half a route": (
        lambda: ext.RouterRetriever(ext.RuleSelector([]), {"a": ROUTE}, max_routes=HALF),
        "max_routes",
    ),
    "a word for a kind of score": (
        lambda: ext.Postprocessed(SimilarityPostprocessor(), score_kind=WORD),
        "score_kind must be one of .*'logit'",
    ),
    "half a query": (lambda: ext.QueryFusionRetriever([GOOD], num_queries=HALF), "num_queries"),
    "a profile with one stage": (lambda: ext.IntentProfile("a", refine=WORD), "refine"),
    "a word for a tokenizer": (lambda: ext.BM25Retriever(tokenizer=WORD), "tokenizer"),
    "no nodes": (
        lambda: ext.BM25Retriever(None),  # type: ignore[arg-type]
        r"BM25Retriever\(\): nodes must be a list of BaseNode, got None",
    ),
    "a text for a node": (lambda: ext.BM25Retriever([WORD]), r"got 'max'; write \[TextNode"),
    "a word for a saturation": (
        lambda: ext.BM25Retriever(k1=WORD),
        "k1 must be a number, got 'max'",
    ),
    "a number of retrievers": (
        lambda: ext.QueryFusionRetriever(NUMBER),
        "must be a list of BaseRetriever . Leg or",
    ),
    "no retrievers": (
        lambda: ext.RecursiveRetriever("a", WORD),
        "must be a mapping of str to BaseR",
    ),
    "a number of routes": (
        lambda: ext.RouterRetriever(ext.RuleSelector([]), NUMBER),
        "must be a list of RetrieverTool or a mapping of str to Route, got 7",
    ),
    "a number of languages": (
        lambda: ext.HybridRetriever(store(), languages=NUMBER),
        "languages must be a list of str",
    ),
    "a word for a promise": (
        lambda: ext.KnowledgeBase.open(
            "embedded::memory:", embed_model=FakeEmbedding(), require_scope=WORD
        ),
        "require_scope must be of type bool",
    ),
    "a number to copy": (lambda: ext.copy_knowledge_base(NUMBER, "embedded:./kb"), "URL"),
    "a word for a rule": (lambda: ext.RuleSelector([WORD]), "RouteRule"),
    "a rule for no script": (lambda: ext.RouteRule("a", script="chinese"), "'han'"),
    "a path for a URL": (
        lambda: ext.KnowledgeBase.open(Path("kb"), embed_model=FakeEmbedding()),  # type: ignore[arg-type]
        "named by a URL",
    ),
    "a URL with a zero byte": (lambda: ext.open_store("embedded:a\0b"), "named by a URL"),
    "a number for a path": (lambda: ext.EmbeddedVectorStore(NUMBER), "path must be"),
}


def test_an_argument_of_another_type_is_refused_with_advice(subtests: pytest.Subtests) -> None:
    for name, (make, message) in WRONG.items():
        with subtests.test(name), pytest.raises(ConfigurationError, match=message):
            make()


def knowledge_base() -> ext.KnowledgeBase:
    return ext.KnowledgeBase.open("embedded::memory:", embed_model=MODEL)


CALLS: Mapping[str, tuple[Callable[..., object], str]] = {
    "a word run together": (
        lambda: ext.VectorRetriever(store(), topk=3),  # type: ignore[call-arg]
        r"VectorRetriever\(\) has no argument 'topk'; write top_k=3",
    ),
    "a short word": (lambda: ext.KeywordRetriever(store(), k=3), "write top_k=3"),  # type: ignore[call-arg]
    "LlamaIndex's word on a composite": (
        lambda: ext.RerankRetriever(GOOD, ext.RuleRerank(), similarity_top_k=3),  # type: ignore[call-arg]
        "write top_k=3",
    ),
    "a word that is near no other": (
        lambda: ext.BM25Retriever(colour="red"),  # type: ignore[call-arg]
        "has no argument 'colour'; it takes nodes, top_k",
    ),
    "no LLM": (ext.HyDE, r"'llm'; write HyDE\(llm=...\)"),
    "a stage of a value": (lambda: ext.Top(top_k=3), "write k=3"),  # type: ignore[call-arg]
    "a fusion": (lambda: ext.RRF(weight={"a": 1}), r"write weights=\{'a': 1\}"),  # type: ignore[call-arg]
    "a leg": (lambda: ext.Leg("a", GOOD, wieght=2.0), "write weight=2.0"),  # type: ignore[call-arg]
    "a query": (lambda: ext.Query("leave", topk=3), "write top_k=3"),  # type: ignore[call-arg]
    "a scope": (lambda: ext.Scope(tenant="acme"), "write tenant_id='acme'"),  # type: ignore[call-arg]
    "a search": (lambda: GOOD.search("leave", topk=3), "write top_k=3"),  # type: ignore[call-arg]
    "an async search": (
        lambda: asyncio.run(GOOD.asearch("leave", topk=3)),  # type: ignore[call-arg]
        r"asearch\(\) has no argument 'topk'; write top_k=3",
    ),
    "a store": (
        lambda: ext.open_store("embedded::memory:", dimensions=3),  # type: ignore[call-arg]
        r"open_store\(\) has no argument 'dimensions'",
    ),
    "a knowledge base": (
        lambda: ext.KnowledgeBase.open("embedded::memory:", embed_modle=GOOD),  # type: ignore[call-arg]
        r"open\(\) has no argument 'embed_modle'; write embed_model=",
    ),
    "LlamaIndex's method of a knowledge base": (
        lambda: knowledge_base().as_retriever(top_k=3),  # type: ignore[call-arg]
        r"as_retriever\(\) has no argument 'top_k'; write similarity_top_k=3",
    ),
    "a method of a knowledge base": (
        lambda: asyncio.run(knowledge_base().adelete("a", scopes=None)),  # type: ignore[call-arg]
        r"delete\(\) has no argument 'scopes'; write scope=None",
    ),
    "files": (lambda: ext.read_documents("docs", encodng="latin-1"), "write encoding='latin-1'"),  # type: ignore[call-arg]
    "a method taken for an option": (
        lambda: GOOD.search("leave", explain=True),  # type: ignore[call-arg]
        r"search\(\) has no argument 'explain'",
    ),
    "two names of one number": (
        lambda: ext.VectorRetriever(store(), top_k=3, similarity_top_k=4),
        "got 3 and 4 for top_k and similarity_top_k, which are two names of one argument; give one",
    ),
}


@checked_call
def takes_process(process: str) -> str:
    return process


DESIGN_NAMES: Mapping[str, tuple[Callable[..., object], str]] = {
    "vector_store": (
        lambda: ext.VectorRetriever(vector_store=INDEX),  # type: ignore[call-arg]
        r"VectorRetriever\(\) .*; write store=VectorStoreIndex\(\.\.\.\)",
    ),
    "doc_store": (lambda: ext.KeywordRetriever(doc_store=INDEX), "write store="),  # type: ignore[call-arg]
    "doc_store beside a store": (
        lambda: ext.VectorRetriever(store=INDEX, doc_store=INDEX.docstore),  # type: ignore[call-arg]
        "; leave it out: ",
    ),
    "doc_store by position": (
        lambda: ext.KeywordRetriever(INDEX, doc_store=INDEX),  # type: ignore[call-arg]
        "; leave it out: ",
    ),
    "doc_store of a factory": (
        lambda: ext.CapabilityFactory(doc_store=INDEX.docstore),  # type: ignore[call-arg]
        "write document_store=",
    ),
    "graph_store": (
        lambda: ext.GraphRetriever(store(), graph_store=GRAPH),  # type: ignore[call-arg]
        "write graph=EmbeddedGraph",
    ),
    "ner": (
        lambda: ext.GraphRetriever(store(), graph=GRAPH, ner=str.split),  # type: ignore[call-arg]
        r"write linker=EntityLinker\(graph, ner=...\)",
    ),
    "ner_extractor": (lambda: ext.IntentAdaptive(ner_extractor=str.split), "; leave it out: "),  # type: ignore[call-arg]
    "max_hops": (
        lambda: GOOD.search("q", max_hops=1),  # type: ignore[call-arg]
        "write retriever.by_entities",
    ),
    "select_multi": (
        lambda: ext.RouterRetriever(None, {}, select_multi=False),  # type: ignore[arg-type, call-arg]
        "; leave it out: .* max_routes",
    ),
    "retrievers": (
        lambda: ext.RouterRetriever(selector=None, retrievers=[GOOD]),  # type: ignore[arg-type, call-arg]
        r'write {"name": Route\(',
    ),
    "conversation_filter": (
        lambda: ext.MimicService(conversation_filter=str.split),  # type: ignore[call-arg]
        "; leave it out, and pass conversation_id= to the call",
    ),
    "llm_caller of a service": (
        lambda: ext.MimicService(llm_caller=str.split),  # type: ignore[call-arg]
        "; leave it out: ",
    ),
    "keyword_store": (lambda: ext.KeywordRetriever(keyword_store=INDEX), "write store="),  # type: ignore[call-arg]
    "embedder": (
        lambda: ext.VectorRetriever(store(), embedder=MODEL),  # type: ignore[call-arg]
        r"write embed_model=FakeEmbedding\(",
    ),
    "embedding": (lambda: ext.MMR(embedding=MODEL), "write embed_model="),  # type: ignore[call-arg]
    "lambda_param": (lambda: ext.MMR(lambda_param=0.7), "write lambda_mult=0.7"),  # type: ignore[call-arg]
    "llm_caller": (lambda: ext.HyDE(llm_caller=ScriptedLLM([])), "write llm=ScriptedLLM"),  # type: ignore[call-arg]
    "data_analyzer": (lambda: ext.ReportService(data_analyzer=WORD), "write analyzer='max'"),  # type: ignore[call-arg]
    "vector_retriever": (
        lambda: ext.KnowledgeRetriever(vector_retriever=GOOD),  # type: ignore[call-arg]
        "write vector=fixed",
    ),
    "kg_retriever": (
        lambda: ext.KnowledgeRetriever(kg_retriever=GOOD),  # type: ignore[call-arg]
        "write rules=fixed",
    ),
    "retriever_weights": (lambda: ext.RRF(retriever_weights=[3, 1]), r"write weights=\[3, 1\]"),  # type: ignore[call-arg]
    "text": (lambda: ext.Query(text="leave"), "write query_str='leave'"),  # type: ignore[call-arg]
    "process_name": (
        lambda: takes_process(process_name="tunnel"),  # type: ignore[call-arg]
        "write process='tunnel'",
    ),
}


def test_a_name_of_the_designs_is_answered_with_ours(subtests: pytest.Subtests) -> None:
    for name in DESIGN_NAMES:
        with subtests.test(name=name):
            make, problem = DESIGN_NAMES[name]
            with pytest.raises(ArgumentError, match=f"no argument '{name.split()[0]}'; ") as caught:
                make()
            assert re.search(problem, str(caught.value)), caught.value


def test_a_retrieve_with_options_of_its_own_is_answered_with_these() -> None:
    @checked_call
    def retrieve(query: str, *, tenant_id: str) -> str:
        return query + tenant_id

    with pytest.raises(ArgumentError, match="write tenant_id='acme'"):
        retrieve(query="leave", tenant="acme")  # type: ignore[call-arg]


def test_options_of_retrieve_are_answered_with_search() -> None:
    with pytest.raises(ArgumentError, match=r"'top_k'; .* write search\(\.\.\., top_k=3\)"):
        GOOD.retrieve("leave", top_k=3)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match=r"write asearch\(\.\.\., top_k=3\)"):
        asyncio.run(GOOD.aretrieve("leave", top_k=3))  # type: ignore[call-arg]


@pytest.mark.slow
def test_a_call_that_does_not_fit_says_what_to_write(subtests: pytest.Subtests) -> None:
    for call in CALLS:
        with subtests.test(call=call):
            make, problem = CALLS[call]
            with pytest.raises(ConfigurationError, match=problem) as caught:
                make()
            assert isinstance(caught.value, TypeError)  # as Python's own is


def test_a_type_error_from_inside_a_constructor_stays_as_it_is() -> None:
    class Own(FixedRetriever):
        def __init__(self, number: int | str) -> None:
            super().__init__([("a", 1.0 + number)])  # type: ignore[operator]

    with pytest.raises(TypeError, match="unsupported operand") as caught:
        Own("one")
    assert not isinstance(caught.value, ConfigurationError)


def test_checked_constructors_keep_their_signatures() -> None:
    parameters = inspect.signature(ext.VectorRetriever).parameters
    assert [*parameters][:3] == ["store", "embed_model", "top_k"]
    assert [*inspect.signature(ext.Top).parameters] == ["k"]
    assert "top_k" in inspect.signature(ext.VectorRetriever.search).parameters
    assert inspect.iscoroutinefunction(GOOD.asearch)


def test_llama_index_s_word_for_the_number_of_hits_works_where_ours_does(tmp_path: Path) -> None:
    kb = ext.KnowledgeBase.open(f"embedded:{tmp_path / 'kb'}", embed_model=FakeEmbedding())
    with kb:
        made = [
            ext.VectorRetriever(store(), similarity_top_k=3),
            ext.KeywordRetriever(store(), similarity_top_k=3),
            ext.HybridRetriever(store(), similarity_top_k=3),
            kb.retriever("hybrid", similarity_top_k=3),
            ext.QueryFusionRetriever([GOOD], num_queries=1, similarity_top_k=3),
            ext.QueryFusionRetriever([GOOD], num_queries=1, top_k=3),
        ]
        with pytest.raises(ConfigurationError, match="top_k"):
            kb.retriever("hybrid", topk=3)  # type: ignore[call-overload]
        with pytest.raises(ConfigurationError, match="give one"):
            kb.retriever("hybrid", top_k=3, similarity_top_k=3)
    assert [(each.top_k, each.similarity_top_k) for each in made] == [(3, 3)] * len(made)
    made[0].similarity_top_k = 7
    assert made[0].top_k == 7
    with pytest.raises(ConfigurationError, match="top_k"):
        made[0].similarity_top_k = 0


def test_a_number_by_position_and_by_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="give one"):
        ext.QueryFusionRetriever([GOOD], None, None, "simple", 5, 1, top_k=3)


@cases("query", [None, ["a"], 7])
def test_every_search_refuses_anything_but_a_query(query: Any) -> None:
    searches: list[Callable[[], object]] = [
        lambda: GOOD.search(query),
        lambda: GOOD.explain(query),
        lambda: asyncio.run(GOOD.asearch(query)),
        lambda: asyncio.run(GOOD.aexplain(query)),
        lambda: list(GOOD.stream(query)),
        lambda: GOOD.retrieve_many([query]),
    ]
    for search in searches:
        with pytest.raises(ConfigurationError, match="a query is a string, or a QueryBundle"):
            search()
