"""Messages of conversations as nodes, searched with the messages before them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.llms import ChatMessage
from llama_index.core.schema import MetadataMode, NodeRelationship

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.errors import ConfigurationError, IngestionError
from llama_retrieval_ext.knowledge_base import ConversationParser
from llama_retrieval_ext.schema import DEFAULT_SCHEMA
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.cases import cases

MAY = datetime(2023, 5, 8, 13, tzinfo=UTC)
ROWS = [
    ("Ann", "Did you finish the pottery course?", MAY),
    ("Bob", "Yes, last May!"),
    ("Ann", ""),
    ("Ann", "Wonderful. And the garden?", "in the evening"),
    ("Bob", "Not yet."),
]


def test_a_message_is_searched_with_the_messages_before_it_and_shown_alone() -> None:
    nodes = ConversationParser(window=2).get_nodes_from_messages(ROWS, session_id="monday")
    assert [node.get_content(MetadataMode.NONE) for node in nodes] == [
        text for _, text, *_ in ROWS if text
    ]
    last = nodes[-1]
    searched = "Not yet.\n\nBob\nYes, last May!\nWonderful. And the garden?"
    assert last.get_content(MetadataMode.EMBED) == searched
    assert sorted(DEFAULT_SCHEMA.everything(last).split()) == sorted(searched.split())
    assert "context" not in nodes[0].metadata
    assert nodes[0].metadata == {
        "speaker": "Ann",
        "time": "2023-05-08T13:00:00+00:00",
        "date": "8 May 2023, 2023年5月8日",
        "session_id": "monday",
    }
    assert nodes[2].metadata["time"] == nodes[2].metadata["date"] == "in the evening"
    assert NodeRelationship.NEXT in nodes[0].relationships


def test_without_a_window_a_message_is_searched_alone() -> None:
    nodes = ConversationParser(window=0).get_nodes_from_messages(ROWS, session_id="monday")
    assert not any("context" in node.metadata for node in nodes)
    assert DEFAULT_SCHEMA.everything(nodes[1]) == "Bob\nYes, last May!"


def test_the_speaker_of_a_chat_message_is_named_or_its_role() -> None:
    named = {"speaker": "Ann", "time": MAY}
    messages = [
        ChatMessage(role="user", content="Hello", additional_kwargs=named),
        ChatMessage(role="assistant", content="How can I help?"),
    ]
    first, second = ConversationParser().get_nodes_from_messages(messages, session_id="s")
    assert (first.metadata["speaker"], second.metadata["speaker"]) == ("Ann", "assistant")
    assert first.metadata["time"] == MAY.isoformat()


@cases("wrong", ["hello", ("Ann",), ("Ann", 1), ("Ann", "Hi", 5), 7])
def test_a_conversation_of_anything_but_messages_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="a message is a ChatMessage"):
        ConversationParser().get_nodes_from_messages([wrong], session_id="s")


def test_sessions_of_one_call_have_no_message_of_each_other_in_their_contexts() -> None:
    sessions = {name: [(name, f"{name} {n}") for n in range(4)] for name in ("ann", "bob")}
    documents = [
        ConversationParser.document(rows, session_id=name) for name, rows in sessions.items()
    ]
    for node in ConversationParser().get_nodes_from_documents(documents):
        other = {"ann": "bob", "bob": "ann"}[node.metadata["session_id"]]
        assert other not in node.get_content(MetadataMode.ALL)


@pytest.mark.slow
def test_a_knowledge_base_finds_an_answer_by_its_question_until_the_session_is_deleted() -> None:
    options: Any = {"transformations": [ConversationParser()], "embed_model": FakeEmbedding()}
    acme, beta = Scope("acme"), Scope("beta")
    with KnowledgeBase.open("embedded::memory:", **options) as kb:
        for scope in (acme, beta):
            document = ConversationParser.document(ROWS, session_id="monday")
            assert kb.add([document], scope=scope, show_progress=False).added == 1
        for kind in ("keyword", "hybrid"):
            found = kb.search("pottery", kind, scope=acme)
            assert "Yes, last May!" in [hit.text for hit in found]
        grown = ConversationParser.document([*ROWS, ("Ann", "Soon?")], session_id="monday")
        assert kb.add([grown], scope=acme, show_progress=False).updated == 1
        assert kb.search("garden", "keyword", scope=acme)[-1].metadata["tenant_id"] == "acme"
        assert kb.delete("monday", scope=acme) == 1
        assert len(kb.search("pottery", "keyword", scope=acme)) == 0
        assert len(kb.search("pottery", "keyword", scope=beta)) == 3


def test_a_document_that_is_no_conversation_fails_with_advice() -> None:
    options: Any = {"transformations": [ConversationParser()], "embed_model": FakeEmbedding()}
    with KnowledgeBase.open("embedded::memory:", **options) as kb:
        report = kb.add([Document(text="Hello", id_="x")], show_progress=False)
        with pytest.raises(IngestionError, match=r"ConversationParser\.document"):
            report.raise_for_failures()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["embedded", "elasticsearch"], indirect=True)
def test_a_chinese_answer_is_found_by_its_question_on_each_kind_of_engine(url: str) -> None:
    options: Any = {"transformations": [ConversationParser()], "embed_model": FakeEmbedding()}
    rows = [
        ("小安", "你的陶艺课怎么样了"),
        ("阿波", "推迟到秋天"),
        ("小安", "可惜"),
        ("阿波", "对"),
    ]
    with KnowledgeBase.open(url, languages=["en"], **options) as kb:
        for scope in (Scope("acme"), Scope("beta")):
            document = ConversationParser.document(rows, session_id="monday")
            kb.add([document], scope=scope, show_progress=False).raise_for_failures()
    with KnowledgeBase.open(url, languages=["en"], **options) as kb:
        found = kb.search("陶艺课", "keyword", scope=Scope("acme"))
        assert sorted(hit.text for hit in found) == sorted(text for _, text in rows[:3])
        hybrid = kb.search("阿波的陶艺课", scope=Scope("acme"))
        assert hybrid[0].text == "推迟到秋天"
        assert {contribution.weight for hit in hybrid for contribution in hit.contributions} == {
            0.1,
            0.9,
        }
        assert kb.delete("monday", scope=Scope("acme")) == 1
        assert len(kb.search("陶艺课", "keyword", scope=Scope("acme"))) == 0
        assert len(kb.search("陶艺课", "keyword", scope=Scope("beta"))) == 3
