"""The registry: names with their parameters, operators, tenants, and what is registered."""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_retrieval_ext import KnowledgeBase, Query, Scope
from llama_retrieval_ext.config import Registry, RegistryParts, from_yaml, to_yaml
from llama_retrieval_ext.config import registry as shared
from llama_retrieval_ext.config.store_retrievers import KeptBM25Retriever
from llama_retrieval_ext.errors import (
    ConfigurationError,
    ScopeRequiredError,
    ScoreError,
    UnsupportedModeError,
)
from llama_retrieval_ext.hits import scored_ids
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.samples.construction_safety import open_construction_safety
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.cases import cases
from tests.config.conftest import TENANTS, ask
from tests.quick import trials

RECORD = ("chunk_id", "text", "score", "metadata", "knowledge_base_id", "document_id", "source")


@pytest.mark.slow
def test_a_knowledge_base_makes_the_retrievers_of_the_registry(
    registry: Registry, kb: KnowledgeBase
) -> None:
    for name in ("dense", "bm25", "fusion", "llama_bm25", "llama_hybrid", "semantic"):
        ours = kb.retriever(name, top_k=3, scope=Scope("acme"))
        theirs = registry.get_retriever(name, top_k=3)
        query = Query("annual leave", scope=Scope("acme"))
        assert [h.text for h in ours.retrieve("annual leave")] == [
            h.text for h in theirs.retrieve(query)
        ]
    with pytest.raises(ConfigurationError, match="'hyde' needs an LLM"):
        kb.retriever("hyde")
    assert kb.retriever("hyde", llm=ScriptedLLM(["days off"])).retrieve("leave")


@pytest.mark.slow
def test_every_name_answers_within_the_scope_and_is_written_as_yaml(kb: KnowledgeBase) -> None:
    graph, rules = open_construction_safety()
    llm = ScriptedLLM(["1. days off\n2. holiday\n3. vacation"] * 20)
    registry = Registry().bind(
        kb, llm=llm, graph=graph, rules=rules, docstore=SimpleDocumentStore()
    )
    answered = set()
    for name in [*registry.names, *PRESETS]:
        retriever = registry.get_retriever(name)
        assert isinstance(retriever, BaseRetriever)
        operator = registry.get("preset" if name in PRESETS else "retriever", name)()
        records = ask(operator)
        assert len(records) <= 3
        if records:
            answered.add(name)
        for record in records:
            assert set(RECORD) <= set(record)
            assert record["text"].startswith("acme")
            assert record["knowledge_base_id"] == "hr"
        again = from_yaml(to_yaml(retriever, live=registry.live), registry)
        assert repr(again) == repr(retriever)
    # The graph is about building; cases of `knowledge` need a better score.
    assert set(registry.names) - answered == {"graph", "kg_rule", "knowledge"} - answered
    (hit, *_) = ask(
        registry.get("retriever", "knowledge")(),
        "Which hazards does blasting have?",
        tenant_id=None,
        kb_ids=None,
    )
    assert hit["proof"]
    graph.close()


def test_an_operator_that_finds_nothing_still_says_what_the_llm_wrote(registry: Registry) -> None:
    operator = registry.get("retriever", "hyde")(num_queries=1)
    records = asyncio.run(operator.retrieve("annual leave", tenant_id="no such tenant"))
    assert records == []
    assert records.details["hyde_queries_count"] == 1


