"""A knowledge base with two tenants, and one on each engine for memories."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from llama_index.core import Document
from llama_index.core.schema import TextNode

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.capabilities import CapabilityFactory
from llama_retrieval_ext.capabilities.memory_storage import Memory, memory_filters
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM
from tests.knowledge_base.conftest import elasticsearch_url, engine, milvus_url, url

__all__ = ["elasticsearch_url", "engine", "milvus_url", "url"]

ACME, BETA = Scope("acme"), Scope("beta")
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
QUESTION = "How many days of annual leave?"
LEAVE = "Annual leave is 25 days a year. Unused leave expires in March."
DOCUMENTS = {
    "leave": (LEAVE, {"title": "Leave", "year": 2025, "kind": "rule"}),
    "sick": ("Sick leave: send a note on the third day.", {"year": 2024, "kind": "rule"}),
    "travel": ("Travel is booked by the office in Berlin.", {"year": 2025, "kind": "guide"}),
}

LOGS = [
    TextNode(id_=f"log-{n}", text=f"Day {n}: finished task {n}. " + "Checked the pump. " * 30)
    for n in range(1, 13)
]


@pytest.fixture(scope="session")
def kb() -> Iterator[KnowledgeBase]:
    """Acme's documents, and for beta ones that say the same in other figures, and a secret."""
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as opened:
        for scope, days in ((ACME, "25"), (BETA, "44")):
            documents = [
                Document(
                    id_=f"{scope.tenant_id}-{name}",
                    text=f"{text.replace('25', days)} ({scope.tenant_id})",
                    metadata=metadata,
                )
                for name, (text, metadata) in DOCUMENTS.items()
            ]
            opened.add(documents, scope=scope, show_progress=False).raise_for_failures()
        secret = Document(text="x", metadata={"year": 1999, "secret": "merger"})
        opened.add([secret], scope=BETA, show_progress=False)
        yield opened


@pytest.fixture
def forgetful_kb(kb: KnowledgeBase) -> Iterator[KnowledgeBase]:
    """The same, without memories when a test begins."""
    yield kb
    kb.delete_where(memory_filters())


def texts(memories: list[Memory]) -> list[str]:
    return [memory.text for memory in memories]


@pytest.fixture(scope="module")
def graph_kb() -> Iterator[KnowledgeBase]:
    """Pumps and valves in a knowledge base with a graph."""
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=FakeEmbedding(), graph="graph::memory:"
    ) as kb:
        nodes = [
            TextNode(
                id_="pump",
                text="The Grundfos pump feeds the boiler.",
                metadata={"title": "Grundfos pump"},
            ),
            TextNode(id_="valve", text="Close the valve before the Grundfos pump is opened."),
        ]
        kb.add(nodes, show_progress=False).raise_for_failures()
        yield kb


@pytest.fixture
def factory(kb: KnowledgeBase) -> CapabilityFactory:
    return CapabilityFactory.of(kb, llm=ScriptedLLM(cited))


def cited(prompt: str) -> str:
    """Answers with the figure of the first passage, as a model should."""
    found = re.search(r"Annual leave is (\d+) days", prompt)
    return "NOT_IN_PASSAGES" if found is None else f"{found.group()} [1]."
