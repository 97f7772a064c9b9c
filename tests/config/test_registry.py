"""The registry: names with their parameters, operators, tenants, and what is registered."""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, get_args

import pytest
from llama_index.core import Document
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext import KnowledgeBase, Query, Scope, config, open_store
from llama_retrieval_ext.arguments import arguments_of
from llama_retrieval_ext.config import Registry, RegistryParts, from_yaml, to_yaml
from llama_retrieval_ext.config import registry as shared
from llama_retrieval_ext.config.store_retrievers import KeptBM25Retriever, weighted_sum
from llama_retrieval_ext.errors import (
    ConfigurationError,
    MissingDependencyError,
    ScopeRequiredError,
    StoreClosedError,
    StoreError,
)
from llama_retrieval_ext.knowledge_base.kinds import (
    CompositeKind,
    GraphArguments,
    GraphKind,
    PresetArguments,
    PresetKind,
    SearchKind,
    StoreArguments,
    StoreKind,
)
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.retrievers.knowledge_response import KnowledgePolicy
from llama_retrieval_ext.samples.construction_safety import open_construction_safety
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.config.conftest import TENANTS, fill

PRESETS = ("basic", "advanced", "semantic", "auto")
BASE = {"base_retriever_params": None}
# Every name with its parameters and their defaults; ``top_k`` is 10 where it is not named.
PARAMETERS: dict[str, dict[str, object]] = {
    "vector": {"collapse": None},
    "keyword": {"collapse": None},
    "dense": {"embedding_config": None},
    "bm25": {},
    "hybrid": {"dense_weight": 0.7, "sparse_weight": 0.3, "embedding_config": None},
    "fusion": {
        "mode": "rrf",
        "dense_weight": 0.7,
        "bm25_weight": 0.3,
        "rrf_k": 60,
        "rerank": False,
        "rerank_model": None,
        "embedding_config": None,
    },
    "hyde": {
        "base_retriever": "dense",
        "num_queries": 3,
        "include_original": True,
        "max_tokens": 2000,
        **BASE,
    },
    "multi_query": {
        "base_retriever": "dense",
        "num_queries": 3,
        "include_original": True,
        "rrf_k": 60,
        **BASE,
    },
    "llama_dense": {"top_k": 5, "store_type": None, "store_params": None, "embedding_config": None},
    "llama_bm25": {"top_k": 5, "max_chunks": 5000, "cache_ttl": 60},
    "llama_hybrid": {"dense_weight": 0.7, "bm25_weight": 0.3, "top_k": 5},
    "graph": {"enable_multi_hop": True, "max_hops": 2},
    "kg_rule": {"rules": None},
    "knowledge": {"base_retriever": "dense"},
    "router": {"selector": "rules", "routes": None},
    "recursive": {"base_retriever": "hybrid", "max_depth": 8},
    "rerank": {"base_retriever": "hybrid", "rerank_model": None},
    "auto_merging": {"base_retriever": "hybrid", "simple_ratio_thresh": 0.5},
    "fallback": {"retrievers": ("hybrid", "bm25"), "enough": 1},
}
RECORD = ("chunk_id", "text", "score", "metadata", "knowledge_base_id", "document_id", "source")


def ask(operator: Any, query: str = "annual leave", **scope: Any) -> list[dict[str, Any]]:
    where = {"tenant_id": "acme", "kb_ids": ["hr"], "top_k": 3} | scope
    return asyncio.run(operator.retrieve(query=query, **where))


def test_the_names_and_their_parameters() -> None:
    registry = Registry()
    assert sorted(PARAMETERS) == registry.names
    for name, expected in PARAMETERS.items():
        parameters = registry.get("retriever", name).parameters
        assert {"top_k": 10, **expected}.items() <= parameters.items(), name


def test_the_table_in_the_readme_has_each_name_with_its_parameters_and_fields() -> None:
    readme = (Path(config.__file__).parent / "README.md").read_text(encoding="utf-8")
    registry = Registry()
    for name in (*registry.names, *PRESETS):
        definition = registry.definition(name)
        defaults = (f"`{key}={p.default!r}`" for key, p in definition.parameters.items())
        (row,) = [line for line in readme.splitlines() if line.startswith(f"| `{name}` | `")]
        _, _, parameters, _, fields, _ = row.split("|")
        assert parameters.strip() == ", ".join(defaults)
        assert fields.strip() == ", ".join(f"`{field}`" for field in definition.fields)


def test_type_checkers_know_each_name_of_the_table() -> None:
    kinds = {*get_args(SearchKind), *get_args(CompositeKind)}
    assert kinds == {*Registry().names, *PRESETS}


