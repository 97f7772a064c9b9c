"""A crash anywhere between two steps loses nothing that was there and leaves nothing half done."""

from contextlib import suppress

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.cases import cases
from tests.knowledge_base.ledger.crashes import (
    ENDLESS,
    WORLDS,
    Fuse,
    Killed,
    Version,
    apply,
    batches,
    check_after_crashes,
)

pytestmark = pytest.mark.slow


@given(
    before=st.lists(batches(), max_size=2),
    last=batches(),
    steps=st.integers(0, 60),
    steps_again=st.integers(0, 40),
    power_cut=st.booleans(),
    in_parts=st.booleans(),
    kind=st.sampled_from(sorted(WORLDS)),
)
def test_after_random_crashes_each_document_is_whole_in_its_old_or_new_version(
    *,
    before: list[dict[str, Version | None]],
    last: dict[str, Version | None],
    steps: int,
    steps_again: int,
    power_cut: bool,
    in_parts: bool,
    kind: str,
) -> None:
    fuses = [Fuse(steps), Fuse(steps_again)]
    check_after_crashes(
        before, last, fuses, power_cut=power_cut, world=WORLDS[kind](), in_parts=in_parts
    )


@cases(("kind", "power_cut"), [("file", False), ("file", True), ("server", False)])
@cases(
    "last",
    [
        {"kept": {"x1": "new"}, "half": {"h1": "new"}, "new": {"n1": "new"}},
        {"kept": None, "half": None},
    ],
)
def test_a_crash_at_each_step_leaves_whole_documents(
    last: dict[str, Version | None], power_cut: bool, kind: str
) -> None:
    before: list[dict[str, Version | None]] = [
        {"half": {"h0": "oldest"}},
        {"half": {"h0": "older", "h1": "older"}},
        {"kept": {"k1": "old", "k2": "old"}, "half": {"h1": "old", "h2": "old"}},
    ]
    steps, finished = 0, False
    while not finished:
        for steps_again in (0, 5, 15):
            fuses = [Fuse(steps), Fuse(steps_again)]
            finished = check_after_crashes(
                before, last, fuses, power_cut=power_cut, world=WORLDS[kind]()
            )
        steps += 1
    assert steps > 4


@cases("kind", ["file", "server"])
@cases("old", [{}, {"a1": "old", "a2": "old"}])
def test_a_crash_at_each_step_leaves_a_document_in_parts_whole(old: Version, kind: str) -> None:
    new = {"a2": "new", "a3": "new", "a4": "new"}
    steps, finished = 0, False
    while not finished:
        for steps_again in (0, 4, 11):
            fuses = [Fuse(steps), Fuse(steps_again)]
            before: list[dict[str, Version | None]] = [{"a": old}] if old else []
            world = WORLDS[kind]()
            finished = check_after_crashes(
                before, {"a": new}, fuses, power_cut=False, world=world, in_parts=True
            )
            apply(world.writer(Fuse(ENDLESS)), {"b": {"b1": "new"}})
            assert world.leftovers() == set(), steps
        steps += 1
    assert steps > 6


@cases("kind", ["file", "server"])
def test_the_next_write_deletes_records_left_by_a_crash(kind: str) -> None:
    for steps in range(40):
        world = WORLDS[kind]()
        apply(world.writer(Fuse(ENDLESS)), {"a": {"a1": "old", "a2": "old"}})
        with suppress(Killed):
            apply(world.writer(Fuse(steps)), {"a": {"a1": "new", "a3": "new"}})
        apply(world.writer(Fuse(ENDLESS)), {"b": {"b1": "new"}})
        assert world.leftovers() == set(), steps
