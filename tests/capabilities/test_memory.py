"""Memories of a user: stored and found within the scope."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory as LlamaIndexMemory

from llama_retrieval_ext.capabilities import MemoryManager
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.testing import FakeEmbedding
from tests.capabilities.conftest import ACME, BETA, MICROSECOND, NOON, texts


def test_retrieval_is_by_similarity_within_the_scope(forgetful_kb: KnowledgeBase) -> None:
    manager = MemoryManager(forgetful_kb)
    manager.remember("prefers tea with milk", scope=ACME)
    manager.remember("prefers tea with lemon", scope=BETA)
    assert texts(manager.retrieve("tea", scope=ACME)) == ["prefers tea with milk"]
    assert texts(asyncio.run(manager.aretrieve("tea", scope=BETA))) == ["prefers tea with lemon"]
    assert texts(MemoryManager(forgetful_kb, scope=ACME).retrieve("tea")) == [
        "prefers tea with milk"
    ]
    assert manager.retrieve("annual leave", scope=Scope("none")) == []


def test_times_are_aware_and_ranges_run_forward(forgetful_kb: KnowledgeBase) -> None:
    manager = MemoryManager(forgetful_kb, scope=ACME)
    with pytest.raises(ConfigurationError, match="time zone"):
        manager.remember("x", timestamp=datetime(2026, 1, 1))  # noqa: DTZ001 - the mistake
    with pytest.raises(ConfigurationError, match="ends before it begins"):
        manager.retrieve_by_timerange(NOON, NOON - MICROSECOND)
    tokyo = timezone(timedelta(hours=9))
    manager.remember("x", timestamp=NOON.astimezone(tokyo))
    assert texts(manager.retrieve_by_timerange(NOON, NOON)) == ["x"]
    for wrong in ({"importance": 2}, {"memory_type": ""}, {"metadata": {"tenant_id": "beta"}}):
        with pytest.raises(ConfigurationError):
            manager.remember("x", **wrong)


def test_forgetting_is_within_the_scope(forgetful_kb: KnowledgeBase) -> None:
    memory = MemoryManager(forgetful_kb, scope=ACME).remember("mine")
    assert not MemoryManager(forgetful_kb, scope=BETA).forget(memory.id)
    assert MemoryManager(forgetful_kb, scope=ACME).forget(memory.id)
    assert not MemoryManager(forgetful_kb, scope=ACME).forget("acme-leave")


def test_a_required_scope_is_required() -> None:
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=FakeEmbedding(), require_scope=True
    ) as kb:
        manager = MemoryManager(kb)
        operations: list[Callable[[], object]] = [
            lambda: manager.remember("x"),
            lambda: manager.retrieve("x"),
            manager.retrieve_by_timerange,
            manager.consolidate,
            manager.forget_faded,
            manager.as_memory_block,
        ]
        for operation in operations:
            with pytest.raises(ScopeRequiredError):
                operation()


def test_a_manager_is_a_block_of_llama_index_memory(forgetful_kb: KnowledgeBase) -> None:
    manager = MemoryManager(forgetful_kb)
    manager.remember("prefers tea with milk", scope=ACME, timestamp=NOON)
    manager.remember("prefers tea with lemon", scope=BETA)
    block = manager.as_memory_block(scope=ACME, top_k=1)

    async def chat() -> str:
        memory = LlamaIndexMemory.from_defaults(memory_blocks=[block], token_limit=500)
        await memory.aput(ChatMessage(role="user", content="Which tea?"))
        messages = await memory.aget()
        await memory.sql_store._async_engine.dispose()  # type: ignore[attr-defined]
        await block.aput([ChatMessage(role="user", content="I moved to Rome")])
        return str(messages[0].content)

    content = asyncio.run(chat())
    assert "2026-11-16: prefers tea with milk" in content
    assert "lemon" not in content
    assert texts(manager.retrieve("Rome", scope=ACME, top_k=1)) == ["I moved to Rome"]
    assert asyncio.run(block.atruncate("one line\nand another", 2)) == "one line"
