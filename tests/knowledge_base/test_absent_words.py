"""Words that no text of a scope has: the engine does not look for them, and no answer changes."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
from llama_index.core import Document
from qdrant_edge import SparseVector

from llama_retrieval_ext import KnowledgeBase, Query, Schema, Scope
from llama_retrieval_ext.knowledge_base.ledger.journal import Journal
from llama_retrieval_ext.stores import open_store
from llama_retrieval_ext.stores.embedded import search, store
from llama_retrieval_ext.testing import FakeEmbedding
from llama_retrieval_ext.text import Tokenizer
from llama_retrieval_ext.text.correction import Vocabulary
from llama_retrieval_ext.text.segmentation import term_id
from tests.patience import SOON_S

ACME, ZEN = Scope("acme"), Scope("zen")
ANN, BOB = (Scope("acme", principals=[f"user:{name}"]) for name in ("ann", "bob"))

# Asks a question, and returns which of its words were sent to the engine.
Asked: TypeAlias = Callable[[KnowledgeBase, str, Scope | None], str]


def add(kb: KnowledgeBase, id_: str, text: str, scope: Scope, *allowed: str) -> None:
    document = Document(id_=id_, text=text)
    kb.add([document], scope=scope, allowed=allowed or None, show_progress=False)


def wait_for_words(kb: KnowledgeBase, scope: Scope) -> None:
    """Ask, and wait until all texts of a tenant are read and counted."""
    end = time.monotonic() + SOON_S
    while time.monotonic() < end:
        kb.search("x", "keyword", scope=scope, correct=False)
        if kb._storage.words._tenants[scope.tenant_id].unnoted is not None:
            return
        time.sleep(0.01)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    sent: list[int] = []

    def spied(terms: list[int], weights: list[float]) -> SparseVector:
        sent[:] = terms
        return SparseVector(terms, weights)

    def ask(kb: KnowledgeBase, question: str, scope: Scope | None) -> str:
        is_quoted = '"' in question
        kb.search(question, "keyword", scope=scope, correct=not is_quoted)
        tokens = Tokenizer().query_tokens(question)
        return " ".join(token for token in tokens if term_id(token) in sent)

    monkeypatch.setattr(search, "SparseVector", spied)
    return ask


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"embedded:{tmp_path / 'kb'}"


@pytest.fixture
def kb(url: str) -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as opened:
        add(opened, "a", "the annual leave", ACME)
        add(opened, "b", "the budget and leave", ZEN)
        add(opened, "c", "a merger and leave", ACME, "user:ann")
        wait_for_words(opened, ACME)
        yield opened


def test_the_engine_does_not_look_for_words_that_only_hidden_texts_have(
    kb: KnowledgeBase, asked: Asked
) -> None:
    assert asked(kb, "leave budget", ACME) == "leav"
    assert asked(kb, 'leave "budget"', ACME) == "leav"
    assert asked(kb, "leave merger", ANN) == "leav merger"
    assert asked(kb, "leave merger", BOB) == "leav"
    assert asked(kb, "leave merger budget", None) == "leav merger budget"
    kb.share("c", allowed=["user:bob"], scope=ACME)
    assert asked(kb, "leave merger", BOB) == "leav merger"
    assert asked(kb, "leave merger", ANN) == "leav"


def test_it_looks_for_all_words_once_others_have_written(
    kb: KnowledgeBase, url: str, asked: Asked
) -> None:
    (node,) = kb.nodes(scope=ZEN)
    with open_store(url) as beside:
        beside.add([node.model_copy(update={"id_": "d", "metadata": {"tenant_id": "acme"}})])
    assert asked(kb, "leave merger budget", BOB) == "leav merger budget"
    assert [hit.node_id for hit in kb.search("budget", "keyword", scope=BOB)] == ["d"]
    kb.close()
    with KnowledgeBase.open(url) as again:
        wait_for_words(again, ZEN)
        assert asked(again, "leave merger budget", ZEN) == "leav budget"
        assert asked(again, "leave merger budget", ACME) == "leav merger budget"


@pytest.mark.parametrize(("owner", "name"), [(store, "add_nodes"), (Journal, "commit")])
def test_it_looks_for_the_words_of_a_version_that_a_failed_write_leaves(
    owner: object, name: str, kb: KnowledgeBase, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patch:  # before or after the rows are written
        patch.setattr(owner, name, failing)
        with suppress(OSError):
            kb.share("a", allowed=["user:bob"], scope=ACME)
    assert "annual" in asked(kb, "annual budget", ANN)
    wait_for_words(kb, ACME)
    assert asked(kb, "annual budget", ANN) == "annual"


WORDS = ["alpha", "delta-force", "getUserName", "火灾", "résumé", "running", "pre-", "v2", "x_y"]


def change(kb: KnowledgeBase, scope: Scope, draw: random.Random) -> None:
    """Add, replace, delete or share a document."""
    name, kind = f"d{draw.randint(0, 5)}", draw.random()
    is_stored = name in {document.document_id for document in kb.documents(scope=scope)}
    if kind < 0.2 and is_stored:
        kb.delete(name, scope=scope)
    elif kind < 0.3 and is_stored:
        kb.share(name, allowed=["u:a"], scope=scope)
    else:
        text = draw.choice(["-\n", "\n", "。", " "]).join(draw.choices(WORDS, k=4))
        metadata = {"title": draw.choice(WORDS), "tags": [draw.choice(WORDS)]}
        document = Document(id_=name, text=text, metadata=metadata)
        document.excluded_embed_metadata_keys = ["tags"]
        allowed = draw.choice([None, ["u:a"], ["u:b"]])
        kb.add([document], scope=scope, allowed=allowed, show_progress=False)


def ranking(kb: KnowledgeBase, query: Query) -> Sequence[tuple[str, float | None]]:
    return [(hit.node_id, hit.score) for hit in kb.search(query, "hybrid", top_k=20)]


@pytest.mark.slow
@pytest.mark.parametrize("history", [False, True])
def test_no_answer_changes_by_the_words_that_are_left_out(
    history: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(5)
    schema = Schema(text={"title": 2, "text": 1, "tags": 1})
    scopes = [Scope(t, [k]) for t in ("t1", "t2") for k in ("k1", "k2")]
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=FakeEmbedding(), schema=schema, history=history
    ) as kb:
        for _ in range(60):
            change(kb, draw.choice(scopes), draw)
            scope = replace(draw.choice(scopes), principals=draw.choice([None, ["u:a"], ["u:b"]]))
            query = Query(" ".join(draw.choices(WORDS, k=3)), scope=scope, correct=False)
            wait_for_words(kb, scope)
            answer = ranking(kb, query)
            with monkeypatch.context() as patch:
                patch.setattr(Vocabulary, "absent", lambda *_: set())
                assert answer == ranking(kb, query), query