@pytest.mark.parametrize(
    ("names", "arguments"),
    [
        (get_args(StoreKind), StoreArguments),
        (get_args(GraphKind), GraphArguments),
        (get_args(PresetKind), PresetArguments),
    ],
)
def test_type_checkers_know_each_parameter_of_the_table(
    names: tuple[str, ...], arguments: type
) -> None:
    registry = Registry()
    needed = {p for name in names for p in registry.definition(name).parameters}
    assert set(arguments.__annotations__) - needed <= {"filters", "scope", "name"} | {
        "similarity_top_k"
    }
    # What a search takes with each question, and parameters of another retriever.
    later = {"chapter", "engineering_type", "processes"}
    inner = {"seed_params", "base_retriever_params"}
    assert needed <= {*arguments.__annotations__, *later, *inner}


def test_the_weights_of_hybrid_are_the_designs_except_in_a_knowledge_base(
    registry: Registry, kb: KnowledgeBase
) -> None:
    def alpha(retriever: BaseRetriever) -> object:
        return arguments_of(retriever).get("alpha")

    assert alpha(registry.get_retriever("hybrid")) == pytest.approx(0.7)
    assert alpha(kb.retriever("hybrid")) is None
    assert alpha(kb.retriever("hybrid", dense_weight=0.7, sparse_weight=0.3)) == pytest.approx(0.7)
    (inner,) = kb.retriever("rerank").children
    assert alpha(inner) is None
    assert "dense_weight=0.7" in str(KnowledgeBase.retriever.__doc__)


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


def test_filters_of_a_knowledge_bases_retriever_reach_retrievers_inside(kb: KnowledgeBase) -> None:
    only = MetadataFilters(filters=[MetadataFilter(key="tenant_id", value="globex")])
    for name in ("fusion", "rerank", "llama_bm25", "fallback", "basic", "router"):
        made = kb.retriever(name, filters=only)
        assert {hit.text[:6] for hit in made.retrieve("annual leave")} == {"globex"}, name


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


@pytest.mark.parametrize("name", ["bm25", "llama_bm25"])
def test_scores_of_bm25_are_min_max_normalised_over_the_answer(
    registry: Registry, name: str
) -> None:
    bm25 = registry.get("retriever", name)()
    scores = [record["score"] for record in ask(bm25, "annual leave")]
    assert (scores[0], scores[-1], len(scores)) == (1.0, 0.0, 2)
    assert [record["score"] for record in ask(bm25, "annual leave", top_k=1)] == [1.0]
    assert [record["score"] for record in ask(bm25, "noon")] == [1.0]


def test_a_weighted_sum_takes_cosines_as_they_are_and_bm25_min_max() -> None:
    dense, bm25 = FakeRetriever([("a", 0.57, "x")]), FakeRetriever([("a", 3.18, "x")])
    fused = branches(dense=dense, bm25=bm25) >> weighted_sum(0.7, 0.3)
    (hit,) = fused.retrieve("x")
    assert hit.score == pytest.approx(0.699)


@pytest.mark.parametrize(
    ("name", "params"), [("llama_hybrid", {}), ("fusion", {"mode": "weighted"})]
)
def test_weighted_names_add_the_cosine_and_the_normalised_bm25_score(
    registry: Registry, name: str, params: dict[str, Any]
) -> None:
    query = Query("annual leave", scope=Scope("acme"), top_k=1)
    (cosine,) = registry.get_retriever("dense").retrieve(query)
    (hit,) = registry.get_retriever(name, **params).retrieve(query)
    assert hit.score == pytest.approx(0.7 * (cosine.score or 0) + 0.3)


def test_the_first_record_tells_what_the_llm_wrote(registry: Registry) -> None:
    first, *others = ask(registry.get("retriever", "multi_query")(num_queries=3))
    assert first["generated_queries"] == ["days off", "holiday", "vacation"]
    assert first["queries_count"] == 4
    details = first["retrieval_details"]
    assert [each["query"] for each in details][:2] == ["annual leave", "days off"]
    assert all(each["hits_count"] == len(each["hits"]) for each in details)
    assert all("generated_queries" not in each for each in others)
    first, *_ = ask(registry.get("retriever", "hyde")(num_queries=1))
    assert len(first["hyde_queries"]) == first["hyde_queries_count"] == 1