@cases(
    ("name", "params", "words"),
    [
        ("hybird", {}, "did you mean 'hybrid'"),
        ("hybrid", {"dense_weight": -1.0}, "must be a number of at least 0, got -1.0"),
        ("hybrid", {"dense_weight": 0, "sparse_weight": 0}, "must be above 0"),
        ("fusion", {"rerank_model": "llm"}, "without rerank=True"),
        ("hyde", {"base_retriever": "dens"}, "did you mean 'dense'"),
        ("hyde", {"base_retriever_params": {"top": 1}}, "'dense' has no parameter 'top'"),
        ("graph", {}, r"registry\.bind\(kb, graph=\.\.\.\)"),
        ("auto_merging", {}, r"docstore=\.\.\."),
        ("llama_dense", {"store_type": "milvus"}, "is on 'embedded'; pass store_params"),
        ("llama_dense", {"store_params": {"urll": "x"}}, "store_type=None and urll"),
        ("router", {"descriptions": {"x": "y"}}, "no route: x"),
        ("advanced", {"vector_weight": "much"}, "must be a number of at least 0"),
        ("hybrid", {"type": "bm25"}, "no parameter 'type'"),
    ],
)
def test_wrong_names_and_arguments_are_refused_with_advice(
    name: str, params: dict[str, Any], words: str, registry: Registry
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        registry.get_retriever(name, **params)


@cases("name", ["llm", "docstore", "objects"])
def test_a_part_of_another_type_is_refused_with_what_to_pass(name: str) -> None:
    parts: dict[str, Any] = {name: str.upper}
    with pytest.raises(ConfigurationError, match=f"{name} must be of type .*, got .*upper"):
        Registry().bind(**parts)


def test_an_operator_returns_nothing_outside_its_tenant_and_knowledge_bases(
    registry: Registry, kb: KnowledgeBase
) -> None:
    operator = registry.get("retriever", "dense")()
    with pytest.raises(ConfigurationError, match="kb_ids is empty"):
        ask(operator, kb_ids=[])
    assert ask(operator, kb_ids=iter(["no such kb"])) == []  # read once, or it would show them all
    assert ask(operator, tenant_id="nobody", kb_ids=None) == []
    assert {each["text"][:4] for each in ask(operator, tenant_id=None, top_k=8)} == {"acme", "glob"}
    foreign = FakeRetriever([("x", 0.9, "secret", {"tenant_id": "globex", "kb_id": "hr"})])

    @registry.register_retriever("foreign")
    def make(parts: RegistryParts) -> BaseRetriever:
        assert parts.kb is kb
        return foreign

    assert ask(registry.get("retriever", "foreign")()) == []
    model = FakeEmbedding()
    with KnowledgeBase.open("embedded::memory:", embed_model=model, require_scope=True) as strict:
        for name in ("dense", "bm25", "llama_bm25", "semantic"):
            made = Registry().bind(strict).get_retriever(name)
            with pytest.raises(ScopeRequiredError):
                made.retrieve("annual leave")


def test_registered_names_work_like_built_in_ones(
    registry: Registry, kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    @registry.register_retriever("short")
    def short(parts: RegistryParts, *, least: int = 2, top_k: int = 10) -> BaseRetriever:
        """What is short."""
        return parts.retriever("bm25", {"top_k": max(least, top_k)})

    @registry.register_retriever("classy")
    class Classy(KeptBM25Retriever):
        """A class."""

        def __init__(self, parts: RegistryParts, *, top_k: int = 3) -> None:
            super().__init__(parts.need_kb("classy"), top_k=top_k)

    assert len(ask(registry.get("retriever", "short")(least=1))) == 2
    assert len(ask(registry.get("retriever", "classy")(top_k=1), top_k=1)) == 1
    text = "version: 1\npipeline: {type: short, least: 3}"
    assert from_yaml(text, registry).top_k == 10
    with pytest.raises(ConfigurationError, match="no parameter 'least_'; did you mean 'least'"):
        registry.get_retriever("short", least_=1)
    for name in ("short", "dense", "Bad Name", "basic"):
        with pytest.raises(ConfigurationError):
            registry.register_retriever(name)(short)
    path = f"{__name__}:{_installed.__name__}"
    point = EntryPoint("installed", path, "llama_retrieval_ext.retrievers")
    monkeypatch.setattr(
        "llama_retrieval_ext.config.registry.entry_points", lambda group: [point][: bool(group)]
    )
    fresh = Registry().bind(kb)
    assert "installed" in fresh.names
    assert len(ask(fresh.get("retriever", "installed")())) == 2


def _installed(parts: RegistryParts) -> BaseRetriever:
    return parts.retriever("bm25")


def test_the_functions_of_the_module_are_one_registry(kb: KnowledgeBase) -> None:
    try:
        assert shared.bind(kb) is shared.default_registry()
        operator = shared.get("retriever", "hybrid")(dense_weight=0.6)
        assert isinstance(operator.retriever, BaseRetriever)
        assert repr(operator.retriever) == repr(shared.get_retriever("hybrid", dense_weight=0.6))
        assert inspect.iscoroutinefunction(operator.retrieve)
    finally:
        shared.bind(None)


def test_an_installed_package_that_is_broken_harms_only_its_own_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = EntryPoint("broken", "no_such_module:make", "llama_retrieval_ext.retrievers")
    monkeypatch.setattr(
        "llama_retrieval_ext.config.registry.entry_points", lambda group: [broken][: bool(group)]
    )
    registry = Registry()
    assert "dense" in registry.definitions
    with pytest.raises(ConfigurationError, match="'broken' of no_such_module:make cannot be"):
        registry.get_retriever("broken")


@pytest.mark.slow
def test_operators_in_eight_threads_return_only_hits_of_their_tenant(kb: KnowledgeBase) -> None:
    registry = Registry().bind(kb)
    names = ("dense", "bm25", "hybrid", "llama_bm25")
    operators = [registry.get("retriever", name)() for name in names]

    async def calls(number: int) -> int:
        tenant, crossed = TENANTS[number % 2], 0
        for call in range(trials(20)):
            operator = operators[call % len(operators)]
            records = await operator.retrieve(
                query="leave", tenant_id=tenant, kb_ids=["hr"], top_k=2
            )
            crossed += len(records) != 2
            crossed += sum(not record["text"].startswith(tenant) for record in records)
        return crossed

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda number: asyncio.run(calls(number)), range(8))) == 0


