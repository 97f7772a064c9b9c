"""Typing errors: corrected by words that the scope sees, shown by every entrance, current."""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from llama_index.core import Document
from llama_index.core.schema import BaseNode

from llama_retrieval_ext import RRF, KnowledgeBase, Query, Schema, Scope, Top
from llama_retrieval_ext.config import Registry
from llama_retrieval_ext.knowledge_base import correcting
from llama_retrieval_ext.knowledge_base.correcting import Correcting, StoredWords
from llama_retrieval_ext.knowledge_base.curating import Curating
from llama_retrieval_ext.knowledge_base.interpreting import Interpreting
from llama_retrieval_ext.knowledge_base.kinds import Kind
from llama_retrieval_ext.knowledge_base.rankings import StoredRankings
from llama_retrieval_ext.testing import FakeEmbedding
from llama_retrieval_ext.text import Tokenizer
from tests.cases import cases

SENTENCE = "searched for 'employee' instead of 'emploee'"
DATA = {"text": SENTENCE, "query": "employee leave", "words": {"emploee": "employee"}}


def add(
    kb: KnowledgeBase,
    id_: str,
    text: str,
    scope: Scope | None = None,
    allowed: Sequence[str] | None = None,
) -> None:
    report = kb.add(
        [Document(id_=id_, text=text)], scope=scope, allowed=allowed, show_progress=False
    )
    report.raise_for_failures()


def text_of(node: BaseNode) -> str:
    return node.get_content()


def unknown(*_: object) -> None:
    return None


def curation(part: Correcting) -> Curating:
    filters = Interpreting(Schema, lambda *_: {}, lambda _: {})
    return Curating(part, StoredRankings(), dict, lambda *_: [], filters)


@pytest.fixture
def kb() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as opened:
        add(opened, "leave", "The annual leave of an employee.")
        yield opened


@pytest.mark.slow
@cases("mode", ["vector", "keyword", "hybrid", "bm25", "basic", "fusion"])
def test_every_mode_searches_the_corrected_question(kb: KnowledgeBase, mode: Kind) -> None:
    typed, meant = kb.search("emploee leave", mode), kb.search("employee leave", mode)
    assert [hit.score for hit in typed] == [hit.score for hit in meant]
    assert (str(typed.corrected), typed.hints.count(SENTENCE)) == (SENTENCE, 1)
    assert (meant.corrected, meant.hints) == (None, ())
    for as_typed in (
        kb.search("emploee leave", mode, correct=False),
        kb.search(Query("emploee leave", correct=False), mode),
        kb.search('"emploee" leave', mode),
        kb.retriever(mode).search("emploee leave", correct=False),
    ):
        assert as_typed.corrected is None


def test_every_entrance_shows_the_correction(kb: KnowledgeBase) -> None:
    found = kb.search("emploee leave")
    assert found.query == "emploee leave"
    assert found.to_dict()["corrected"] == DATA
    assert found.corrected is not None
    assert found.corrected.to_dict() == DATA
    assert f"hint: {SENTENCE}" in repr(found)
    assert "instead of &#x27;emploee&#x27;" in found._repr_html_()
    assert kb.retriever().explain("emploee leave").corrected == SENTENCE
    legs = (kb.retriever("vector") | kb.retriever("keyword")) >> RRF() >> Top(3)
    assert legs.search("emploee leave").hints == (SENTENCE,)
    assert asyncio.run(legs.asearch("emploee leave")).corrected == SENTENCE
    (many,) = kb.retriever().search_many(["emploee leave"])
    assert many.corrected == SENTENCE
    *_, streamed = kb.retriever().stream("emploee leave")
    assert streamed.corrected == SENTENCE
    operator = Registry().bind(kb).get("retriever", "hybrid")()
    records = asyncio.run(operator.retrieve("emploee leave"))
    assert records.corrected is not None
    assert records.corrected.to_dict() == DATA
    assert asyncio.run(operator.retrieve("emploee leave", correct=False)).corrected is None


