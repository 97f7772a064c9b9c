"""Writes that are interrupted or refused, and what is left of them."""

from collections.abc import Callable, Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given
from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.knowledge_base.ledger.journal import WriteOutcome
from tests.knowledge_base.ledger.crashes import (
    ENDLESS,
    WORLDS,
    Fuse,
    FusedStore,
    Killed,
    ServerWorld,
    Version,
    World,
    apply,
    batches,
    prepared,
)
from tests.knowledge_base.ledger.memory_server import Server
from tests.patience import soon

pytestmark = pytest.mark.slow


@given(
    before=batches(),
    last=batches(),
    steps=st.integers(0, 60),
    kind=st.sampled_from(sorted(WORLDS)),
    error=st.sampled_from([Killed, lambda: StoreUnavailableError("no room")]),
)
def test_an_interrupted_or_refused_write_leaves_whole_documents_and_can_be_repeated(
    *,
    before: dict[str, Version | None],
    last: dict[str, Version | None],
    steps: int,
    kind: str,
    error: Callable[[], BaseException],
) -> None:
    world, fuse = WORLDS[kind](), Fuse(ENDLESS, error)
    writer = world.writer(fuse)
    apply(writer, before)
    old = world.stored()
    fuse.steps = steps
    try:
        apply(writer, last)
    except (Killed, StoreUnavailableError):
        fuse.steps = ENDLESS
        if error is Killed:  # another process goes on
            writer = world.writer(fuse)
        writer.settle()
        found = world.stored()
        assert all(found.get(ref) in (old.get(ref), last.get(ref)) for ref in {*old, *last})
        apply(writer, last)
    fuse.steps = ENDLESS
    found = world.stored()
    assert {ref: found.get(ref) for ref in last} == last


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


def test_a_writer_that_fails_late_leaves_what_another_has_written_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ServerWorld()
    writer = world.writer(Fuse(ENDLESS))
    document = prepared("a", {"a1": "new", "a2": "new"})
    put = FusedStore.add

    def overtaken(store: FusedStore, nodes: Sequence[BaseNode]) -> None:
        put(store, nodes)
        if store is world.store:
            monkeypatch.setattr(FusedStore, "add", put)
            assert world.writer(Fuse(ENDLESS)).write([document]) == [WriteOutcome.ADDED]
            raise ValueError("refused")

    monkeypatch.setattr(FusedStore, "add", overtaken)
    assert isinstance(writer.write([document])[0], ValueError)
    assert world.stored() == {"a": {"a1": "new", "a2": "new"}}


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


def test_a_living_writer_gives_its_claims_back_soon_after_an_outage() -> None:
    server = Server()  # its clock stands still, so that no claim becomes old
    failing, other = server.writer(), server.writer()

    def break_down() -> None:
        server.store.is_down = server.beside.is_down = True
        raise StoreUnavailableError("the server is down")

    server.store.before_add = break_down
    with pytest.raises(StoreUnavailableError):
        failing.write([prepared("a", {"a-0": "first"})])
    server.store.before_add = lambda: None
    server.store.is_down = server.beside.is_down = False
    with soon():
        assert other.write([prepared("a", {"a-0": "second"})]) == [WriteOutcome.ADDED]
    assert server.texts() == {"a-0": "second"}