PRESETS = ("basic", "advanced", "semantic", "auto")


class Records:
    """A retriever of the designs: no LlamaIndex class, with an async ``retrieve``."""

    def __init__(self, *, tenant: str = "acme", text: str = "annual leave") -> None:
        self.tenant, self.text = tenant, text

    async def retrieve(
        self, query: str, tenant_id: str | None, kb_ids: list[str] | None, top_k: int
    ) -> list[dict[str, Any]]:
        """Return a record of the own tenant, whatever the caller's."""
        del tenant_id, kb_ids, top_k
        own = {"tenant_id": self.tenant, "query": query}
        return [
            {"chunk_id": "n1", "text": self.text, "score": 0.4, "metadata": own}
            | {"knowledge_base_id": "hr", "document_id": "d1", "source": "mine"}
        ]


def test_arguments_of_a_registered_class_are_its_parameters(registry: Registry) -> None:
    registry.register_retriever("my")(Records)
    factory = registry.get("retriever", "my")
    assert factory.parameters == {"tenant": "acme", "text": "annual leave"}
    (record,) = ask(factory(text="sick leave"))
    assert (record["text"], record["document_id"], record["source"]) == ("sick leave", "d1", "mine")
    assert registry.get_retriever("my").retrieve("leave")[0].text == "annual leave"
    with pytest.raises(ConfigurationError, match="did you mean 'text'"):
        factory(txet="x")


def test_records_of_another_tenant_or_knowledge_base_are_dropped(registry: Registry) -> None:
    registry.register_retriever("my")(Records)
    assert ask(registry.get("retriever", "my")(), kb_ids=["sales"]) == []
    made = registry.get_retriever("my", tenant="globex")
    assert isinstance(made, Retriever)
    (degraded,) = made.search("leave", scope=Scope("acme")).degraded
    assert "outside the query's scope" in degraded.reason


def test_records_are_refused_for_principals_because_they_do_not_name_any(
    registry: Registry,
) -> None:
    registry.register_retriever("my")(Records)
    with pytest.raises(UnsupportedModeError, match="do not say who may see them"):
        ask(registry.get("retriever", "my")(), principals=["user:ann"])


@pytest.mark.parametrize("score", [None, float("nan")])
def test_records_are_a_ranking_of_distinct_nodes_with_finite_scores(
    registry: Registry, score: float | None
) -> None:
    class Given:
        def __init__(self, *, records: object) -> None:
            self.records = records

        async def retrieve(self, **_: object) -> object:
            return self.records

    registry.register_retriever("given")(Given)

    def retrieved(records: object) -> list[tuple[str, float | None]]:
        return scored_ids(registry.get_retriever("given", records=records).retrieve("leave"))

    record = {"chunk_id": "n1", "text": "annual leave", "score": 0.4}
    assert retrieved([record, record | {"score": 0.7}]) == [("n1", 0.7)]
    with pytest.raises((ConfigurationError, ScoreError), match="score"):
        retrieved([record | {"score": score}])
    with pytest.raises(ConfigurationError, match="must return a list of records"):
        retrieved(None)