@pytest.mark.slow
def test_words_follow_what_is_written(tmp_path: Path) -> None:
    url, model = f"embedded:{tmp_path / 'kb'}", FakeEmbedding()
    with (
        KnowledgeBase.open(url, embed_model=model) as kb,
        KnowledgeBase.open(url, embed_model=model) as other,
    ):

        def meant() -> str:
            result = kb.search("zepelin", "keyword")
            return "" if result.corrected is None else result.corrected.query

        assert meant() == ""
        add(other, "a", "A zeppelin.")  # by another object of the process
        assert meant() == "zeppelin"
        add(kb, "b", "The ship is called Zepelin.")
        assert meant() == ""
        add(kb, "b", "The ship has no name.")  # an update
        assert meant() == "zeppelin"
        other.delete("a")
        assert meant() == ""
        add(kb, "a", "A zeppelin.", allowed=["user:ann"])
        ann, bob = Scope(principals=["user:ann"]), Scope(principals=["user:bob"])
        assert kb.search("zepelin", scope=ann).corrected is not None
        assert kb.search("zepelin", scope=bob).corrected is None
        kb.share("a", allowed=["user:bob"])
        assert kb.search("zepelin", scope=ann).corrected is None
        assert kb.search("zepelin", scope=bob).corrected is not None
        kb.clear()
        assert kb.search("zepelin", scope=bob).corrected is None


@pytest.mark.slow
def test_only_words_that_the_scope_sees_count(kb: KnowledgeBase) -> None:
    draw = random.Random(3)
    words = ["alpha", "bravo", "charlie", "delta", "foxtrot", "juliet", "november", "oscar"]
    seen: list[tuple[str, str, tuple[str, ...], str]] = []
    for number in range(60):
        tenant, kb_id = draw.choice(["t1", "t2"]), draw.choice(["k1", "k2"])
        allowed = tuple(draw.sample(["user:ann", "user:bob"], draw.randint(0, 2)))
        word = draw.choice(words)
        scope = Scope(tenant, [kb_id])
        add(kb, f"d{number}", word, scope, allowed=[*allowed] or None)
        seen.append((tenant, kb_id, allowed, word))
    for _ in range(300):
        tenant = draw.choice(["t1", "t2"])
        kb_ids = draw.choice([None, ["k1"], ["k2"], ["k1", "k2"]])
        principals = draw.choice([None, [], ["user:ann"], ["user:bob", "group:x"]])
        word = draw.choice(words)
        is_visible = any(
            (owner, text) == (tenant, word)
            and (kb_ids is None or kb_id in kb_ids)
            and (principals is None or not allowed or {*allowed} & {*principals})
            for owner, kb_id, allowed, text in seen
        )
        query = Query(f"{word[:2]}{word[3:]}", scope=Scope(tenant, kb_ids, principals))
        result = kb.search(query, "keyword")
        assert (result.corrected is not None) == is_visible, (query, seen)
        assert bool(result) == is_visible


def test_questions_are_answered_while_the_words_are_read(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = kb.nodes()
    monkeypatch.setattr(correcting, "_WAIT_S", 0.01)
    is_slow = True

    def read(_: Scope | None) -> Iterator[BaseNode]:
        while is_slow:
            time.sleep(0.01)
        yield from nodes

    words = StoredWords()
    backend = kb.parts.backend
    assert backend is not None
    retriever = kb.retriever("keyword")
    part = Correcting(words, read, unknown, text_of, backend, Tokenizer(), False)
    retriever.curation = curation(part)
    found = retriever.search("emploee leave")
    assert found
    assert found.hints == (
        "typing errors are not corrected yet: the words of all passages are being read",
    )
    words.delete([node.node_id for node in nodes], 0)  # counts although it is read later
    is_slow = False
    monkeypatch.setattr(correcting, "_WAIT_S", 5.0)
    assert retriever.search("emploee leave").hints == ()
    words.write(nodes, 0)
    assert retriever.search("emploee leave").hints == (SENTENCE,)


@pytest.mark.slow
@pytest.mark.parametrize(("others", "is_corrected"), [([], True), (["emploee"], False)])
def test_a_store_that_others_write_to_confirms_each_correction(
    kb: KnowledgeBase, others: Sequence[str], is_corrected: bool
) -> None:
    stored = kb.nodes()
    for text in others:  # what another process has written
        add(kb, text, text)
    backend = kb.parts.backend
    assert backend is not None
    words = StoredWords()
    shared = Correcting(words, lambda _: stored, unknown, text_of, backend, Tokenizer(), True)
    retriever = kb.retriever("keyword")
    retriever.curation = curation(shared)
    assert (retriever.search("emploee").corrected is not None) is is_corrected
    kb.clear()  # and deleted
    assert retriever.search("emploee").corrected is None
