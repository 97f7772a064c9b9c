"""A process that dies between any two steps of a write, and what must be left of its documents."""

import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from threading import RLock
from time import time

import hypothesis.strategies as st
from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.knowledge_base.ledger.config import KnowledgeBaseConfig
from llama_retrieval_ext.knowledge_base.ledger.journal import Journal
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    Prepared,
    SpooledDocument,
)
from llama_retrieval_ext.knowledge_base.ledger.sqlite_records import SqliteRecords
from llama_retrieval_ext.knowledge_base.write import Writer
from llama_retrieval_ext.stores.engine.records import IntentRecords
from tests.knowledge_base.ledger.memory_server import Nodes

ENDLESS = 10**9


class Killed(BaseException):
    """The process ends here."""


class Fuse:
    """Lets so many steps pass, and none after."""

    def __init__(self, steps: int, error: Callable[[], BaseException] = Killed) -> None:
        self.steps = steps
        self.error = error

    def step(self) -> None:
        if self.steps <= 0:
            raise self.error()
        self.steps -= 1


class FusedStore(Nodes):
    """Nodes in a dict; each node written or deleted, and each look at them, is a step."""

    def __init__(self, *, waits_for_flush: bool = False) -> None:
        super().__init__()
        self.fuse = Fuse(ENDLESS)
        self._on_disk: dict[str, BaseNode] | None = {} if waits_for_flush else None

    def add(self, nodes: Sequence[BaseNode]) -> None:
        for node in nodes:
            self.fuse.step()
            if node.get_content() == "poison":
                raise ValueError("poison")
            self.nodes[node.node_id] = node

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        self.fuse.step()
        return super().get_nodes(node_ids, filters)

    def delete_nodes(self, node_ids: Sequence[str] | None = None) -> None:
        for node_id in node_ids or []:
            self.fuse.step()
            self.nodes.pop(node_id, None)

    def flush(self) -> None:
        if self._on_disk is not None:
            self.fuse.step()
            self._on_disk = dict(self.nodes)

    def lose_power(self) -> None:
        self.nodes = dict(self._on_disk or {})


class FusedRecords(SqliteRecords):
    """Records in memory that outlive the process; each transaction is a step."""

    def __init__(self) -> None:
        super().__init__(None)
        self.fuse = Fuse(ENDLESS)

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        self.fuse.step()
        with super().transaction() as connection:
            yield connection


class World:
    """A store, a ledger, and a graph beside them, that outlive the process that writes them."""

    def __init__(self) -> None:
        self.store = FusedStore(waits_for_flush=True)
        self.graph = FusedStore()  # what it has taken is on disk
        self.records: FusedRecords | FusedStore = self.make_records()
        config = KnowledgeBaseConfig("model", dimension=1)
        self.ledger(Fuse(ENDLESS)).update_config(lambda _: config)

    def make_records(self) -> FusedRecords | FusedStore:
        return FusedRecords()

    def ledger(self, fuse: Fuse) -> Ledger:
        self.records.fuse = fuse
        assert isinstance(self.records, FusedRecords)
        return Ledger(self.records, count_stored=lambda: len(self.store.nodes))

    def journal(self, fuse: Fuse) -> Journal:
        return Journal(self.ledger(fuse), lambda ids: self.store.get_nodes(list(ids)))

    def writer(self, fuse: Fuse) -> Writer:
        self.store.fuse = self.graph.fuse = fuse
        return Writer([self.graph, self.store], self.journal(fuse), lock=RLock())

    def stored(self) -> dict[str, dict[str, str]]:
        """Texts of each document's nodes in the store, by what the ledger says is whose."""
        ledger = self.ledger(Fuse(ENDLESS))
        ids = ledger.node_ids(entry.key for entry in ledger.visible(None))
        texts = self.store.texts()
        stored = {key.ref: {id_: texts[id_] for id_ in nodes} for key, nodes in ids.items()}
        assert sum(map(len, stored.values())) == len(self.store.nodes)  # and there is no other
        assert self.graph.texts() == texts
        return stored

    def record_ids(self) -> set[str]:
        return {record.id for record in self.ledger(Fuse(ENDLESS)).records.find()}

    def leftovers(self) -> set[str]:
        """What belongs to no document."""
        stored = {f"document:{ref}" for ref in self.stored()}
        ids = self.record_ids()
        names = {name for name in ids if not name.startswith("document:")}
        assert len(ids) == len(stored) + len(names)
        return names - {"config", "totals"}


class ServerWorld(World):
    """A store and a ledger on a server: each node of the ledger that is touched is a step."""

    def make_records(self) -> FusedStore:
        return FusedStore()

    def ledger(self, fuse: Fuse) -> Ledger:
        # Nothing is left of what the process knew, and all others count as dead.
        self.records.fuse = fuse
        records = IntentRecords(self.records, is_shared=True, clock=time, patience_s=0.0)  # type: ignore[arg-type]  # the methods that records need
        return Ledger(records, count_stored=lambda: len(self.store.nodes))


WORLDS = {"file": World, "server": ServerWorld}


NODE_NAMES = ("1", "2", "3")


Version = dict[str, str]


def prepared(ref: str, version: Version) -> Prepared:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=ref)}
    nodes = tuple(
        TextNode(id_=id_, text=text, embedding=[1.0], relationships=source)
        for id_, text in version.items()
    )
    return Prepared(DocumentKey("", "", ref), repr(sorted(version.items())), nodes)


def spooled(ref: str, version: Version) -> SpooledDocument:
    """The same document as a long one, with one node in each part."""
    whole = prepared(ref, version)
    document = SpooledDocument(whole.key, whole.digest, None, BytesIO())
    for node in whole.nodes:
        document.append(replace(whole, nodes=(node,)))
    return document


def versions(ref: str) -> st.SearchStrategy[Version]:
    names = st.sampled_from([f"{ref}{name}" for name in NODE_NAMES])
    return st.dictionaries(names, st.sampled_from(["old", "new", "newer"]), min_size=1)


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Version | None]:
    """New versions of some documents; None for one to be deleted."""
    refs = draw(st.sets(st.sampled_from("abc"), min_size=1))
    return {ref: draw(st.none() | versions(ref)) for ref in sorted(refs)}


def apply(writer: Writer, batch: dict[str, Version | None], *, in_parts: bool = False) -> None:
    gone = [DocumentKey("", "", ref) for ref, version in batch.items() if version is None]
    if gone:
        writer.delete(gone)
    document = spooled if in_parts else prepared
    new = [document(ref, version) for ref, version in batch.items() if version is not None]
    assert not [each for each in writer.write(new) if isinstance(each, Exception)]


def check_after_crashes(
    before: list[dict[str, Version | None]],
    last: dict[str, Version | None],
    fuses: Sequence[Fuse],
    *,
    power_cut: bool,
    world: World,
    in_parts: bool = False,
) -> bool:
    """Whether the last batch went through, the fuses blowing one after the other meanwhile."""
    for batch in before:
        apply(world.writer(Fuse(ENDLESS)), batch)
    old = world.stored()
    finished = False
    for number, fuse in enumerate([*fuses, Fuse(ENDLESS)]):
        try:
            writer = world.writer(fuse)
            writer.settle()  # it may die again while it recovers
            if number == 0:
                apply(writer, last, in_parts=in_parts)
                finished = True
        except Killed:
            if power_cut:
                world.store.lose_power()
    found = world.stored()
    for ref in {*old, *last}:
        expected = last.get(ref) if ref in last else old.get(ref)
        allowed = [expected] if finished or ref not in last else [expected, old.get(ref)]
        assert found.get(ref) in allowed
    return finished
