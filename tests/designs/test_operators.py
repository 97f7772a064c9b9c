"""The registry's operators by name: parameters, defaults and the fields of their records."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.config import Registry
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM
from tests.cases import cases

RECORD = {"chunk_id", "text", "score", "metadata", "knowledge_base_id", "document_id", "source"}
BASE = {"base_retriever": "dense", "num_queries": 3, "include_original": True}
PARAMETERS: dict[str, dict[str, object]] = {
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
    "hyde": {**BASE, "max_tokens": 2000, "base_retriever_params": None},
    "multi_query": {**BASE, "rrf_k": 60, "base_retriever_params": None},
    "llama_dense": {"top_k": 5, "store_type": None, "store_params": None, "embedding_config": None},
    "llama_bm25": {"top_k": 5, "max_chunks": 5000, "cache_ttl": 60},
    "llama_hybrid": {"dense_weight": 0.7, "bm25_weight": 0.3, "top_k": 5},
}
TEXTS = ("annual leave is 25 days", "sick leave is paid", "lunch is at noon", "days off in May")


@pytest.fixture(scope="module")
def kb() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as opened:
        for tenant in ("t", "other"):
            documents = [
                Document(id_=f"{tenant}-{n}", text=f"{tenant}: {text}")
                for n, text in enumerate(TEXTS)
            ]
            opened.add(documents, scope=Scope(tenant, kb_ids=["kb"]), show_progress=False)
        yield opened


@pytest.fixture
def registry(kb: KnowledgeBase) -> Registry:
    def answer(prompt: str) -> str:
        return "1. days off\n2. holiday\n3. vacation"

    return Registry().bind(kb, llm=ScriptedLLM(answer))


def records_of(operator: Any, query: str = "annual leave days") -> list[dict[str, Any]]:
    return asyncio.run(operator.retrieve(query=query, tenant_id="t", kb_ids=["kb"], top_k=10))


@cases("name", PARAMETERS)
def test_operator_answers_with_records_of_the_scope(name: str, registry: Registry) -> None:
    records = records_of(registry.get("retriever", name)(**PARAMETERS[name]))
    assert records
    for record in records:
        assert set(record) >= RECORD
        assert record["knowledge_base_id"] == "kb"
        assert record["text"].startswith("t:")
        assert record["document_id"].startswith("t-")


@cases("name", PARAMETERS)
def test_operator_has_the_defaults_of_the_design(name: str) -> None:
    assert PARAMETERS[name].items() <= Registry().get("retriever", name).parameters.items()


@pytest.mark.parametrize("name", ["bm25", "llama_bm25"])
def test_keyword_scores_are_min_max_normalised(name: str, registry: Registry) -> None:
    operator = registry.get("retriever", name)()
    scores = [record["score"] for record in records_of(operator)]
    assert (max(scores), min(scores)) == (1.0, 0.0)
    assert [record["score"] for record in records_of(operator, "noon")] == [1.0]


def test_hyde_tells_what_the_model_wrote(registry: Registry) -> None:
    first, *_ = records_of(registry.get("retriever", "hyde")())
    assert first["hyde_queries_count"] == len(first["hyde_queries"]) > 0


def test_multi_query_tells_each_query_and_what_it_found(registry: Registry) -> None:
    first, *_ = records_of(registry.get("retriever", "multi_query")())
    assert first["generated_queries"] == ["days off", "holiday", "vacation"]
    assert first["queries_count"] == 4
    details = first["retrieval_details"]
    assert [detail["query"] for detail in details] == [
        "annual leave days",
        *first["generated_queries"],
    ]
    assert all(detail["hits_count"] == len(detail["hits"]) > 0 for detail in details)
    for hit in (hit for detail in details for hit in detail["hits"]):
        assert set(hit) >= RECORD
        assert not {"node_id", "kb_id"} & set(hit)
        assert hit["text"].startswith("t:")
    assert first["chunk_id"] in {hit["chunk_id"] for detail in details for hit in detail["hits"]}


def own_record(**changes: object) -> dict[str, object]:
    known = {"chunk_id": "1", "text": "x", "score": 0.9, "metadata": {}, "source": "mine"}
    return {**known, "knowledge_base_id": "kb", "document_id": None, **changes}


@cases(
    ("changes", "is_seen"),
    [
        ({}, True),
        ({"tenant_id": "t"}, True),
        ({"metadata": {"tenant_id": "t"}}, True),
        ({"tenant_id": "other"}, False),
        ({"metadata": {"tenant_id": "other"}}, False),
        ({"knowledge_base_id": "secret"}, False),
        ({"knowledge_base_id": None}, False),
    ],
)
@cases("group", [(), ("retriever",)])
def test_a_registered_class_answers_with_records_of_the_scope(
    group: tuple[str, ...], changes: dict[str, object], is_seen: bool
) -> None:
    class Mine:
        async def retrieve(
            self, query: str, tenant_id: str, kb_ids: list[str], top_k: int
        ) -> list[dict[str, object]]:
            assert (query, tenant_id, kb_ids, top_k) == ("q", "t", ["kb"], 10)
            return [own_record(**changes)]

    registry = Registry()
    registry.register_retriever(*group, "mine")(Mine)  # type: ignore[call-arg]
    operator: Any = registry.get("retriever", "mine")()
    found = records_of(operator, "q")
    assert [record["chunk_id"] for record in found] == (["1"] if is_seen else [])
    degraded = operator.retriever.search("q", scope=Scope("t", ["kb"])).degraded
    assert bool(degraded) is not is_seen
    if is_seen:
        assert set(found[0]) >= RECORD


def test_a_record_that_states_two_tenants_is_refused() -> None:
    class Mine:
        async def retrieve(self, **_: object) -> list[dict[str, object]]:
            return [own_record(tenant_id="t", metadata={"tenant_id": "other"})]

    registry = Registry()
    registry.register_retriever("mine")(Mine)
    with pytest.raises(ConfigurationError, match="state one"):
        records_of(registry.get("retriever", "mine")())


@cases(
    ("call", "advice"),
    [
        (lambda registry: registry.get("hybrid"), r"write get\('retriever', 'hybrid'\)"),
        (lambda registry: registry.register_retriever("preset", "m"), r"register_retriever\('m'\)"),
    ],
)
def test_a_call_without_its_group_says_what_to_write(call: Any, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        call(Registry())


@pytest.mark.parametrize(
    ("store_type", "params"),
    [
        ("milvus", {"index_params": {"index_type": "HNSW", "metric_type": "COSINE"}}),
        ("milvus", {"uri": "", "dim": 3}),
        ("qdrant", {"collection_name": "c"}),
        ("es", {"index_name": "i"}),
    ],
)
def test_another_engine_without_an_address_is_an_error(
    store_type: str,
    params: dict[str, object],
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"without an address .*write the address"):
        registry.get("retriever", "llama_dense")(store_type=store_type, store_params=params)
    assert not [*tmp_path.iterdir()]
