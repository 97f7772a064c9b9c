"""Memories: stored under the user's scope, exact in time, never lost."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory as LlamaIndexMemory
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext.capabilities import Memory, MemoryManager, documents_only
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.open import open_store
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM
from tests.capabilities.conftest import ACME, BETA

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def texts(memories: list[Memory]) -> list[str]:
    return [memory.text for memory in memories]


def test_memories_on_each_engine_survive_a_restart_with_exact_times(url: str) -> None:
    with KnowledgeBase.open(url, embed_model=FakeEmbedding(dim=16)) as kb:
        manager = MemoryManager(kb, scope=ACME)
        for number in range(5):
            manager.remember(
                f"note {number}",
                timestamp=NOON + number * MICROSECOND,
                metadata={"parity": number % 2},
            )
        manager.remember("a fact about pumps", memory_type="semantic", timestamp=NOON)
        MemoryManager(kb, scope=BETA).remember("another's note", timestamp=NOON)
    with KnowledgeBase.open(url, embed_model=FakeEmbedding(dim=16)) as kb:
        manager = MemoryManager(kb, scope=ACME)
        between = manager.retrieve_by_timerange(
            NOON + MICROSECOND, NOON + 3 * MICROSECOND, memory_type="episodic"
        )
        assert texts(between) == ["note 1", "note 2", "note 3"]
        assert between[0].timestamp == NOON + MICROSECOND
        even = MetadataFilters(filters=[MetadataFilter(key="parity", value=0)])
        assert texts(manager.retrieve_by_timerange(end_time=NOON, filters=even)) == ["note 0"]
        assert texts(manager.retrieve_by_timerange(NOON, filters={"parity": 1})) == [
            "note 1",
            "note 3",
        ]
        even_notes = texts(manager.retrieve("note", filters={"parity": 0}))
        assert sorted(even_notes) == ["note 0", "note 2", "note 4"]
        assert texts(manager.retrieve("pumps", top_k=1)) == ["a fact about pumps"]
        assert texts(manager.retrieve_by_type("semantic")) == ["a fact about pumps"]
        assert len(manager.retrieve_by_timerange()) == 6


@pytest.mark.parametrize(
    "stored", [{"memory_type": "work_log"}, {"metadata": {"doc_type": "work_log"}}]
)
def test_doc_type_in_a_mapping_of_filters_is_the_type_or_the_field(
    forgetful_kb: KnowledgeBase, stored: dict[str, Any]
) -> None:
    manager = MemoryManager(forgetful_kb, scope=ACME)
    manager.remember("A log.", timestamp=NOON, **stored)
    manager.remember("A chat.", memory_type="chat", timestamp=NOON)
    filters = {"doc_type": "work_log"}
    assert texts(manager.retrieve_by_timerange(NOON, NOON, filters=filters)) == ["A log."]


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


def test_documents_and_memories_do_not_mix(forgetful_kb: KnowledgeBase) -> None:
    MemoryManager(forgetful_kb, scope=ACME).remember("I took annual leave")
    assert texts(MemoryManager(forgetful_kb).retrieve("annual leave", scope=ACME)) == [
        "I took annual leave"
    ]
    hits = forgetful_kb.retriever("vector", filters=documents_only(), scope=ACME).retrieve("leave")
    assert "I took annual leave" not in [hit.node.get_content() for hit in hits]


def test_memories_fade_and_important_ones_more_slowly(forgetful_kb: KnowledgeBase) -> None:
    manager = MemoryManager(forgetful_kb, scope=ACME, clock=lambda: NOON)
    old = NOON - timedelta(days=365)
    manager.remember("the pump is red", timestamp=old, importance=0.1)
    manager.remember("the pump is red", timestamp=old, importance=0.9)
    manager.remember("the pump is red", timestamp=NOON, importance=0.1)
    found = manager.retrieve("pump red")
    assert [(each.importance, each.timestamp) for each in found] == [
        (0.1, NOON),
        (0.9, old),
        (0.1, old),
    ]
    assert [each.importance for each in manager.forget_faded(below=0.01)] == [0.1]
    assert len(manager.retrieve_by_timerange()) == 2


def test_consolidation_merges_what_says_the_same(forgetful_kb: KnowledgeBase) -> None:
    llm = ScriptedLLM(['{"memory": "Likes red and blue pumps a lot."}'])
    manager = MemoryManager(forgetful_kb, scope=ACME, llm=llm)
    for number, text in enumerate(
        ["likes red pumps a lot", "likes blue pumps a lot", "owns a cat"]
    ):
        manager.remember(text, timestamp=NOON + number * MICROSECOND, importance=number / 10)
    MemoryManager(forgetful_kb, scope=BETA).remember("likes red pumps a lot")
    done = manager.consolidate(similarity=0.7)
    (merged,) = done.merged
    assert sorted(texts(manager.retrieve_by_timerange())) == [
        "Likes red and blue pumps a lot.",
        "owns a cat",
    ]
    assert (merged.timestamp, merged.importance) == (NOON + MICROSECOND, 0.1)
    assert merged.merged == tuple(memory.id for memory in done.replaced[0])
    assert len(MemoryManager(forgetful_kb, scope=BETA).retrieve_by_timerange()) == 1


@pytest.mark.parametrize(
    "answers", [[RuntimeError("503")], ["nonsense"] * 2, [""], ['{"memory": " "}'], [(3.0, "{}")]]
)
def test_a_failing_model_never_loses_a_memory(
    forgetful_kb: KnowledgeBase, answers: list[str]
) -> None:
    manager = MemoryManager(forgetful_kb, scope=ACME, llm=ScriptedLLM(answers), timeout_s=0.05)
    said = ["likes red pumps a lot", "likes blue pumps a lot", "owns a cat", "Owns a cat!"]
    for text in said:
        manager.remember(text)
    done = asyncio.run(manager.aconsolidate(similarity=0.7))
    assert "consolidation" in done.failed[0]
    kept = texts(manager.retrieve_by_timerange())
    assert sorted(kept) == sorted([*said[:2], said[3]])  # the same words need no model


def test_without_a_model_only_the_same_words_are_merged(forgetful_kb: KnowledgeBase) -> None:
    manager = MemoryManager(forgetful_kb, scope=ACME)
    for text in ("likes red pumps", "likes blue pumps", "Likes red pumps."):
        manager.remember(text)
    manager.consolidate(similarity=0.99)
    assert sorted(texts(manager.retrieve_by_timerange())) == [
        "Likes red pumps.",
        "likes blue pumps",
    ]


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


def test_a_vector_store_remembers_as_well(tmp_path: Path) -> None:
    model = FakeEmbedding()
    with open_store(f"embedded:{tmp_path}") as store:
        manager = MemoryManager(store, embed_model=model, scope=ACME)
        manager.remember("prefers tea", timestamp=NOON)
        manager.remember("prefers tea", timestamp=NOON)
        assert len(manager.consolidate().merged) == 1
        assert texts(manager.retrieve("tea")) == ["prefers tea"]
        with pytest.raises(ConfigurationError, match="embed_model"):
            MemoryManager(store)


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


def said(role: str, content: str, session: str) -> ChatMessage:
    return ChatMessage(role=role, content=content, additional_kwargs={"session_id": session})


async def test_a_memory_block_recalls_its_own_session_only(forgetful_kb: KnowledgeBase) -> None:
    manager = MemoryManager(forgetful_kb)
    manager.remember("The office PIN rule: six digits", scope=ACME)
    block = manager.as_memory_block(scope=ACME)
    await block.aput([said("user", "My PIN is 4711", "anna")])
    await block.aput([ChatMessage(role="user", content="My PIN is 9999")], session_id="bob")
    question = [ChatMessage(role="user", content="What is the PIN?")]
    anna, bob, nobody = [
        await block.aget(question, session_id=session) for session in ("anna", "bob", None)
    ]
    assert ("4711" in anna, "9999" in anna) == (True, False)
    assert ("4711" in bob, "9999" in bob) == (False, True)
    assert ("4711" in nobody, "9999" in nobody) == (False, False)
    assert all("six digits" in recalled for recalled in (anna, bob, nobody))
    across = manager.as_memory_block(scope=ACME, across_sessions=True)
    assert "4711" in await across.aget(question, session_id="bob")


async def test_a_memory_block_stores_messages_of_the_assistant(forgetful_kb: KnowledgeBase) -> None:
    block = MemoryManager(forgetful_kb).as_memory_block(scope=ACME)
    messages = [
        said("system", "You are a bot for trains", "anna"),
        said("user", "When does the train leave?", "anna"),
        said("assistant", "The train leaves at 9:15", "anna"),
        said("assistant", "", "anna"),
    ]
    await block.aput(messages)
    question = [ChatMessage(role="user", content="train")]
    lines = (await block.aget(question, session_id="anna")).splitlines()
    assert sorted(line.partition(" ")[2] for line in lines) == [
        "When does the train leave?",
        "assistant: The train leaves at 9:15",
    ]


async def test_consolidation_keeps_sessions_apart(forgetful_kb: KnowledgeBase) -> None:
    manager = MemoryManager(forgetful_kb, scope=ACME)
    block = manager.as_memory_block()
    for session in ("anna", "anna", "bob"):
        await block.aput([said("user", "I prefer tea", session)])
    assert [len(replaced) for replaced in manager.consolidate().replaced] == [2]
    question = [ChatMessage(role="user", content="tea")]
    for session in ("anna", "bob"):
        assert (await block.aget(question, session_id=session)).count("I prefer tea") == 1