def test_an_operator_that_finds_nothing_still_says_what_the_llm_wrote(registry: Registry) -> None:
    operator = registry.get("retriever", "hyde")(num_queries=1)
    records = asyncio.run(operator.retrieve("annual leave", tenant_id="no such tenant"))
    assert records == []
    assert records.details["hyde_queries_count"] == 1


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("hybird", {}, "did you mean 'hybrid'"),
        ("hybrid", {"dense_wieght": 1}, "did you mean 'dense_weight'"),
        ("hybrid", {"dense_weight": -1.0}, "greater than or equal to 0"),
        ("hybrid", {"dense_weight": 0, "sparse_weight": 0}, "must be above 0"),
        ("fusion", {"mode": "rff"}, "'rrf' or 'weighted'"),
        ("fusion", {"rerank_model": "llm"}, "without rerank=True"),
        ("dense", {"top_k": 0}, "greater than or equal to 1"),
        ("hyde", {"base_retriever": "dens"}, "did you mean 'dense'"),
        ("hyde", {"base_retriever_params": {"top": 1}}, "'dense' has no parameter 'top'"),
        ("graph", {}, r"registry\.bind\(kb, graph=\.\.\.\)"),
        ("auto_merging", {}, r"docstore=\.\.\."),
        ("llama_dense", {"store_type": "milvus"}, "is on 'embedded'; pass store_params"),
        ("llama_dense", {"store_params": {"urll": "x"}}, "store_type=None and urll"),
        ("router", {"descriptions": {"x": "y"}}, "no route: x"),
        ("advanced", {"vector_weight": "much"}, "must be a valid number"),
        ("hybrid", {"type": "bm25"}, "no parameter 'type'"),
    ],
)
def test_what_cannot_work_says_so(
    name: str, params: dict[str, Any], words: str, registry: Registry
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        registry.get_retriever(name, **params)


def test_what_was_not_bound_is_named() -> None:
    registry = Registry()
    for name, words in (("dense", "registry.bind"), ("basic", "registry.bind")):
        with pytest.raises(ConfigurationError, match=words):
            registry.get_retriever(name)
    with pytest.raises(ConfigurationError, match="'retriever' or 'preset'"):
        registry.get("retrievers", "dense")  # type: ignore[arg-type]


def test_composites_have_what_they_are_told_inside(registry: Registry) -> None:
    base = registry.get_retriever("bm25", top_k=7)
    reranked = registry.get_retriever("rerank", base_retriever=base, fetch_k=9, top_k=2)
    assert vars(reranked)["retriever"] is base
    fallback = registry.get_retriever("fallback", retrievers=[base, "dense"], enough=2)
    assert next(iter(vars(fallback)["legs"])).retriever is base
    router = registry.get_retriever("router", routes={"exact": "bm25", "general": base})
    (hit, *_) = ask(registry.get("retriever", "router")(), "E1205")
    assert hit["source"] == "bm25"
    assert [hit.text for hit in router.retrieve("what is at noon?")]
    fused = registry.get_retriever("fusion", mode="weighted", rerank=True, top_k=2)
    assert len(fused.retrieve("leave")) == 2


def test_an_operator_fails_closed(registry: Registry, kb: KnowledgeBase) -> None:
    operator = registry.get("retriever", "dense")()
    with pytest.raises(ConfigurationError, match="kb_ids is empty"):
        ask(operator, kb_ids=[])
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


def test_added_names_are_like_our_own(
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


def test_the_cause_of_an_error_stays_with_it(registry: Registry) -> None:
    @registry.register_retriever("broken")
    def broken(parts: RegistryParts) -> BaseRetriever:
        del parts
        raise ConfigurationError("there is no such model") from OSError("404")

    with pytest.raises(ConfigurationError, match="no such model") as raised:
        registry.get_retriever("broken")
    assert isinstance(raised.value.__cause__, OSError)


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


def test_llama_dense_reads_a_store_of_its_own(registry: Registry, tmp_path: Path) -> None:
    url, model = f"embedded:{tmp_path / 'store'}", FakeEmbedding()
    with open_store(url) as store:
        node = TextNode(text="parental leave", embedding=model.get_text_embedding("leave"))
        store.add([node])
    made = registry.get_retriever("llama_dense", store_params={"url": url})
    assert [hit.text for hit in made.retrieve("leave")] == ["parental leave"]
    registry.close()
    with pytest.raises(StoreClosedError):
        made.retrieve("leave")


@pytest.mark.parametrize("url", ["milvus:{}/kb.db", "embedded:{}/kb", "qdrant:{}/kb"])
def test_llama_dense_opens_a_store_by_the_url_of_each_engine(
    registry: Registry, tmp_path: Path, url: str
) -> None:
    with pytest.raises((StoreError, ConfigurationError), match="there is no"):
        registry.get_retriever("llama_dense", store_params={"url": url.format(tmp_path)})


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


def test_a_class_with_an_async_retrieve_is_registered(registry: Registry) -> None:
    registry.register_retriever("my")(Records)
    factory = registry.get("retriever", "my")
    assert factory.parameters == {"tenant": "acme", "text": "annual leave"}
    (record,) = ask(factory(text="sick leave"))
    assert {key: record[key] for key in RECORD if key != "metadata"} == {
        "chunk_id": "n1",
        "text": "sick leave",
        "score": 0.4,
        "knowledge_base_id": "hr",
        "document_id": "d1",
        "source": "mine",
    }
    assert registry.get_retriever("my").retrieve("leave")[0].text == "annual leave"
    with pytest.raises(ConfigurationError, match="did you mean 'text'"):
        factory(txet="x")


def test_records_of_another_tenant_or_knowledge_base_are_dropped(registry: Registry) -> None:
    registry.register_retriever("my")(Records)
    assert ask(registry.get("retriever", "my")(tenant="globex")) == []
    assert ask(registry.get("retriever", "my")(), kb_ids=["sales"]) == []
    made = registry.get_retriever("my", tenant="globex")
    assert isinstance(made, Retriever)
    (degraded,) = made.search("leave", scope=Scope("acme")).degraded
    assert "outside the query's scope" in degraded.reason


def test_knowledge_takes_chapter_type_processes_and_a_policy(kb: KnowledgeBase) -> None:
    graph, rules = open_construction_safety()
    registry = Registry().bind(kb, graph=graph, rules=rules)
    make = registry.get("retriever", "knowledge")
    named = {"tenant_id": None, "kb_ids": None, "top_k": 30}
    operator = make(chapter="safety", processes=["blasting"])
    assert any("proof" in record for record in ask(operator, "requirements", **named))
    assert not ask(make(chapter="costs", processes=["blasting"]), "requirements", **named)
    every_case = make(policy=KnowledgePolicy(case_threshold=0.0), chapter="costs")
    assert {record["source"] for record in ask(every_case, "leave", **named)} == {"vector"}
    text = to_yaml(registry.get_retriever("knowledge", chapter="safety"), live=registry.live)
    assert "chapter: safety" in text
    assert repr(from_yaml(text, registry)) == repr(
        registry.get_retriever("knowledge", chapter="safety")
    )
    graph.close()


def test_a_cross_encoder_that_is_not_installed_is_named(registry: Registry) -> None:
    with pytest.raises(MissingDependencyError, match="sentence-transformers"):
        registry.get_retriever("rerank", rerank_model="cross-encoder/ms-marco-MiniLM-L-6-v2")


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


def test_bm25_in_memory_is_kept_by_scope_and_read_again() -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        fill(kb)
        check_keeping(kb)


def check_keeping(kb: KnowledgeBase) -> None:
    kept = KeptBM25Retriever(kb, max_chunks=3, cache_ttl=0.05, top_k=9)
    acme = kept.for_scope(Scope("acme"))
    assert {hit.text[:4] for hit in acme.retrieve("annual sick lunch code")} == {"acme"}
    assert len(acme.retrieve("annual sick lunch code")) == 3
    (degraded,) = acme.search("leave").degraded
    assert "1 are left out" in degraded.reason
    lasting = KeptBM25Retriever(kb, cache_ttl=3600)
    assert lasting.retrieve("vacancy") == []
    assert kept.retrieve("vacancy") == []
    kb.add([Document(text="globex: vacancy", id_="0")], scope=Scope("globex"), show_progress=False)
    assert lasting.retrieve("vacancy") == []
    fresh = KeptBM25Retriever(kb)
    assert [hit.text for hit in fresh.retrieve("vacancy")] == ["globex: vacancy"]


@pytest.mark.slow
def test_eight_threads_of_two_tenants_cross_nothing(kb: KnowledgeBase) -> None:
    registry = Registry().bind(kb)
    names = ("dense", "bm25", "hybrid", "llama_bm25")
    operators = [registry.get("retriever", name)() for name in names]

    async def calls(number: int) -> int:
        tenant, crossed = TENANTS[number % 2], 0
        for call in range(1000):
            operator = operators[call % len(operators)]
            records = await operator.retrieve(
                query="leave", tenant_id=tenant, kb_ids=["hr"], top_k=2
            )
            crossed += len(records) != 2
            crossed += sum(not each["text"].startswith(tenant) for each in records)
        return crossed

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda number: asyncio.run(calls(number)), range(8))) == 0
