"""Memories of a user: stored and found within the scope."""

import asyncio
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory as LlamaIndexMemory
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.capabilities import MemoryManager
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.stores.generic import GenericBackend
from llama_retrieval_ext.testing import FakeEmbedding
from tests.capabilities.conftest import ACME, BETA, MICROSECOND, NOON, texts
from tests.cases import cases


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


@pytest.mark.slow
@cases(("question", "said"), [("yesterday", "3"), ("last April", "1"), ("去年十月", "0"), ("", "")])
def test_a_question_with_a_relative_date_prefers_its_days(question: str, said: str) -> None:
    days = [(2025, 10, 4), (2026, 4, 4), (2026, 5, 8), (2026, 5, 11)]
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        asked = datetime(2026, 5, 12, 9, tzinfo=UTC)
        manager = MemoryManager(kb, clock=lambda: asked)
        for number, day in enumerate(days):
            said_at = datetime(*day, tzinfo=UTC)
            manager.remember("We ran ten miles", session_id=f"{number}", timestamp=said_at)
        found = manager.retrieve(f"Who ran {question}?", top_k=4)
    assert len(found) == len(days)
    assert said in ("", found[0].session_id)


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
    with pytest.raises(ConfigurationError, match="below must be a finite number, got nan"):
        manager.forget_faded(below=math.nan)
    always = datetime(1, 1, 1, tzinfo=tokyo), datetime(9999, 12, 31, tzinfo=UTC)
    assert texts(manager.retrieve_by_timerange(*always)) == ["x"]
    for outside in ((always[1], None), (None, always[0])):
        assert not manager.retrieve_by_timerange(*outside)
    for time in always:
        with pytest.raises(ConfigurationError, match="between 1828 and 2112"):
            manager.remember("x", timestamp=time)


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


async def test_a_session_remembers_its_own_messages(forgetful_kb: KnowledgeBase) -> None:
    manager = MemoryManager(forgetful_kb, scope=ACME)
    block = manager.as_memory_block()
    for session in ("anna", "bob"):
        await block.aput([said("user", "I prefer tea", session)])
    question = [ChatMessage(role="user", content="tea")]
    for session in ("anna", "bob"):
        assert (await block.aget(question, session_id=session)).count("I prefer tea") == 1


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


def test_memories_are_of_the_time_for_which_they_hold() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        memories = MemoryManager(kb, scope=Scope("ann"), clock=lambda: now)
        for place, start, end in (
            ("Rome", "2020-05-01", "2024-03-01"),
            ("Oslo", "2024-03-01", None),
        ):
            memories.remember(
                f"I live in {place}",
                speaker="Ann",
                valid_from=start,
                valid_to=end,
                timestamp=datetime.fromisoformat(f"{start}T12:00:00+00:00"),
            )

        def places(**times: str) -> list[str]:
            found = memories.retrieve("Where do I live?", **times)  # type: ignore[arg-type]
            return [memory.text.split()[-1] for memory in found]

        assert places() == ["Oslo"]
        assert places(as_of="2022-06-01") == ["Rome"]
        known = memories.retrieve(
            "Where do I live?", known_at=datetime(2023, 1, 1, tzinfo=UTC), as_of="any"
        )
        assert [(memory.text, memory.metadata["speaker"]) for memory in known] == [
            ("I live in Rome", "Ann")
        ]


@pytest.mark.slow
@pytest.mark.parametrize("wrapped", [lambda store: store, GenericBackend])
def test_what_no_longer_holds_takes_no_place_among_the_best(
    wrapped: Callable[[BasePydanticVectorStore], Backend | BasePydanticVectorStore],
) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with EmbeddedVectorStore(":memory:") as store:
        memories = MemoryManager(wrapped(store), embed_model=FakeEmbedding(), clock=lambda: noon)
        for number in range(30):
            memories.remember(f"I live in Rome {number % 3}", valid_to="2024-03-01")
        memories.remember("I live in Oslo")
        memories.remember("I work in Bern")
        best = memories.retrieve("I live in Rome", top_k=2)
    assert [memory.text for memory in best] == ["I live in Oslo", "I work in Bern"]
