"""Sources that may be incomplete, and files that are recognised without being read."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time_ns

import pytest
from llama_index.core.schema import Document

from llama_retrieval_ext.errors import ConfigurationError, SyncRefusedError
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.ledger.records import SourceKey
from llama_retrieval_ext.knowledge_base.readers import files
from llama_retrieval_ext.knowledge_base.sync_sources import FileItem
from tests.cases import cases
from tests.knowledge_base.folders import allowed_by_name

NOBODY = 65534
DAY_NS = 86_400 * 10**9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three texts in two folders, a day old."""
    folder = tmp_path / "handbook"
    (folder / "rules").mkdir(parents=True)
    for name in ("a.md", "b.md", "rules/c.md"):
        write(folder / name, f"Text {name} about leave.")
    return folder


def write(file: Path, text: str, *, age_ns: int = DAY_NS) -> None:
    file.write_text(text)
    time_of_change = time_ns() - age_ns
    os.utime(file, ns=(time_of_change, time_of_change))


def replace_unseen(file: Path, text: str) -> None:
    """Write a text of the same length, and keep the time."""
    status = file.stat()
    assert len(text) == status.st_size
    file.write_text(text)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture
def without_ctime(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that does not tell the time of a change, as on Windows."""

    def see(item: FileItem, status: os.stat_result) -> None:
        item.size, item.mtime_ns = status.st_size, status.st_mtime_ns

    monkeypatch.setattr(FileItem, "_see", see)


@contextmanager
def as_nobody() -> Iterator[None]:
    """As a user for whom permissions count."""
    if sys.platform == "win32":
        pytest.skip("Windows has other permissions")
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if user == 0:
            os.seteuid(user)


def is_refused(kb: KnowledgeBase, sync: Callable[[], object], match: str) -> bool:
    """Whether a sync is refused, and has changed nothing."""
    before = kb.documents()
    with pytest.raises(SyncRefusedError, match=match):
        sync()
    return kb.documents() == before


def test_a_missing_folder_is_refused(kb: KnowledgeBase, folder: Path) -> None:
    kb.sync(folder)
    shutil.rmtree(folder)
    assert is_refused(kb, lambda: kb.sync(folder, max_deletions=1), "there is no")
    assert is_refused(kb, lambda: kb.sync(f"{folder}/*.md", max_deletions=1), "there is no")
    folder.mkdir()  # as after a disk was not mounted
    assert is_refused(kb, lambda: kb.sync(folder), "3 of 3 sources")


@pytest.mark.parametrize("pattern", ["", "**/*.md"], ids=["folder", "pattern"])
def test_a_folder_that_cannot_be_listed_is_refused(kb: KnowledgeBase, pattern: str) -> None:
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        (place / "rules").mkdir()
        write(place / "rules" / "a.md", "A rule.")
        write(place / "b.md", "A text.")
        kb.sync(place / pattern)
        (place / "rules").chmod(0o000)
        place.chmod(0o755)
        with as_nobody():
            sync = lambda: kb.sync(place / pattern, max_deletions=1)  # noqa: E731 - for the helper
            assert is_refused(kb, sync, "rules cannot be listed")
            report = kb.sync(place / pattern, exclude=["rules"], max_deletions=1, dry_run=True)
            assert report.deleted == (str(place / "rules" / "a.md"),)
    finally:
        (place / "rules").chmod(0o755)
        shutil.rmtree(place)


@pytest.mark.parametrize("listed", [".", "rules"])
def test_a_folder_that_is_renamed_while_files_are_listed_is_moved(
    kb: KnowledgeBase, folder: Path, listed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb.sync(folder)
    entries = files._entries

    def renaming(place: Path, reading: files.Reading) -> list[os.DirEntry[str]]:
        found = entries(place, reading)
        if place == folder / listed and (folder / "rules").exists():
            (folder / "rules").rename(folder / "laws")
        return found

    monkeypatch.setattr(files, "_entries", renaming)
    report = kb.sync(folder, max_deletions=1)
    assert (len(report.moved), report.deleted) == (1, ())


def on_listing(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *,
    before: Callable[[], object] = int,
    after: Callable[[], object] = int,
) -> None:
    """Do something each time before and after a folder is listed."""
    entries = files._entries

    def listed(place: Path, reading: files.Reading) -> list[os.DirEntry[str]]:
        if place == folder:
            before()
        found = entries(place, reading)
        if place == folder:
            after()
        return found

    monkeypatch.setattr(files, "_entries", listed)


@pytest.fixture
def moving(kb: KnowledgeBase, folder: Path) -> tuple[Path, Path]:
    """A synced file, and where it is moved to: a folder listed earlier."""
    (folder / "new").mkdir()
    kb.sync(folder)
    return folder / "rules" / "c.md", folder / "new" / "c.md"


def rename(one: Path, other: Path) -> None:
    if one.exists():
        one.rename(other)


def test_a_file_that_moves_into_a_folder_that_is_listed_already_is_not_deleted(
    kb: KnowledgeBase, moving: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_listing(monkeypatch, moving[1].parent, after=lambda: rename(*moving))
    report = kb.sync(moving[0].parents[1], max_deletions=1)
    assert (report.moved, report.deleted) == ({str(moving[0]): str(moving[1])}, ())


def test_a_restricted_file_that_no_listing_sees_is_not_public_when_it_is_back(
    kb: KnowledgeBase, moving: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = moving[0].parents[1]
    kb.share(str(moving[0]), allowed=["group:hr"])
    with monkeypatch.context() as patch:
        on_listing(patch, folder, before=lambda: rename(*reversed(moving)))
        on_listing(patch, folder / "new", after=lambda: rename(*moving))
        assert kb.sync(folder, max_deletions=1).deleted == (str(moving[0]),)
    assert allowed_by_name(kb) == {}
    assert [*kb.sync(folder).failures] == [str(moving[1])]
    rename(*reversed(moving))
    assert kb.sync(folder).added == (str(moving[0]),)
    assert allowed_by_name(kb) == {"c.md": ("group:hr",)}


def test_a_folder_whose_files_are_renamed_all_the_time_is_refused(
    kb: KnowledgeBase, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb.sync(folder)
    (folder / "a.md").unlink()
    (folder / "0.txt").touch()

    def rename_again() -> None:
        (file,) = folder.glob("*.txt")
        file.rename(folder / f"{int(file.stem) + 1}.txt")

    on_listing(monkeypatch, folder, before=rename_again)
    assert is_refused(kb, lambda: kb.sync(folder, max_deletions=1), "keep being renamed")
    assert len(kb.sync(folder, max_deletions=1, exclude=["*.txt"]).deleted) == 1


def test_a_file_without_a_digest_is_left_out_since_it_may_have_moved(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    write(file, "A text.")
    found = FileItem(file, SourceKey("", "", str(file)), "")
    hidden = file.rename(tmp_path / "b.md")
    assert found.state.content == ""
    hidden.rename(file)
    assert found.read() == "it could not be read twice"


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text there")
def test_a_file_whose_name_is_not_utf_8_is_left_out(kb: KnowledgeBase, folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9.md")
    write(folder / name, "A text.")
    report = kb.sync(folder)
    assert (len(report.added), [*report.left_out]) == (3, [str(folder / name)])


def test_an_iterable_that_fails_half_way_is_refused(kb: KnowledgeBase) -> None:
    kb.sync([Document(id_=name, text=name) for name in "abc"], name="export")

    def broken() -> Iterator[Document]:
        yield Document(id_="a", text="changed")
        raise ConnectionError("the wiki is down")

    refused = "ConnectionError: the wiki is down"
    assert is_refused(kb, lambda: kb.sync(broken(), name="export", max_deletions=1), refused)
    assert kb.get("a")[0].get_content() == "a"


@cases(
    ("arguments", "match"),
    [
        ({"source": [Document(text="a")]}, "need name"),
        ({"source": [Document(text="a")], "name": "wiki", "include": ["*.md"]}, "for a folder"),
        ({"source": ["text"], "name": "wiki"}, "expected LlamaIndex documents"),
        ({"source": ""}, "is empty"),
        ({"source": ".", "encoding": "latin-one"}, "encoding"),
    ],
)
def test_wrong_argument_is_an_error(
    kb: KnowledgeBase, arguments: dict[str, object], match: str
) -> None:
    with pytest.raises(ConfigurationError, match=match):
        kb.sync(**arguments)  # type: ignore[arg-type]


@pytest.mark.usefixtures("without_ctime")
def test_a_file_of_the_same_size_and_time_is_read_only_with_checksum(
    kb: KnowledgeBase, folder: Path
) -> None:
    kb.sync(folder)
    replace_unseen(folder / "a.md", "Text a.md about lunch.")
    assert len(kb.sync(folder).unchanged) == 3
    report = kb.sync(folder, checksum=True)
    assert report.changed == (str(folder / "a.md"),)
    assert kb.search("lunch", "keyword")[0].text == "Text a.md about lunch."


@pytest.mark.skipif(sys.platform == "win32", reason="a rename leaves no trace there")
def test_a_file_in_the_place_of_another_of_the_same_size_and_time_is_seen(
    kb: KnowledgeBase, folder: Path
) -> None:
    first, second = folder / "a.md", folder / "b.md"
    for file in (first, second):
        os.utime(file, ns=(DAY_NS, DAY_NS))
    kb.sync(folder)
    first.rename(folder / "x")
    second.rename(first)
    (folder / "x").rename(second)
    report = kb.sync(folder)
    assert sorted([*report.changed, *report.moved.values()]) == [str(first), str(second)]
    assert report.unchanged == (str(folder / "rules/c.md"),)


@pytest.mark.usefixtures("without_ctime")
def test_a_touched_file_is_read_once(kb: KnowledgeBase, folder: Path) -> None:
    kb.sync(folder)
    write(folder / "a.md", (folder / "a.md").read_text(), age_ns=2 * DAY_NS)
    assert len(kb.sync(folder).unchanged) == 3
    replace_unseen(folder / "a.md", "Text a.md about lunch.")
    assert len(kb.sync(folder).unchanged) == 3


@pytest.mark.usefixtures("without_ctime")
def test_a_later_edit_within_the_same_tick_of_the_clock_is_seen(
    kb: KnowledgeBase, folder: Path
) -> None:
    # A file system that counts in seconds, and a file that is edited right after the sync.
    second_ns = time_ns() // 10**9 * 10**9
    os.utime(folder / "a.md", ns=(second_ns, second_ns))
    kb.sync(folder)
    replace_unseen(folder / "a.md", "Text a.md about lunch.")
    assert kb.sync(folder).changed == (str(folder / "a.md"),)


def test_a_file_that_changes_while_it_is_read_has_no_known_state(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    write(file, "Before.")
    found = FileItem(file, SourceKey("", "", str(file)), "")
    assert found.state.content
    file.write_text("After.")
    assert found.read()
    assert (found.state.mtime_ns, found.state.content) == (-1, "")


def test_a_pattern_and_selected_files(kb: KnowledgeBase, folder: Path) -> None:
    assert len(kb.sync(f"{folder}/*.md").added) == 2
    assert len(kb.sync(folder, name="all").added) == 1
    report = kb.sync(folder, name="all", exclude=["rules"], max_deletions=0.5)
    assert report.deleted == (str(folder / "rules" / "c.md"),)


def test_documents_are_pruned_by_source_and_moved_by_text(kb: KnowledgeBase) -> None:
    def page(file: str, label: str, text: str) -> Document:
        metadata = {"file_path": file, "page_label": label}
        return Document(
            id_=f"{file}_{label}",
            text=text,
            metadata=metadata,
            excluded_embed_metadata_keys=["file_path", "page_label"],
        )

    first = [page("a.pdf", "1", "One."), page("a.pdf", "2", "Two."), page("b.pdf", "1", "Three.")]
    assert kb.sync(first, name="export").added == ("a.pdf", "b.pdf")
    second = [page("c.pdf", "1", "One."), page("c.pdf", "2", "Two."), page("b.pdf", "1", "Three.")]
    kb.embed_model.calls.clear()  # type: ignore[attr-defined]
    report = kb.sync(second, name="export")
    assert (report.moved, report.unchanged) == ({"a.pdf": "c.pdf"}, ("b.pdf",))
    assert kb.embed_model.calls == []  # type: ignore[attr-defined]
    assert [document.document_id for document in kb.documents()] == [
        "b.pdf_1",
        "c.pdf_1",
        "c.pdf_2",
    ]


def test_a_document_that_keeps_its_id_in_another_file_is_not_deleted(kb: KnowledgeBase) -> None:
    kb.sync([Document(id_="d", text="Text.", metadata={"file_path": "a.md"})], name="export")
    report = kb.sync(
        [Document(id_="d", text="Text.", metadata={"file_path": "b.md"})], name="export"
    )
    assert report.moved == {"a.md": "b.md"}
    assert [document.source for document in kb.documents()] == ["b.md"]
