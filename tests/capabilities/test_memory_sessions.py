"""Messages of sessions in memory: found by what was said before them, within their session."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.llms import ChatMessage
from llama_index.core.schema import MetadataMode

from llama_retrieval_ext import KnowledgeBase, Query, Scope
from llama_retrieval_ext.capabilities import MemoryManager
from llama_retrieval_ext.capabilities.memory_storage import Memory, dated
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding
from tests.capabilities.conftest import ACME, BETA, NOON, texts

CHAT = [("Ann", "Did you finish the pottery course?"), ("Bob", "Yes, last May!"), ("Ann", "Nice.")]


@pytest.fixture
def empty_kb() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as opened:
        yield opened


@pytest.fixture(params=["knowledge base", "vector store"])
def manager(request: pytest.FixtureRequest, empty_kb: KnowledgeBase) -> Iterator[MemoryManager]:
    if request.param == "knowledge base":
        yield MemoryManager(empty_kb, scope=ACME)
        return
    with EmbeddedVectorStore(":memory:") as store:
        yield MemoryManager(store, embed_model=FakeEmbedding(), scope=ACME)


def remember(manager: MemoryManager, session: str, scope: Scope | None = None) -> list[Memory]:
    return [
        manager.remember(text, speaker=speaker, session_id=session, timestamp=NOON, scope=scope)
        for speaker, text in CHAT
    ]


def stored(manager: MemoryManager) -> dict[str, str]:
    """The context of each text."""
    return {each.text: each.context for each in manager.retrieve_by_timerange()}


def test_a_message_is_found_by_the_two_before_it_and_shown_alone(manager: MemoryManager) -> None:
    remember(manager, "monday")
    found = manager.retrieve("pottery", top_k=3)
    assert sorted(texts(found)) == sorted(text for _, text in CHAT)
    (answer,) = [each for each in found if each.text == "Yes, last May!"]
    assert answer.context == "Did you finish the pottery course?"
    assert (answer.session_id, answer.metadata["speaker"]) == ("monday", "Bob")
    assert answer.metadata["date"] == "16 November 2026, 2026年11月16日"
    assert stored(manager)["Nice."] == "Did you finish the pottery course?\nYes, last May!"


@pytest.mark.slow
def test_a_message_long_after_the_others_has_their_context(manager: MemoryManager) -> None:
    remember(manager, "monday")
    later = NOON + timedelta(days=3)
    last = manager.remember("Back again.", session_id="monday", timestamp=later)
    assert last.context == "Yes, last May!\nNice."
    assert manager.remember("Hello", session_id="tuesday", timestamp=later).context == ""


@pytest.mark.slow
def test_a_forgotten_message_is_in_no_context(manager: MemoryManager) -> None:
    question, answer, _ = remember(manager, "monday")
    assert manager.forget(answer.id)
    assert stored(manager) == {
        "Did you finish the pottery course?": "",
        "Nice.": "Did you finish the pottery course?",
    }
    assert manager.forget(question.id)
    assert stored(manager) == {"Nice.": ""}


def test_a_forgotten_session_leaves_the_others(manager: MemoryManager) -> None:
    remember(manager, "monday")
    remember(manager, "tuesday")
    # Of the same time: in their order.
    assert texts(manager.forget_session("monday")) == [text for _, text in CHAT]
    left = manager.retrieve("pottery", top_k=9)
    assert {each.session_id for each in left} == {"tuesday"}
    assert manager.forget_session("monday") == []


async def test_a_block_stores_speaker_and_time_of_a_message(empty_kb: KnowledgeBase) -> None:
    block = MemoryManager(empty_kb).as_memory_block(scope=ACME, top_k=1)
    said = {"session_id": "monday", "time": "2023-05-08T13:56:00+00:00"}
    messages = [
        ChatMessage(role="user", content=text, additional_kwargs={**said, "speaker": speaker})
        for speaker, text in CHAT[:2]
    ]
    await block.aput(messages)
    question = [ChatMessage(role="user", content="What did Bob finish in May?")]
    assert await block.aget(question, session_id="monday") == "2023-05-08: Bob: Yes, last May!"


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    said=st.lists(
        st.tuples(st.sampled_from([ACME, BETA]), st.sampled_from(["s1", "s2"])), max_size=9
    ),
    forgotten=st.sets(st.integers(0, 8)),
)
def test_a_context_has_the_two_messages_before_of_the_same_user_and_session_alone(
    said: list[tuple[Scope, str]], forgotten: set[int]
) -> None:
    with EmbeddedVectorStore(":memory:") as store:
        manager = MemoryManager(store, embed_model=FakeEmbedding())
        memories = [
            manager.remember(f"word{n}", session_id=session, scope=scope, timestamp=NOON)
            for n, (scope, session) in enumerate(said)
        ]
        for n in sorted(forgotten & set(range(len(said)))):
            assert manager.forget(memories[n].id, scope=memories[n].scope)
        known = manager.retrieve_by_timerange()
    assert len(known) == len(set(range(len(said))) - forgotten)
    for user_and_session in set(said):
        own = [each for each in known if (each.scope, each.session_id) == user_and_session]
        for at, memory in enumerate(own):
            before = [each.text for each in own[max(0, at - 2) : at]]
            assert memory.context == "\n".join(before)


def test_the_searched_text_of_a_message_has_nothing_but_itself_and_its_context(
    empty_kb: KnowledgeBase,
) -> None:
    remember(MemoryManager(empty_kb, scope=ACME), "monday")
    nodes = empty_kb.nodes(scope=ACME)
    searched = {node.get_content(MetadataMode.EMBED) for node in nodes}
    day = "16 November 2026, 2026年11月16日"
    assert any(
        text.startswith("Yes, last May!\n\n")
        and sorted(text.split("\n")[2:]) == sorted(["Bob", day, CHAT[0][1]])
        for text in searched
    )


@pytest.mark.slow
def test_a_message_is_forgotten_from_contexts_on_every_engine(url: str) -> None:
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        question, *_ = remember(MemoryManager(kb), "monday", ACME)
        remember(MemoryManager(kb), "monday", BETA)
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        manager = MemoryManager(kb, scope=ACME)
        assert len(manager.retrieve("pottery", top_k=9)) == len(CHAT)
        assert manager.forget(question.id)
        assert stored(manager) == {"Yes, last May!": "", "Nice.": "Yes, last May!"}
        assert len(manager.forget_session("monday")) == 2
        assert len(MemoryManager(kb, scope=BETA).retrieve_by_timerange()) == len(CHAT)


@pytest.mark.parametrize("as_argument", [True, False])
def test_days_are_those_of_the_user(empty_kb: KnowledgeBase, *, as_argument: bool) -> None:
    tokyo = ZoneInfo("Asia/Tokyo")
    now = datetime(2026, 3, 10, 8, tzinfo=tokyo)  # 9 March, 23:00 in UTC
    clock, zone = (now.astimezone(UTC), tokyo) if as_argument else (now, None)
    manager = MemoryManager(empty_kb, clock=lambda: clock, timezone=zone)
    dates = []
    for day, hour in ((9, 1), (9, 15), (8, 15)):
        moment = datetime(2026, 3, day, hour, tzinfo=tokyo)
        memory = manager.remember(f"planted at {hour}", timestamp=moment, session_id="s")
        dates.append((memory.metadata["date"][:6], manager.line(memory)[:10]))
    assert dates == [("9 Marc", "2026-03-09")] * 2 + [("8 Marc", "2026-03-08")]
    query = dated(Query("What was planted yesterday?"), manager._local(clock))
    assert "9 March 2026" in query.query_str
    assert manager.retrieve("What was planted yesterday?", top_k=3)[2].timestamp.day == 8
    with pytest.raises(ConfigurationError, match="timezone"):
        MemoryManager(empty_kb, timezone="Asia/Tokyo")  # type: ignore[arg-type]
