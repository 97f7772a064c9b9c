"""The ledger on a server: what several writers see of each other."""

from collections.abc import Callable, Sequence
from threading import RLock

import pytest
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.errors import (
    ConfigurationError,
    ModelMismatchError,
    StoreClosedError,
    StoreUnavailableError,
)
from llama_retrieval_ext.filters import matches, parse_filters
from llama_retrieval_ext.knowledge_base.ledger.journal import Claim, WriteOutcome
from llama_retrieval_ext.knowledge_base.ledger.ledger import KnowledgeBaseConfig
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, Prepared
from llama_retrieval_ext.knowledge_base.ledger.remote_journal import RemoteJournal
from llama_retrieval_ext.knowledge_base.ledger.remote_ledger import RemoteLedger
from llama_retrieval_ext.knowledge_base.write import Writer
from llama_retrieval_ext.stores.engine.records import IntentRecords, Record

CONFIG = KnowledgeBaseConfig("model", tokenizer="t", dimension=1)
PATIENCE_S = 30.0


class Nodes:
    """Nodes in a dict, and what was read of it."""

    def __init__(self) -> None:
        self.nodes: dict[str, BaseNode] = {}
        self.reads: list[list[str] | MetadataFilters | None] = []
        self.is_down = False
        self.before_add: Callable[[], object] = lambda: None

    def check(self) -> None:
        """It is never looked at before."""

    def add(self, nodes: Sequence[BaseNode]) -> None:
        if self.is_down:
            raise StoreUnavailableError("the server is down")
        self.before_add()
        self.nodes |= {node.node_id: node for node in nodes}

    def upsert(self, documents: Sequence[Prepared]) -> None:
        self.add([node for document in documents for node in document.nodes])

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        self.reads.append(filters if node_ids is None else node_ids)
        condition = None if filters is None else parse_filters(filters)
        ids = self.nodes if node_ids is None else node_ids
        found = [self.nodes[id_] for id_ in ids if id_ in self.nodes]
        return [node for node in found if matches(condition, node.metadata)]

    def delete_nodes(self, node_ids: Sequence[str] | None = None) -> None:
        for node_id in node_ids or []:
            self.nodes.pop(node_id, None)

    delete = delete_nodes

    def count(self, filters: MetadataFilters | None = None) -> int:
        return len(self.get_nodes(filters=filters))

    def flush(self) -> None:
        pass


class Server:
    """A store, the records beside it, and a clock that stands still."""

    def __init__(self) -> None:
        self.store = Nodes()
        self.beside = Nodes()
        self.now_s = 1e9
        self.ledger().update_config(lambda _: CONFIG)

    def ledger(self) -> RemoteLedger:
        def clock() -> float:
            return self.now_s

        records = IntentRecords(self.beside, is_shared=True, clock=clock, patience_s=PATIENCE_S)  # type: ignore[arg-type]  # the methods that records need
        return RemoteLedger(
            records, count_stored=self.store.count, clock=clock, patience_s=PATIENCE_S
        )

    def journal(self) -> RemoteJournal:
        return RemoteJournal(self.ledger(), lambda ids: self.store.get_nodes(list(ids)))

    def writer(self) -> Writer:
        return Writer([self.store], self.journal(), lock=RLock())

    def texts(self) -> dict[str, str]:
        return {id_: node.get_content() for id_, node in self.store.nodes.items()}


@pytest.fixture
def server() -> Server:
    return Server()


def prepared(ref: str, text: str = "text", *, n_nodes: int = 1) -> Prepared:
    nodes = [TextNode(id_=f"{ref}-{n}", text=text, embedding=[1.0]) for n in range(n_nodes)]
    for node in nodes:
        node.relationships = {"1": {"node_id": ref}}  # type: ignore[dict-item]  # pydantic's
    nodes = [TextNode.model_validate(node.model_dump()) for node in nodes]
    return Prepared(DocumentKey("", "", ref), f"{ref}: {text} {n_nodes}", tuple(nodes))


def refs(ledger: RemoteLedger) -> list[str]:
    return [each.document_id for each in ledger.documents(None)]


def test_opening_and_writing_read_no_other_documents(server: Server) -> None:
    server.writer().write([prepared(ref) for ref in "abc"])
    records = [name for name in server.beside.nodes if name.startswith("document:")]
    server.beside.reads.clear()
    ledger = server.ledger()
    assert ledger.admit(CONFIG, "here")
    assert ledger.n_nodes_at_rest() == 3
    server.writer().write([prepared("d")])
    assert len(records) == 3
    found = [each for each in server.beside.reads if isinstance(each, list)]
    assert not {name for each in found for name in each}.intersection(records)


def test_writers_of_different_documents_do_not_wait_for_each_other(server: Server) -> None:
    first, second = server.journal(), server.journal()
    (one,) = first.begin([prepared("a")])
    (other,) = second.begin([prepared("b")])
    assert isinstance(one, Claim)
    assert isinstance(other, Claim)
    assert second.finish([other]) == [other]
    assert first.finish([one]) == [one]
    assert refs(server.ledger()) == ["a", "b"]


