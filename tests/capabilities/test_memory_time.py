"""Memories with dates: who said what, and when it holds."""

from datetime import UTC, datetime

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.capabilities import MemoryManager
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
