"""Memories fade, and those that say the same are merged; none is lost."""

import asyncio
from datetime import timedelta

import pytest

from llama_retrieval_ext.capabilities import MemoryManager
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.testing import ScriptedLLM
from tests.capabilities.conftest import ACME, BETA, MICROSECOND, NOON, texts


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


def test_consolidation_merges_memories_of_the_same_meaning(forgetful_kb: KnowledgeBase) -> None:
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
    "answers", [[RuntimeError("503")], ["nonsense"] * 2, ['{"memory": " "}'], [(3.0, "{}")]]
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
