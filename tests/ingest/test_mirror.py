"""The tables of a ledger in memory, and the records that outlive them."""

from collections.abc import Iterator, Sequence
from threading import Timer
from time import monotonic

import pytest
from llama_index.core.schema import BaseNode, TextNode

from llama_retrieval_ext.errors import ModelMismatchError, StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.ingest.documents import DocumentKey, Prepared
from llama_retrieval_ext.ingest.journal import Journal
from llama_retrieval_ext.ingest.ledger import KnowledgeBaseConfig
from llama_retrieval_ext.ingest.records import SLICE, Companion
from llama_retrieval_ext.ingest.remote_ledger import Mirror, MirroredLedger

LONG = "x" * (3 * SLICE + 1)


class Records:
    """Nodes in a dict, what was asked of them, and the ledgers over them."""

    def __init__(self) -> None:
        self.nodes: dict[str, BaseNode] = {}
        self.asked: list[list[str] | None] = []
        self.ledgers: list[MirroredLedger] = []
        self.is_down = False

    def add(self, nodes: Sequence[BaseNode]) -> None:
        if self.is_down:
            raise StoreUnavailableError("the server is down")
        self.nodes |= {node.node_id: node for node in nodes}

    def get_nodes(self, node_ids: list[str] | None = None) -> list[BaseNode]:
        self.asked.append(node_ids)
        wanted = self.nodes if node_ids is None else node_ids
        return [self.nodes[node_id] for node_id in wanted if node_id in self.nodes]

    def delete_nodes(self, node_ids: list[str] | None = None) -> None:
        for node_id in node_ids or []:
            self.nodes.pop(node_id, None)


@pytest.fixture
def records() -> Iterator[Records]:
    made = Records()
    yield made
    for ledger in made.ledgers:
        ledger.close()


def ledger_on(records: Records, *, patience_s: float = 0.0) -> MirroredLedger:
    mirror = Mirror(Companion(records))
    records.ledgers.append(MirroredLedger(mirror, held=lambda: 0, patience_s=patience_s))
    return records.ledgers[-1]


def journal_of(ledger: MirroredLedger) -> Journal:
    return Journal(ledger.database, ledger.refresh_to_write)


def prepared(ref: str) -> Prepared:
    node = TextNode(id_=f"{ref}-1", text=ref, embedding=[1.0])
    return Prepared(DocumentKey("", "", ref), f"digest of {ref}", (node,))


def add(ledger: MirroredLedger, ref: str) -> None:
    journal = journal_of(ledger)
    assert journal.unfinished() == []
    journal.begin([prepared(ref)])
    journal.finish()


def test_a_record_of_any_length_is_read_as_it_was_written(records: Records) -> None:
    companion = Companion(records)
    companion.write({"long": LONG, "short": "x"})
    assert Companion(records).read("long") == companion.read("long") == LONG
    assert Companion(records).read_all() == {"long": LONG, "short": "x"}
    assert Companion(records).read("none") is None


def test_no_node_is_longer_than_milvus_takes(records: Records) -> None:
    Companion(records).write({"n" * 100: '"' * 10**6})
    assert max(len(node.model_dump_json()) for node in records.nodes.values()) < 65_000


def test_parts_go_when_a_record_is_replaced_or_deleted(records: Records) -> None:
    companion = Companion(records)
    companion.write({"a": LONG, "b": LONG})
    companion.write({"a": "x"})
    companion.delete(["b"])
    companion.tidy()
    assert list(records.nodes) == ["a"]


def test_what_somebody_else_left_lying_about_goes_too(records: Records) -> None:
    Companion(records).write({"a": LONG})
    del records.nodes["a"]
    companion = Companion(records)
    assert companion.read_all() == {}
    companion.tidy()
    assert records.nodes == {}


@pytest.mark.parametrize("reading", ["one", "all"])
def test_a_record_that_lost_a_part_is_an_error(records: Records, reading: str) -> None:
    companion = Companion(records)
    companion.write({"a": LONG})
    del records.nodes[next(name for name in records.nodes if name != "a")]
    with pytest.raises(StoreFormatError, match="lost a part of its record 'a'"):
        companion.read("a") if reading == "one" else companion.read_all()


def test_opening_reads_one_record_and_documents_only_when_they_are_needed(
    records: Records,
) -> None:
    ledger = ledger_on(records)
    ledger.record(KnowledgeBaseConfig("model", dimension=1))
    for ref in "abc":
        add(ledger, ref)
    records.asked.clear()
    again = ledger_on(records)
    assert again.manifest() == KnowledgeBaseConfig("model", dimension=1)
    assert again.at_rest() == 3
    assert records.asked == [["manifest"]]
    assert len(again.documents(None)) == 3
    assert records.asked[1:] == [["manifest"], None]
    assert len(again.documents(None)) == 3
    assert records.asked[3:] == [["manifest"]]  # nothing has changed


