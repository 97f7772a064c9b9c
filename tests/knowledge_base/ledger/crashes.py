"""A process that dies between any two steps of a write, and what must be left of its documents."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from threading import RLock
from time import time

import hypothesis.strategies as st
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.knowledge_base.ledger.journal import Claim, Journal, LocalJournal, Reply
from llama_retrieval_ext.knowledge_base.ledger.ledger import KnowledgeBaseConfig, Ledger
from llama_retrieval_ext.knowledge_base.ledger.local_ledger import Database, LocalLedger
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    Prepared,
    SpooledDocument,
    Writable,
)
from llama_retrieval_ext.knowledge_base.ledger.remote_journal import RemoteJournal
from llama_retrieval_ext.knowledge_base.ledger.remote_ledger import RemoteLedger
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

    delete = delete_nodes

    def flush(self) -> None:
        if self._on_disk is not None:
            self.fuse.step()
            self._on_disk = dict(self.nodes)

    def lose_power(self) -> None:
        self.nodes = dict(self._on_disk or {})


class FusedJournal(LocalJournal):
    """Each transaction of the journal is a step."""

    fuse: Fuse

    def begin(self, documents: Sequence[Writable]) -> list[Reply]:
        self.fuse.step()
        return super().begin(documents)

    def begin_deleting(self, keys: Sequence[DocumentKey]) -> list[Reply]:
        self.fuse.step()
        return super().begin_deleting(keys)

    def finish(self, claims: Sequence[Claim]) -> list[Claim]:
        self.fuse.step()
        return super().finish(claims)

    def undo(self, claim: Claim) -> None:
        self.fuse.step()
        super().undo(claim)


class World:
    """A store, a ledger, and a graph beside them, that outlive the process that writes them."""

    def __init__(self) -> None:
        self.store = FusedStore(waits_for_flush=True)
        self.graph = FusedStore()  # what it has taken is on disk
        self.file = Database(None)

    def ledger(self, fuse: Fuse) -> Ledger:
        return LocalLedger(self.file)

    def journal(self, fuse: Fuse) -> Journal:
        journal = FusedJournal(self.file)
        journal.fuse = fuse
        return journal

    def writer(self, fuse: Fuse) -> Writer:
        self.store.fuse = self.graph.fuse = fuse
        return Writer([self.graph, self.store], self.journal(fuse), lock=RLock())

    def stored(self) -> dict[str, dict[str, str]]:
        """Texts of each document's nodes in the store, by what the ledger says is whose."""
        ledger = self.ledger(Fuse(ENDLESS))
        ids = ledger.node_ids(each.key for each in ledger.visible(None))
        texts = self.store.texts()
        found = {key.ref: {id_: texts[id_] for id_ in own} for key, own in ids.items()}
        assert sum(map(len, found.values())) == len(self.store.nodes)  # and there is no other
        assert self.graph.texts() == texts
        return found


class ServerWorld(World):
    """A store and a ledger on a server: each node of the ledger that is touched is a step, too."""

    def __init__(self) -> None:
        super().__init__()
        self.records = FusedStore()
        config = KnowledgeBaseConfig("model", dimension=1)
        self.ledger(Fuse(ENDLESS)).update_config(lambda _: config)

    def ledger(self, fuse: Fuse) -> RemoteLedger:
        # Nothing is left of what the process knew, and all others count as dead.
        self.records.fuse = fuse
        records = IntentRecords(self.records, is_shared=True, clock=time, patience_s=0.0)  # type: ignore[arg-type]  # the methods that records need
        return RemoteLedger(records, count_stored=lambda: len(self.store.nodes))

    def journal(self, fuse: Fuse) -> Journal:
        return RemoteJournal(self.ledger(fuse), lambda ids: self.store.get_nodes(list(ids)))

    def leftovers(self) -> set[str]:
        """What belongs to no document."""
        stored = {f"document:{ref}" for ref in self.stored()}
        names = {name for name in self.records.nodes if not name.startswith("document:")}
        assert len(self.records.nodes) == len(stored) + len(names)
        return names - {"config", "totals"}


WORLDS = {"file": World, "server": ServerWorld}


NODE_NAMES = ("1", "2", "3")


Version = dict[str, str]


def prepared(ref: str, version: Version) -> Prepared:
    nodes = tuple(TextNode(id_=id_, text=text, embedding=[1.0]) for id_, text in version.items())
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
