"""A knowledge base with two tenants, which nobody writes to, and a registry over it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core import Document

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.config import Registry
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM

TENANTS = ("acme", "globex")
# What the knowledge base has of each tenant.
TEXTS = ("annual leave is 25 days", "sick leave is paid", "lunch is at noon", "code E1205 is a jam")


def fill(kb: KnowledgeBase) -> None:
    for tenant in TENANTS:
        kb.add(
            [
                Document(text=f"{tenant}: {text}", id_=f"{tenant}-{number}")
                for number, text in enumerate(TEXTS)
            ],
            scope=Scope(tenant, kb_ids=["hr"]),
            show_progress=False,
        )


def ask(operator: Any, query: str = "annual leave", **scope: Any) -> list[dict[str, Any]]:
    where = {"tenant_id": "acme", "kb_ids": ["hr"], "top_k": 3} | scope
    return asyncio.run(operator.retrieve(query=query, **where))


@pytest.fixture(scope="module")
def kb() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as opened:
        fill(opened)
        yield opened


@pytest.fixture
def registry(kb: KnowledgeBase) -> Registry:
    return Registry().bind(kb, llm=ScriptedLLM(["1. days off\n2. holiday\n3. vacation"] * 20))
