"""A crash anywhere between two steps loses nothing that was there and leaves nothing half done."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import RLock
from time import time
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)
from pydantic import Field

from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.filters import matches, parse_filters
from llama_retrieval_ext.knowledge_base.ledger.journal import (
    Claim,
    Journal,
    LocalJournal,
    Reply,
    WriteOutcome,
)
from llama_retrieval_ext.knowledge_base.ledger.ledger import KnowledgeBaseConfig, Ledger
from llama_retrieval_ext.knowledge_base.ledger.local_ledger import Database, LocalLedger
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, Prepared
from llama_retrieval_ext.knowledge_base.ledger.remote_journal import RemoteJournal
from llama_retrieval_ext.knowledge_base.ledger.remote_ledger import RemoteLedger
from llama_retrieval_ext.knowledge_base.write import StoreTarget, Writer
from llama_retrieval_ext.stores.engine.records import IntentRecords

pytestmark = pytest.mark.slow


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


class FusedStore(BasePydanticVectorStore):
    """Nodes in a dict; each node written or deleted is a step."""

    stores_text: bool = True
    nodes: dict[str, BaseNode] = Field(default_factory=dict)
    on_disk: dict[str, BaseNode] = Field(default_factory=dict)
    fuse: Any = None

    @property
    def client(self) -> None:
        return None

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        for node in nodes:
            self.fuse.step()
            if node.get_content() == "poison":
                raise ValueError("poison")
            self.nodes[node.node_id] = node
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        raise NotImplementedError

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any
    ) -> None:
        for node_id in node_ids or []:
            self.fuse.step()
            self.nodes.pop(node_id, None)

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        self.fuse.step()
        wanted = self.nodes if node_ids is None else node_ids
        condition = None if filters is None else parse_filters(filters)
        found = [self.nodes[node_id] for node_id in wanted if node_id in self.nodes]
        return [node for node in found if matches(condition, node.metadata)]

    def count(self, filters: MetadataFilters | None = None) -> int:
        return len(self.get_nodes(filters=filters))

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        raise NotImplementedError

    def flush(self) -> None:
        self.fuse.step()
        self.on_disk = dict(self.nodes)

    def lose_power(self) -> None:
        self.nodes = dict(self.on_disk)

    def texts(self) -> dict[str, str]:
        return {node_id: node.get_content() for node_id, node in self.nodes.items()}


class FusedJournal(LocalJournal):
    """Each transaction of the journal is a step."""

    fuse: Fuse

    def begin(self, documents: Sequence[Prepared]) -> list[Reply]:
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
        self.store = FusedStore()
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
        targets = [StoreTarget(self.graph, lambda: None), StoreTarget(self.store, self.store.flush)]
        return Writer(targets, self.journal(fuse), lock=RLock())

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
ENDLESS = 10**9
NODE_NAMES = ("1", "2", "3")
Version = dict[str, str]


def prepared(ref: str, version: Version) -> Prepared:
    nodes = tuple(TextNode(id_=id_, text=text, embedding=[1.0]) for id_, text in version.items())
    return Prepared(DocumentKey("", "", ref), repr(sorted(version.items())), nodes)


def versions(ref: str) -> st.SearchStrategy[Version]:
    names = st.sampled_from([f"{ref}{name}" for name in NODE_NAMES])
    return st.dictionaries(names, st.sampled_from(["old", "new", "newer"]), min_size=1)


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Version | None]:
    """New versions of some documents; None for one to be deleted."""
    refs = draw(st.sets(st.sampled_from("abc"), min_size=1))
    return {ref: draw(st.none() | versions(ref)) for ref in sorted(refs)}


def apply(writer: Writer, batch: dict[str, Version | None]) -> None:
    gone = [DocumentKey("", "", ref) for ref, version in batch.items() if version is None]
    if gone:
        writer.delete(gone)
    new = [prepared(ref, version) for ref, version in batch.items() if version is not None]
    assert not [each for each in writer.write(new) if isinstance(each, Exception)]


def check_after_crashes(
    before: list[dict[str, Version | None]],
    last: dict[str, Version | None],
    fuses: Sequence[Fuse],
    *,
    power_cut: bool,
    world: World,
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
                apply(writer, last)
                finished = True
        except Killed:
            if power_cut:
                world.store.lose_power()
    found = world.stored()
    for ref in {*old, *last}:
        wanted = last.get(ref) if ref in last else old.get(ref)
        allowed = [wanted] if finished or ref not in last else [wanted, old.get(ref)]
        assert found.get(ref) in allowed
    return finished


@given(
    before=st.lists(batches(), max_size=2),
    last=batches(),
    steps=st.integers(0, 60),
    steps_again=st.integers(0, 40),
    power_cut=st.booleans(),
    kind=st.sampled_from(sorted(WORLDS)),
)
def test_after_a_crash_each_document_is_whole_and_old_or_new(
    before: list[dict[str, Version | None]],
    last: dict[str, Version | None],
    steps: int,
    steps_again: int,
    power_cut: bool,
    kind: str,
) -> None:
    fuses = [Fuse(steps), Fuse(steps_again)]
    check_after_crashes(before, last, fuses, power_cut=power_cut, world=WORLDS[kind]())


@pytest.mark.parametrize("kind", ["file", pytest.param("server", marks=pytest.mark.slow)])
@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize(
    "last",
    [
        {"new": {"n1": "new", "n2": "new"}},
        {"kept": {"k1": "new", "k2": "new"}},
        {"half": {"h2": "new", "h3": "new"}},
        {"kept": {"x1": "new"}, "half": {"h1": "new"}, "new": {"n1": "new"}},
        {"kept": None, "half": None},
    ],
    ids=["adding", "updating the same nodes", "updating some nodes", "all at once", "deleting"],
)
def test_a_crash_at_any_step_leaves_whole_documents(
    last: dict[str, Version | None], power_cut: bool, kind: str
) -> None:
    before: list[dict[str, Version | None]] = [
        {"half": {"h0": "oldest"}},
        {"half": {"h0": "older", "h1": "older"}},
        {"kept": {"k1": "old", "k2": "old"}, "half": {"h1": "old", "h2": "old"}},
    ]
    steps, finished = 0, False
    while not finished:
        for steps_again in range(16) if kind == "file" else (0, 3, 8, 15, 30):
            fuses = [Fuse(steps), Fuse(steps_again)]
            finished = check_after_crashes(
                before, last, fuses, power_cut=power_cut, world=WORLDS[kind]()
            )
        steps += 1
    assert steps > 4


interrupted = given(
    before=batches(), last=batches(), steps=st.integers(0, 60), kind=st.sampled_from(sorted(WORLDS))
)


@interrupted
def test_an_interrupted_write_can_be_repeated(
    before: dict[str, Version | None], last: dict[str, Version | None], steps: int, kind: str
) -> None:
    world = WORLDS[kind]()
    apply(world.writer(Fuse(ENDLESS)), before)
    try:
        apply(world.writer(Fuse(steps)), last)
    except Killed:
        apply(world.writer(Fuse(ENDLESS)), last)
    found = world.stored()
    assert {ref: found.get(ref) for ref in last} == last


@interrupted
def test_a_store_that_refuses_writes_keeps_its_documents(
    before: dict[str, Version | None], last: dict[str, Version | None], steps: int, kind: str
) -> None:
    world = WORLDS[kind]()
    apply(world.writer(Fuse(ENDLESS)), before)
    old = world.stored()
    try:
        apply(world.writer(Fuse(steps, lambda: StoreUnavailableError("no room"))), last)
    except StoreUnavailableError:
        world.writer(Fuse(ENDLESS)).settle()
        found = world.stored()
        assert all(found.get(ref) in (old.get(ref), last.get(ref)) for ref in {*old, *last})
    else:
        assert {ref: world.stored().get(ref) for ref in last} == last


@interrupted
def test_a_writer_continues_after_an_outage_of_the_store(
    before: dict[str, Version | None], last: dict[str, Version | None], steps: int, kind: str
) -> None:
    world = WORLDS[kind]()
    fuse = Fuse(ENDLESS, lambda: StoreUnavailableError("away"))
    writer = world.writer(fuse)
    apply(writer, before)
    fuse.steps = steps
    with suppress(StoreUnavailableError):
        apply(writer, last)
    fuse.steps = ENDLESS
    apply(writer, last)
    found = world.stored()
    assert {ref: found.get(ref) for ref in last} == last


def test_the_next_write_deletes_records_left_by_a_crash() -> None:
    for steps in range(40):
        world = ServerWorld()
        apply(world.writer(Fuse(ENDLESS)), {"a": {"a1": "old", "a2": "old"}})
        with suppress(Killed):
            apply(world.writer(Fuse(steps)), {"a": {"a1": "new", "a3": "new"}})
        apply(world.writer(Fuse(ENDLESS)), {"b": {"b1": "new"}})
        assert world.leftovers() == set(), steps


@pytest.mark.parametrize("steps", range(3))
def test_a_writer_whose_claim_was_taken_over_leaves_no_nodes(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ServerWorld()
    writer = world.writer(Fuse(ENDLESS))
    put = FusedStore.add

    def overtaken(store: FusedStore, nodes: Sequence[BaseNode]) -> None:
        if store is not world.store:
            put(store, nodes)
            return
        put(store, nodes[:steps])
        world.writer(Fuse(ENDLESS)).settle()
        put(store, nodes[steps:])

    monkeypatch.setattr(FusedStore, "add", overtaken)
    monkeypatch.setattr("llama_retrieval_ext.knowledge_base.write._PAUSE_S", (0.0, 0.0))
    with pytest.raises(StoreUnavailableError, match="another process"):
        writer.write([prepared("a", {"a1": "new", "a2": "new"})])
    assert world.stored() == {}


def test_a_document_refused_by_the_store_is_undone_and_the_others_stay() -> None:
    world = World()
    writer = world.writer(Fuse(ENDLESS))
    good, bad = prepared("a", {"a1": "new"}), prepared("b", {"b1": "new", "b2": "poison"})
    outcomes = writer.write([bad, good])
    assert isinstance(outcomes[0], ValueError)
    assert outcomes[1] is WriteOutcome.ADDED
    assert world.stored() == {"a": {"a1": "new"}}


def test_a_refused_update_keeps_the_document_and_is_tried_again() -> None:
    world = World()
    writer = world.writer(Fuse(ENDLESS))
    writer.write([prepared("a", {"a1": "old", "a2": "old"})])
    for _ in range(2):
        (outcome,) = writer.write([prepared("a", {"a3": "poison"})])
        assert isinstance(outcome, ValueError)
        assert world.stored() == {"a": {"a1": "old", "a2": "old"}}


def test_nodes_of_another_document_are_not_overwritten() -> None:
    world = World()
    writer = world.writer(Fuse(ENDLESS))
    writer.write([prepared("a", {"1": "old"})])
    (outcome,) = writer.write([prepared("b", {"1": "new"})])
    assert type(outcome).__name__ == "DuplicateNodeError"
    assert "document 'a'" in str(outcome)
    assert world.stored() == {"a": {"1": "old"}}
