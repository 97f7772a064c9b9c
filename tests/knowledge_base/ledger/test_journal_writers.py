"""The journal on a server: what several writers see of each other."""

from collections.abc import Sequence
from io import BytesIO

import pytest
from llama_index.core.schema import BaseNode, TextNode

from llama_retrieval_ext.errors import StoreClosedError
from llama_retrieval_ext.knowledge_base.ledger.journal import Claim, WriteOutcome
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    Prepared,
    SpooledDocument,
)
from tests.cases import cases
from tests.knowledge_base.ledger.memory_server import PATIENCE_S, Server, plain, prepared


def test_writers_of_different_documents_do_not_wait_for_each_other(server: Server) -> None:
    first, second = server.journal(), server.journal()
    (one,) = first.begin([prepared("a")])
    (other,) = second.begin([prepared("b")])
    assert isinstance(one, Claim)
    assert isinstance(other, Claim)
    assert second.commit([other]) == [other]
    assert first.commit([one]) == [one]
    assert [entry.key.ref for entry in server.ledger().visible(None)] == ["a", "b"]


def test_a_claimed_document_is_free_when_its_writer_is_done(server: Server) -> None:
    first, second = server.journal(), server.journal()
    claims = [each for each in first.begin([prepared("a")]) if isinstance(each, Claim)]
    assert second.begin([prepared("a")]) == second.begin_deleting([claims[0].key]) == [None]
    assert second.unfinished() == []  # a living writer's
    first.commit(claims)
    assert second.begin([prepared("a")]) == [WriteOutcome.UNCHANGED]


@cases("state", ["adding", "updating", "deleting"])
def test_changes_of_a_dead_writer_are_settled_when_its_claim_is_old(
    server: Server, state: str
) -> None:
    if state != "adding":
        server.writer().write([prepared("a", "old", n_nodes=200)])
    if state == "deleting":
        server.journal().begin_deleting([prepared("a").key])
    else:
        server.journal().begin([prepared("a", "new", n_nodes=150)])
    before = server.texts()
    server.now_s += PATIENCE_S - 1
    server.writer().settle()
    assert server.texts() == before
    server.now_s += 2
    server.writer().settle()
    expected = {f"a-{n}": "old" for n in range(200)} if state == "updating" else {}
    assert server.texts() == expected
    assert set(server.beside.nodes) - {"config", "totals"} == {
        id_ for id_ in server.beside.nodes if id_.startswith(("document:", "part:"))
    }
    assert server.ledger().n_nodes_at_rest() == len(expected)


def test_a_slow_writer_that_lost_its_claim_writes_its_document_again(server: Server) -> None:
    slow = server.writer()

    def overtaken() -> None:
        server.store.before_add = lambda: None
        server.now_s += PATIENCE_S + 1
        server.writer().write([prepared("a", "of another", n_nodes=3)])

    server.store.before_add = overtaken
    assert slow.write([prepared("a", "of the slow one", n_nodes=2)]) == [WriteOutcome.UPDATED]
    assert server.texts() == {f"a-{n}": "of the slow one" for n in range(2)}
    assert [entry.n_nodes for entry in server.ledger().visible(None)] == [2]


def test_a_writer_that_lost_its_claim_on_a_long_document_writes_no_more_of_its_parts(
    server: Server,
) -> None:
    written: list[str] = []
    add = server.store.add

    def adding(nodes: Sequence[BaseNode]) -> None:
        add(nodes)
        written.extend(plain(node).node_id for node in nodes)
        if len(written) == 1:
            server.now_s += PATIENCE_S + 1
            server.writer().write([prepared("a", "of another")])

    server.store.add = adding  # type: ignore[method-assign]
    assert server.writer().write([in_parts("a", 3)]) == [WriteOutcome.UPDATED]
    assert written == ["a-0", "a-0", *(f"a-{n}" for n in range(3))]


def in_parts(ref: str, count: int) -> SpooledDocument:
    """A long document, with one node in each part."""
    long = SpooledDocument(prepared(ref).key, "digest", None, BytesIO())
    for n in range(count):
        node = TextNode(id_=f"{ref}-{n}", text="long " * 10_000, embedding=[1.0])
        long.append(Prepared(long.key, "digest", (node,)))
    return long


def test_a_document_made_from_a_version_that_is_no_longer_stored_is_not_written(
    server: Server,
) -> None:
    writer = server.writer()
    writer.write([prepared("a", "old"), prepared("b", "old")])
    shared = [prepared(ref, "old").shared(["hr"], replaces=f"{ref}: old 1") for ref in "ab"]
    server.writer().write([prepared("a", "new")])
    assert writer.write(shared) == [WriteOutcome.OUTDATED, WriteOutcome.UPDATED]
    server.writer().delete([prepared("b").key])
    again = prepared("b", "old").shared(["it"], replaces=shared[1].digest)
    assert writer.write([again]) == [WriteOutcome.OUTDATED]
    assert server.texts() == {"a-0": "new"}


def test_a_node_id_of_another_document_is_refused_and_one_of_none_is_reused(server: Server) -> None:
    writer = server.writer()
    writer.write([prepared("a")])
    stolen = Prepared(DocumentKey("", "", "b"), "b", prepared("a").nodes)
    twice = Prepared(DocumentKey("", "", "c"), "c", prepared("d").nodes)
    outcomes = writer.write([stolen, prepared("d"), twice])
    assert [type(outcome).__name__ for outcome in outcomes] == [
        "DuplicateNodeError",
        "WriteOutcome",
        "DuplicateNodeError",
    ]
    server.store.add(prepared("left over").nodes)
    again = Prepared(DocumentKey("", "", "e"), "e", prepared("left over").nodes)
    assert writer.write([again]) == [WriteOutcome.ADDED]


def test_writing_to_a_removed_knowledge_base_fails(server: Server) -> None:
    journal = server.journal()
    del server.beside.nodes["config"]
    with pytest.raises(StoreClosedError, match="removed since"):
        journal.begin([prepared("a")])
    assert server.beside.nodes == {}
