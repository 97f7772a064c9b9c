"""Memories with dates: who said what, and when it holds."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.capabilities import MemoryManager
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.stores.generic import GenericBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding


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
