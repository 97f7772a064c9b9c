"""The method `sync`: what it refuses, plans and leaves out, and its async twin."""

import shutil
from pathlib import Path

import pytest

from llama_retrieval_ext.errors import ConfigurationError, SyncRefusedError
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Scope
from tests.knowledge_base.folders import folder, is_equal, names

__all__ = ["folder"]


@pytest.mark.parametrize("share", [-0.1, 1.1, 20, "all", None])
def test_a_share_of_deletions_outside_of_zero_to_one_is_refused(
    kb: KnowledgeBase, folder: Path, share: object
) -> None:
    with pytest.raises(ConfigurationError, match=r"share between 0 and 1, got .* prune=False"):
        kb.sync(folder, max_deletions=share)  # type: ignore[arg-type]


def test_the_folder_of_the_knowledge_base_is_left_out(folder: Path, fast_disk: Path) -> None:
    place = fast_disk / "docs"
    shutil.copytree(folder, place)
    with KnowledgeBase.open(f"embedded:{place / 'kb'}", embed_model="local") as kb:
        assert len(kb.sync(place).added) == 9
        assert len(kb.sync(place).unchanged) == 9


async def test_the_async_twin_returns_the_same_report(kb: KnowledgeBase, folder: Path) -> None:
    planned = kb.sync(folder, dry_run=True)
    assert await kb.async_sync(folder, show_progress=False) == planned


def test_a_dry_run_reports_what_the_sync_does_and_writes_nothing(
    kb: KnowledgeBase, folder: Path
) -> None:
    (folder / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    (folder / "empty.txt").touch()
    assert kb.sync(folder, dry_run=True) == kb.sync(folder)
    (folder / "rules").rename(folder / "laws")
    (folder / "4.md").unlink()
    (folder / "5.md").write_text("Rule 5 is about lunch.")
    (folder / "9.md").write_text("Rule 9 is new.")
    (folder / "staff.csv").write_text("name\nAnn\n")
    before = kb.documents()
    planned = kb.sync(folder, dry_run=True)
    assert kb.documents() == before
    done = kb.sync(folder)
    assert planned == done
    assert names(done.added) == ["9.md"]
    assert names(done.changed) == ["5.md", "staff.csv"]
    assert names(done.deleted) == ["4.md"]
    assert [(old, new) for old, new in done.moved.items()] == [
        (str(folder / "rules" / f"{n}.md"), str(folder / "laws" / f"{n}.md")) for n in range(4)
    ]
    assert names(done.unchanged) == ["6.md", "7.md"]
    assert sorted(done.left_out.values()) == ["no text", "this kind of file is not supported: .png"]
    assert is_equal(kb, folder)
    assert str(done).startswith("1 added, 2 changed, 4 moved, 1 deleted, 2 unchanged, 2 left out; ")


def test_scopes_are_synced_apart(kb: KnowledgeBase, folder: Path) -> None:
    for tenant in ("acme", "globex"):
        assert len(kb.sync(folder, scope=Scope(tenant)).added) == 9
    (folder / "7.md").unlink()
    assert names(kb.sync(folder, scope=Scope("acme")).deleted) == ["7.md"]
    assert len(kb.sources(scope=Scope("acme"))) == 8
    assert len(kb.sources(scope=Scope("globex"))) == 9


def test_more_deletions_than_allowed_are_refused_and_nothing_is_changed(
    kb: KnowledgeBase, folder: Path
) -> None:
    kb.sync(folder)
    for number in (5, 6):
        (folder / f"{number}.md").unlink()
    (folder / "9.md").write_text("Rule 9 is new.")
    before = kb.documents()
    planned = kb.sync(folder, dry_run=True)
    assert (len(planned.deleted), [*planned.added, *planned.changed]) == (2, [str(folder / "9.md")])
    assert "2 of 9 sources" in planned.refusal
    assert "A real run would be refused: 2 of 9" in str(planned)
    with pytest.raises(SyncRefusedError, match=r"2 of 9 sources .* pass max_deletions=1"):
        kb.sync(folder)
    assert kb.documents() == before
    assert kb.sync(folder, prune=False).deleted == ()
    assert len(kb.sync(folder, max_deletions=0.3).deleted) == 2