def test_a_claimed_document_is_free_when_its_writer_is_done(server: Server) -> None:
    first, second = server.journal(), server.journal()
    claims = [each for each in first.begin([prepared("a")]) if isinstance(each, Claim)]
    assert second.begin([prepared("a")]) == second.begin_deleting([claims[0].key]) == [None]
    assert second.unfinished() == []  # a living writer's
    first.finish(claims)
    assert second.begin([prepared("a")]) == [WriteOutcome.UNCHANGED]


@pytest.mark.parametrize("state", ["adding", "updating", "deleting"])
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
    expected = {f"a-{n}": "new" for n in range(150)} if state == "updating" else {}
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
    assert [each.n_nodes for each in server.ledger().documents(None)] == [2]


def test_a_failed_write_leaves_no_document(server: Server) -> None:
    writer = server.writer()
    writer.write([prepared("a")])
    server.beside.is_down = True
    with pytest.raises(StoreUnavailableError, match="down"):
        writer.write([prepared("b")])
    server.beside.is_down = False
    assert refs(server.ledger()) == ["a"]
    assert writer.write([prepared("b")]) == [WriteOutcome.ADDED]


def test_a_node_id_of_another_document_is_refused_and_one_of_none_is_reused(server: Server) -> None:
    writer = server.writer()
    writer.write([prepared("a")])
    stolen = Prepared(DocumentKey("", "", "b"), "b", prepared("a").nodes)
    twice = Prepared(DocumentKey("", "", "c"), "c", prepared("d").nodes)
    outcomes = writer.write([stolen, prepared("d"), twice])
    assert [type(each).__name__ for each in outcomes] == [
        "DuplicateNodeError",
        "WriteOutcome",
        "DuplicateNodeError",
    ]
    server.store.add(prepared("left over").nodes)
    again = Prepared(DocumentKey("", "", "e"), "e", prepared("left over").nodes)
    assert writer.write([again]) == [WriteOutcome.ADDED]


def test_concurrent_writers_of_the_configuration_agree(server: Server) -> None:
    del server.beside.nodes["config"]
    first, second = server.ledger(), server.ledger()
    for ledger, tokenizer in ((first, "t"), (second, "u")):
        assert not ledger.admit(KnowledgeBaseConfig("model", tokenizer=tokenizer), "here")
    for ledger in (first, second):
        ledger.update_config(lambda config: config or KnowledgeBaseConfig("model", tokenizer="t"))
    first.record_dimension(3)
    with pytest.raises(ConfigurationError, match="tokenizer"):
        second.record_dimension(3)
    with pytest.raises(ModelMismatchError):
        first.record_dimension(4)
    assert server.ledger().dimension() == 3


def test_writing_to_a_removed_knowledge_base_fails(server: Server) -> None:
    journal = server.journal()
    del server.beside.nodes["config"]
    with pytest.raises(StoreClosedError, match="removed since"):
        journal.begin([prepared("a")])
    assert server.beside.nodes == {}


def test_a_wrong_number_of_nodes_is_corrected(server: Server) -> None:
    server.writer().write([prepared("a", n_nodes=3)])
    del server.beside.nodes["totals"]
    assert server.ledger().n_nodes_at_rest() == 0
    assert server.ledger().n_nodes_at_rest(exact=True) == 3
    assert server.ledger().n_nodes_at_rest() == 3


def test_no_record_is_longer_than_milvus_takes(server: Server) -> None:
    nodes = [TextNode(id_=f'"{n}' * 40, text='"' * 100, embedding=[1.0]) for n in range(500)]
    key = DocumentKey("", "", "a" * 500)
    writer = server.writer()
    writer.write([Prepared(key, "1", tuple(nodes))])
    server.journal().begin([Prepared(key, "2", tuple(nodes[1:]))])
    assert len(server.beside.nodes) > 4
    longest = max(len(node.model_dump_json()) for node in server.beside.nodes.values())
    assert longest < 65_000
    assert server.ledger().node_ids([key]) == {key: sorted(node.node_id for node in nodes)}


def test_at_most_one_of_two_concurrent_replacements_of_a_record_succeeds(server: Server) -> None:
    nodes = Nodes()
    stores = [
        IntentRecords(nodes, is_shared=True, clock=lambda: server.now_s, patience_s=PATIENCE_S)  # type: ignore[arg-type]  # as above
        for _ in range(2)
    ]
    written: list[dict[str, str]] = []

    def other() -> None:  # it comes between the first one's look and its write
        nodes.before_add = lambda: None
        written.append(stores[1].replace([Record("a", "of the other")]))

    def after_the_intent() -> None:
        nodes.before_add = other

    nodes.before_add = after_the_intent
    written.append(stores[0].replace([Record("a", "of the first")]))
    assert len([each for each in written if each]) == 1
    assert list(nodes.nodes) == ["a"]
    assert stores[1].replace([Record("a", "x")]) == {}  # it is there
    (stored,) = stores[0].get(["a"]).values()
    assert stores[1].replace([], remove=[stored]) == {"a": ""}
