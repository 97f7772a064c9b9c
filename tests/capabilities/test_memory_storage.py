"""Memories as nodes: exact in time, on each engine, apart from documents."""

from pathlib import Path
from typing import Any

import pytest
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext import KnowledgeBase, Scope, open_store
from llama_retrieval_ext.capabilities import MemoryManager, documents_only
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.testing import FakeEmbedding
from tests.capabilities.conftest import ACME, BETA, MICROSECOND, NOON, texts


@pytest.mark.slow
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
        assert texts(manager.retrieve_by_timerange(memory_type="semantic")) == [
            "a fact about pumps"
        ]
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


def test_documents_and_memories_do_not_mix(forgetful_kb: KnowledgeBase) -> None:
    MemoryManager(forgetful_kb, scope=ACME).remember("I took annual leave")
    assert texts(MemoryManager(forgetful_kb).retrieve("annual leave", scope=ACME)) == [
        "I took annual leave"
    ]
    hits = forgetful_kb.retriever("vector", filters=documents_only(), scope=ACME).retrieve("leave")
    assert "I took annual leave" not in [hit.node.get_content() for hit in hits]


def test_memories_can_be_kept_in_a_vector_store(tmp_path: Path) -> None:
    model = FakeEmbedding()
    with open_store(f"embedded:{tmp_path}") as store:
        manager = MemoryManager(store, embed_model=model, scope=ACME)
        manager.remember("prefers tea", timestamp=NOON)
        assert texts(manager.retrieve("tea")) == ["prefers tea"]
        with pytest.raises(ConfigurationError, match="embed_model"):
            MemoryManager(store)


def test_a_memory_of_a_principal_is_seen_by_that_principal_alone() -> None:
    ann, bob = (Scope("acme", principals=[name]) for name in ("user:ann", "user:bob"))
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding(dim=16)) as kb:
        manager = MemoryManager(kb, scope=Scope("acme"))
        own = manager.remember("likes pumps", scope=ann)
        manager.remember("likes valves", scope=bob)
        assert texts(manager.retrieve("likes", scope=ann)) == ["likes pumps"]
        assert texts(manager.retrieve_by_timerange(scope=bob)) == ["likes valves"]
        groups = Scope("acme", principals=["user:ann", "group:hr"])
        assert texts(manager.retrieve("likes", scope=groups)) == ["likes pumps"]
        with pytest.raises(ConfigurationError, match="belongs to one principal"):
            manager.remember("of whom?", scope=groups)
        assert not manager.forget(own.id, scope=bob)
        assert manager.forget(own.id, scope=ann)
