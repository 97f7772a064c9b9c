"""Registry and presets on the engines that are servers."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.config import Registry
from llama_retrieval_ext.graph import open_graph
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM
from tests.config.conftest import fill
from tests.knowledge_base.engines import place, start
from tests.quick import in_turn
from tests.servers.elasticsearch import elasticsearch_url
from tests.servers.milvus import milvus_url
from tests.servers.neo4j import neo4j_url

__all__ = ["elasticsearch_url", "milvus_url", "neo4j_url"]
pytestmark = pytest.mark.slow

PresetName = Literal["basic", "advanced", "semantic", "auto"]
WITHOUT_GRAPH: tuple[PresetName, ...] = ("basic", "advanced", "semantic", "auto")


@pytest.fixture(params=in_turn("milvus", "elasticsearch"))
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KnowledgeBase]:
    start(request.param, request)
    with (
        place(request.param, tmp_path, request) as url,
        KnowledgeBase.open(url, embed_model=FakeEmbedding()) as opened,
    ):
        fill(opened)
        yield opened


def test_names_and_presets_answer_within_their_scope(served: KnowledgeBase) -> None:
    llm = ScriptedLLM(["1. days off\n2. holiday\n3. vacation"] * 20)
    registry = Registry().bind(served, llm=llm)
    unbound = {"graph", "kg_rule", "knowledge", "auto_merging"}
    names = [*sorted(set(registry.names) - unbound), *WITHOUT_GRAPH]
    for name in names:
        operator = registry.get("preset" if name in WITHOUT_GRAPH else "retriever", name)()
        records = asyncio.run(
            operator.retrieve(query="annual leave", tenant_id="acme", kb_ids=["hr"], top_k=3)
        )
        assert records, name
        assert all(record["text"].startswith("acme") for record in records), name
    for name in WITHOUT_GRAPH:
        made = served.retriever(name, scope=Scope("globex"), top_k=2)
        assert [hit.text[:6] for hit in made.retrieve("annual leave")] == ["globex"] * 2


def test_presets_over_a_graph_on_neo4j(neo4j_url: str, tmp_path: Path) -> None:
    with closing(open_graph(neo4j_url)) as opened:
        opened.clear(scope=None)
    with KnowledgeBase.open(
        f"embedded:{tmp_path / 'kb'}", embed_model=FakeEmbedding(), graph=neo4j_url
    ) as kb:
        fill(kb)
        acme = Scope("acme")
        for made in (
            kb.retriever("advanced", top_k=3, scope=acme),
            kb.retriever("advanced", top_k=3, scope=acme, max_hops=1),
        ):
            assert len(made.stages) == 3
            result = made.search("annual leave")
            assert not result.degraded
            assert {hit.text[:4] for hit in result} == {"acme"}
        assert kb.retriever("auto").description == "auto chose 'advanced': there is a graph"