def test_another_s_documents_are_seen(records: Records) -> None:
    first, second = ledger_on(records), ledger_on(records)
    first.record(KnowledgeBaseConfig("model", dimension=1))
    assert second.documents(None) == []
    add(first, "a")
    assert [each.document_id for each in second.documents(None)] == ["a"]
    add(second, "b")
    assert [each.document_id for each in first.documents(None)] == ["a", "b"]


def test_how_it_is_set_up_is_written_before_there_is_anything_in_it(records: Records) -> None:
    ledger = ledger_on(records)
    assert not ledger.admit(KnowledgeBaseConfig("model"), "here")
    ledger.record(KnowledgeBaseConfig("model"))
    assert ledger_on(records).manifest() == KnowledgeBaseConfig("model")
    ledger.record_dimension(3)
    assert ledger_on(records).manifest() == KnowledgeBaseConfig("model", dimension=3)


def test_what_was_replaced_by_as_much_is_seen(records: Records) -> None:
    """Somebody removes a knowledge base, and makes another in as many steps."""
    ledger = ledger_on(records)
    ledger.record(KnowledgeBaseConfig("model", dimension=1))
    add(ledger, "a")
    assert len(ledger.documents(None)) == 1
    records.nodes.clear()
    another = ledger_on(records)
    another.record(KnowledgeBaseConfig("model", dimension=1))
    add(another, "b")
    assert [each.document_id for each in ledger.documents(None)] == ["b"]


def test_two_that_write_in_the_same_moment_do_not_take_each_other_s_word_for_their_own(
    records: Records,
) -> None:
    first, second = ledger_on(records), ledger_on(records)
    first.record(KnowledgeBaseConfig("model", dimension=1))
    for ledger in (first, second):
        assert journal_of(ledger).unfinished() == []
    before = dict(records.nodes)
    journal_of(first).begin([prepared("a")])
    after = dict(records.nodes)
    records.nodes = before  # the second looks before the first has written
    journal_of(second).begin([prepared("b")])
    records.nodes = after | records.nodes
    with pytest.raises(StoreUnavailableError, match="another process has written"):
        journal_of(first).finish()


def test_another_writer_is_waited_for_until_it_counts_as_dead(records: Records) -> None:
    first, second = ledger_on(records), ledger_on(records, patience_s=0.3)
    first.record(KnowledgeBaseConfig("model", dimension=1))
    journal = journal_of(first)
    journal.unfinished()
    journal.begin([prepared("a")])
    finishing = Timer(0.15, journal.finish)
    finishing.start()
    assert journal_of(second).unfinished() == []
    finishing.join()
    assert journal.unfinished() == []
    journal.begin([prepared("b")])
    assert journal.unfinished() != []  # its own it does not wait for
    begun = monotonic()
    assert [key.ref for key, _ in journal_of(second).unfinished()] == ["b"]
    assert monotonic() - begun >= 0.3


def test_who_died_before_the_manifest_was_written_has_left_nothing_in_motion(
    records: Records,
) -> None:
    ledger = ledger_on(records)
    ledger.record(KnowledgeBaseConfig("model", dimension=1))
    journal = journal_of(ledger)
    journal.unfinished()
    journal.begin([prepared("a")])
    manifest = records.nodes["manifest"]
    journal.finish()
    records.nodes["manifest"] = manifest
    again = ledger_on(records)
    assert again.at_rest() is None
    again.refresh()
    assert again.at_rest() == 1


def test_a_second_writer_is_noticed_and_nothing_of_the_first_is_lost(records: Records) -> None:
    ledger = ledger_on(records)
    ledger.record(KnowledgeBaseConfig("model", dimension=1))
    journal = journal_of(ledger)
    journal.unfinished()
    add(ledger_on(records), "b")
    with pytest.raises(StoreUnavailableError, match="another process has written"):
        journal.begin([prepared("a")])
    assert journal.unfinished() == []
    journal.begin([prepared("a")])
    journal.finish()
    assert [each.document_id for each in ledger_on(records).documents(None)] == ["a", "b"]


def test_what_cannot_be_written_has_not_happened(records: Records) -> None:
    ledger = ledger_on(records)
    ledger.record(KnowledgeBaseConfig("model", dimension=1))
    add(ledger, "a")
    records.is_down = True
    with pytest.raises(StoreUnavailableError, match="down"):
        add(ledger, "b")
    assert [each.document_id for each in ledger.documents(None)] == ["a"]
    records.is_down = False
    add(ledger, "b")
    assert [each.document_id for each in ledger.documents(None)] == ["a", "b"]


def test_one_that_is_set_up_while_it_is_opened_is_no_stranger_s(records: Records) -> None:
    slow = ledger_on(records)
    quick = ledger_on(records)
    quick.record(KnowledgeBaseConfig("model", dimension=1))
    add(quick, "a")
    assert slow.manifest() is None
    slow.refresh()
    assert slow.admit(KnowledgeBaseConfig("model"), "here")
    with pytest.raises(ModelMismatchError):
        slow.admit(KnowledgeBaseConfig("another"), "here")
