"""What a sync adds, moves, deletes and refuses, what it reports, and what it does not do again."""

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from llama_index.core.graph_stores.types import (
    KG_NODES_KEY,
    KG_RELATIONS_KEY,
    TRIPLET_SOURCE_KEY,
    EntityNode,
    Relation,
)
from llama_index.core.indices.property_graph import ImplicitPathExtractor
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode, Document, TransformComponent

from llama_retrieval_ext import KnowledgeBase, Scope, read_documents
from llama_retrieval_ext.errors import ConfigurationError, SyncRefusedError
from llama_retrieval_ext.knowledge_base import copy_knowledge_base, documents, splitting, sync
from llama_retrieval_ext.knowledge_base.adding import Addition
from llama_retrieval_ext.knowledge_base.documents import SourceDocument
from llama_retrieval_ext.knowledge_base.preparation import PreparedBatch
from tests.cases import cases
from tests.knowledge_base.conftest import PickyEmbedding
from tests.knowledge_base.engines import EMBEDDED
from tests.knowledge_base.folders import allowed_by_name, folder, is_equal, names
from tests.knowledge_base.graphs import LINKS, rows
from tests.knowledge_base.nodes import LONG
from tests.knowledge_base.sync_edits import differences

__all__ = ["folder"]

Open = Callable[..., KnowledgeBase]


def test_a_sync_adds_all_and_the_next_one_does_nothing(
    kb: KnowledgeBase, folder: Path, model: PickyEmbedding
) -> None:
    report = kb.sync(folder, show_progress=False)
    assert (len(report.added), report.n_nodes) == (9, 10)
    assert is_equal(kb, folder)
    calls = len(model.calls)
    again = kb.sync(folder, show_progress=False)
    assert (len(again.unchanged), again.added, again.n_nodes) == (9, (), 0)
    assert len(model.calls) == calls


@pytest.mark.slow
def test_a_moved_folder_is_not_embedded_again(
    kb: KnowledgeBase, folder: Path, model: PickyEmbedding
) -> None:
    kb.sync(folder)
    model.calls.clear()
    (folder / "rules").rename(folder / "laws")
    (folder / "staff.csv").rename(folder / "laws" / "staff.csv")
    assert len(kb.sync(folder).moved) == 5
    assert model.calls == []
    with KnowledgeBase.open("embedded::memory:", embed_model=model) as fresh:
        fresh.add(read_documents(folder), show_progress=False)
        assert differences(kb, fresh, ["leave rule", "Ann"]) == []


def script(kb: KnowledgeBase, folder: Path, commands: str) -> None:
    """Change a folder and a knowledge base of it; `share` shares a file with one user."""
    for command in commands.split("; "):
        name, path, other = [*command.split(maxsplit=2), "", ""][:3]
        file = folder / path
        match name:
            case "mv":
                file.rename(folder / other)
            case "cp":
                shutil.copy(file, folder / other)
            case "rm":
                file.unlink()
            case "put":
                file.write_text(other)
            case "share":
                kb.share(str(file), allowed=[f"user:{path}"])
            case "drop":
                kb.delete(str(file))
            case _:
                kb.sync(file, prune=name != "keep", max_deletions=1)


SAME, OTHER = "Rule 6 is about leave.", "Rule 6 is about lunch."
RESTRICTED = {  # what happens; the files that are restricted after it; those listed; those moved
    "moved": ("share 6.md; mv 6.md a.md", "6.md", "a.md", ""),
    "moved in two syncs": ("share 6.md; mv 6.md a.md; sync; mv a.md b.md", "6.md", "b.md", ""),
    "moved and edited": (f"share 6.md; mv 6.md a.md; sync; put a.md {OTHER}", "", "a.md", ""),
    "moved onto a restricted one": (
        "share 6.md; share 7.md; mv 6.md 7.md",
        "6.md 7.md",
        "7.md",
        "",
    ),
    "public, onto a restricted one": ("share 6.md; mv 7.md 6.md", "6.md", "", "6.md"),
    "exchanged": (
        "share 5.md; share 6.md; mv 5.md x; mv 6.md 5.md; mv 7.md 6.md; mv x 7.md",
        "5.md 6.md",
        "5.md 7.md",
        "",
    ),
    "name taken, moved again": (
        f"share 6.md; mv 6.md a.md; put 6.md {OTHER}; sync; mv a.md b.md; sync; mv b.md c.md",
        "6.md",
        "c.md",
        "",
    ),
    "table": ("share staff.csv; mv staff.csv a.csv", "staff.csv", "a.csv", ""),
    "copied": ("share 6.md; cp 6.md a.md", "6.md", "", ""),
    "had the same content before": ("cp 6.md a.md; sync; share 6.md; rm 6.md", "", "", ""),
    "of equal content": (
        "cp 6.md a.md; sync; share 6.md; mv 6.md b.md; mv a.md c.md",
        "6.md",
        "b.md c.md",
        "",
    ),
    "deleted and back": (f"share 6.md; rm 6.md; sync; sync; put 6.md {SAME}", "6.md", "", ""),
    "deleted, then elsewhere": (f"share 6.md; rm 6.md; sync; put a.md {SAME}", "", "a.md", ""),
    "deleted, another elsewhere": (f"share 6.md; rm 6.md; sync; put a.md {OTHER}", "", "", ""),
    "empty, then elsewhere": (f"share 6.md; put 6.md ; sync; put a.md {SAME}", "", "a.md", ""),
    "rows, empty for a while": (
        "share staff.csv_part_1; put staff.csv ; sync; put staff.csv name\nAnn\nEve",
        "staff.csv",
        "",
        "",
    ),
    "deleted here, then elsewhere": ("share 6.md; drop 6.md; mv 6.md a.md", "", "a.md", ""),
    "deleted by another sync and back": (
        "sync rules; share rules/1.md; mv rules/1.md x; sync rules; mv x rules/1.md",
        "rules/1.md",
        "",
        "",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("commands", "restricted", "listed", "moved"), RESTRICTED.values(), ids=RESTRICTED.keys()
)
def test_restricted_content_elsewhere_is_listed_until_somebody_is_named(
    kb: KnowledgeBase, folder: Path, commands: str, restricted: str, listed: str, moved: str
) -> None:
    def paths(found: Iterable[str]) -> list[str]:
        return sorted({str(Path(p.split("_part_")[0]).relative_to(folder)) for p in found})

    kb.sync(folder)
    script(kb, folder, commands)
    planned = kb.sync(folder, max_deletions=1, dry_run=True)
    for is_first in (True, False):
        report = kb.sync(folder, max_deletions=1)
        assert paths(report.failures) == paths(planned.failures) == listed.split()
        assert paths(report.moved.values()) == (moved.split() if is_first else [])
        named = [document for document in kb.documents() if document.allowed]
        assert paths(each.source for each in named) == restricted.split()
        assert all("user:" in each.allowed[0] for each in named)
    report = kb.sync(folder, max_deletions=1, allowed=["group:it"])
    assert report.failures == {}
    assert is_equal(kb, folder)
    assert {document.allowed for document in kb.documents()} == {("group:it",)}


def test_the_error_names_the_earlier_source_and_what_to_do(kb: KnowledgeBase, folder: Path) -> None:
    kb.sync(folder)
    script(kb, folder, f"share 6.md; mv 6.md a.md; put 6.md {OTHER}; sync; mv a.md b.md")
    (error,) = kb.sync(folder).failures.values()
    assert f"that of {folder / '6.md'}, which only some may see" in str(error)
    assert "pass allowed=[...] to sync, or name the principals under 'allowed'" in str(error)
    assert "kb.share after that" in str(error)


def test_documents_whose_file_moves_are_restricted_to_whom_their_metadata_name(
    kb: KnowledgeBase, model: PickyEmbedding
) -> None:
    def pages(folder: str, **metadata: object) -> list[Document]:
        metadata |= {"file_path": f"/{folder}/x"}
        return [
            Document(id_=f"/{folder}/x {n}", text=f"leave {n}", metadata=dict(metadata))
            for n in range(3)
        ]

    kb.sync(pages("old"), name="wiki")
    kb.share("/old/x 1", allowed=["user:1"])
    before = kb.documents()
    report = kb.sync(pages("new"), name="wiki", max_deletions=1)
    assert (len(report.failures), report.moved, kb.documents()) == (3, {}, before)
    report = kb.sync(pages("new", allowed=["group:hr"]), name="wiki", max_deletions=1)
    assert report.moved == {"/old/x": "/new/x"}
    assert {(document.source, document.allowed) for document in kb.documents()} == {
        ("/new/x", ("group:hr",))
    }


def test_whom_documents_name_follows_the_argument_without_embedding(
    kb: KnowledgeBase, folder: Path, model: PickyEmbedding
) -> None:
    kb.sync(folder)
    calls = len(model.calls)
    assert not kb.sync(folder, allowed=["group:hr"]).changed
    assert {document.allowed for document in kb.documents()} == {("group:hr",)}
    kb.sync(folder, allowed=lambda node: ["group:" + node.metadata["file_name"][0]])
    named = {document.allowed[0] for document in kb.documents()}
    assert named == {"group:s", *(f"group:{number}" for number in range(8))}
    assert len(model.calls) == calls


class Crane(TransformComponent):
    """Extracts a crane, which the document mentions and the passage after it moves."""

    def __call__(self, nodes: Sequence[BaseNode], **_: object) -> Sequence[BaseNode]:
        EXTRACTED.extend(node.node_id for node in nodes)
        for node in nodes:
            name = f"crane of {node.get_content()}"
            node.metadata[KG_NODES_KEY] = [
                EntityNode(name=name, label="MACHINE", properties=dict(node.metadata))
            ]
            source = {**node.metadata, TRIPLET_SOURCE_KEY: node.node_id}
            del source[KG_NODES_KEY]
            node.metadata[KG_RELATIONS_KEY] = [
                Relation(
                    label="lifts", source_id=str(node.ref_doc_id), target_id=name, properties=source
                ),
                Relation(
                    label="is", source_id=node.node_id, target_id=node.node_id, properties=source
                ),
            ]
        return nodes


EXTRACTED: list[str] = []


@pytest.mark.slow
@pytest.mark.parametrize("longest", [10**6, 3000])
def test_the_extracted_graph_of_a_moved_file_of_any_length_moves_with_it(
    folder: Path, model: PickyEmbedding, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "LONG", longest)
    monkeypatch.setattr(splitting, "GROUP", 2)
    (folder / "rules" / "long.txt").write_text(LONG)
    extractors = [Crane(), ImplicitPathExtractor()]
    options = {"embed_model": model, "graph": "graph::memory:", "kg_extractors": extractors}
    with (
        KnowledgeBase.open("embedded::memory:", **options) as kb,  # type: ignore[arg-type]
        KnowledgeBase.open("embedded::memory:", **options) as fresh,  # type: ignore[arg-type]
    ):
        kb.sync(folder).raise_for_failures()
        (folder / "rules").rename(folder / "laws")
        (folder / "7.md").unlink()
        (folder / "4.md").write_text("Rule 4 is another.")
        EXTRACTED.clear()
        kb.sync(folder)
        assert len(EXTRACTED) == 1  # of the file that has changed
        fresh.sync(folder)
        assert rows(kb.graph) == rows(fresh.graph)


def test_a_renamed_file_is_embedded_again_because_its_name_is_embedded(
    kb: KnowledgeBase, folder: Path, model: PickyEmbedding
) -> None:
    kb.sync(folder)
    model.calls.clear()
    (folder / "7.md").rename(folder / "seven.md")
    assert kb.sync(folder).moved == {str(folder / "7.md"): str(folder / "seven.md")}
    assert [call.split()[:2] for call in model.calls] == [["file_name:", "seven.md"]]


def test_changed_metadata_and_unchanged_passages_are_not_embedded_again(
    kb: KnowledgeBase, model: PickyEmbedding
) -> None:
    def document(topic: str, text: str = "Leave is 25 days.") -> Document:
        metadata = {"topic": topic}
        return Document(
            id_="leave", text=text, metadata=metadata, excluded_embed_metadata_keys=["topic"]
        )

    kb.sync([document("old")], name="wiki")
    model.calls.clear()
    report = kb.sync([document("new")], name="wiki")
    assert (report.changed, model.calls) == (("leave",), [])
    assert kb.get("leave")[0].metadata["topic"] == "new"


def test_only_what_came_under_the_name_is_deleted(kb: KnowledgeBase, folder: Path) -> None:
    kb.add([Document(id_="note", text="A note.")], show_progress=False)
    kb.sync([Document(id_="page", text="A page.")], name="wiki")
    kb.sync(folder)
    (folder / "7.md").unlink()
    assert names(kb.sync(folder).deleted) == ["7.md"]
    left = {document.document_id for document in kb.documents()}
    assert {"note", "page"} <= left
    assert kb.sync([], name="wiki", max_deletions=1).deleted == ("page",)


@pytest.mark.slow
def test_documents_deleted_or_replaced_otherwise_come_back(kb: KnowledgeBase, folder: Path) -> None:
    kb.sync(folder)
    kb.delete(str(folder / "7.md"))
    (document,) = read_documents(folder / "6.md")
    document.set_content("Something else.")
    kb.add([document], show_progress=False)
    report = kb.sync(folder)
    assert (names(report.added), names(report.changed)) == (["7.md"], ["6.md"])
    assert kb.get(str(folder / "6.md"))[0].get_content() == "Rule 6 is about leave."
    kb.clear()
    assert len(kb.sync(folder).added) == 9


def test_a_document_that_fails_keeps_its_old_version_and_is_tried_again(
    kb: KnowledgeBase, folder: Path
) -> None:
    kb.sync(folder)
    (folder / "7.md").write_text("unembeddable")
    (folder / "rules" / "0.md").rename(folder / "unembeddable.md")
    report = kb.sync(folder)
    assert names([*report.failures]) == ["7.md", "unembeddable.md"]
    assert (report.moved, report.deleted, report.changed) == ({}, (), ())
    assert kb.get(str(folder / "7.md"))[0].get_content() == "Rule 7 is about leave."
    assert kb.get(str(folder / "rules" / "0.md"))
    (folder / "unembeddable.md").rename(folder / "zero.md")
    (folder / "7.md").write_text("embeddable")
    assert (names(kb.sync(folder).changed), is_equal(kb, folder)) == (["7.md"], True)


def test_a_file_that_can_no_longer_be_read_keeps_its_documents(
    kb: KnowledgeBase, folder: Path
) -> None:
    kb.sync(folder)
    (folder / "7.md").write_bytes("Übung für Müller".encode("latin-1"))
    for _ in range(2):
        report = kb.sync(folder)
        assert names([*report.left_out]) == ["7.md"]
        assert len(report.unchanged) == 8
    assert kb.get(str(folder / "7.md"))


@pytest.mark.slow
@EMBEDDED
def test_other_transformations_cut_all_files_again(
    folder: Path, open_kb: Open, model: PickyEmbedding
) -> None:
    open_kb().sync(folder)
    cut = open_kb(transformations=[SentenceSplitter(chunk_size=64, chunk_overlap=0)])
    model.calls.clear()
    assert len(cut.sync(folder).changed) == 9
    assert model.calls == []  # the passages are the same
    assert len(cut.sync(folder).unchanged) == 9


@pytest.mark.slow
def test_a_copy_is_synced_further(folder: Path, open_kb: Open, url: str, tmp_path: Path) -> None:
    kb = open_kb()
    kb.sync(folder)
    (folder / "7.md").unlink()
    (folder / "rules").rename(folder / "laws")
    copy_knowledge_base(url, f"embedded:{tmp_path / 'copy'}", show_progress=False)
    with KnowledgeBase.open(f"embedded:{tmp_path / 'copy'}") as copied:
        report = copied.sync(folder)
        assert (names(report.deleted), len(report.moved), len(report.unchanged)) == (["7.md"], 4, 4)
    kb.sync(folder)
    assert is_equal(kb, folder)


@pytest.mark.slow
@EMBEDDED
def test_no_byte_of_a_deleted_text_is_left_after_compaction(
    folder: Path, open_kb: Open, tmp_path: Path
) -> None:
    kb = open_kb(graph=f"graph:{tmp_path / 'graph'}", links=LINKS)
    secret = "Zugspitzwetterstation"
    (folder / "8.md").write_text(f"The {secret} is closed.")
    (folder / "9.md").write_text("Rule 9.")
    kb.sync(folder)
    (folder / "9.md").write_text(f"The {secret} is open.")
    kb.sync(folder)  # the journal keeps the new version of an update for a while
    assert files_with(tmp_path, secret)
    (folder / "8.md").unlink()
    (folder / "9.md").unlink()
    kb.sync(folder)
    kb.compact()
    assert files_with(tmp_path, secret) == []
    assert kb.search("rule", "keyword")


def files_with(folder: Path, word: str) -> list[str]:
    """Files in which a word stands in any of the encodings of an engine."""
    forms = {word.encode(), word.lower().encode(), word.encode("utf-16-le")}
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if any(form in path.read_bytes() for form in forms)]


def test_one_source_of_a_few_may_be_gone_but_not_the_last_one(kb: KnowledgeBase) -> None:
    def keep(ids: str, **options: float) -> int:
        pages = [Document(id_=id_, text=id_) for id_ in ids]
        return len(kb.sync(pages, name="wiki", **options).deleted)  # type: ignore[arg-type]

    keep("abc")
    with pytest.raises(SyncRefusedError, match=r"1 of 3 .* max_deletions=0 allows 0"):
        keep("ab", max_deletions=0)
    with pytest.raises(SyncRefusedError, match=r"2 of 3 .* max_deletions=0\.2 allows 1"):
        keep("a")
    assert (keep("ab"), keep("a")) == (1, 1)
    with pytest.raises(SyncRefusedError, match="1 of 1"):
        keep("")


@cases("share", [-0.1, 20, None])
def test_a_share_of_deletions_outside_of_zero_to_one_is_refused(
    kb: KnowledgeBase, folder: Path, share: object
) -> None:
    with pytest.raises(ConfigurationError, match=r"share between 0 and 1, got .* prune=False"):
        kb.sync(folder, max_deletions=share)  # type: ignore[arg-type]


def test_the_folder_of_the_knowledge_base_is_left_out(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "docs"
    shutil.copytree(folder, place)
    with KnowledgeBase.open(f"embedded:{place / 'kb'}", embed_model="local") as kb:
        assert len(kb.sync(place).added) == 9
        assert len(kb.sync(place).unchanged) == 9


async def test_the_async_twin_returns_the_same_report(kb: KnowledgeBase, folder: Path) -> None:
    planned = kb.sync(folder, dry_run=True)
    assert await kb.async_sync(folder, show_progress=False) == planned


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_sync_that_died_during_moves_goes_on(
    kb: KnowledgeBase, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb.sync(folder)
    (folder / "rules").rename(folder / "laws")
    (folder / "staff.csv").rename(folder / "laws" / "staff.csv")
    write = Addition.write

    def killed(addition: Addition, documents: Sequence[SourceDocument], *args: Any) -> None:
        write(addition, documents[:-1], *args)  # all but the second row of the table
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Addition, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            kb.sync(folder)
    report = kb.sync(folder)
    assert (len(report.moved), report.deleted) == (5, ())
    assert is_equal(kb, folder)


def test_restricted_content_stays_listed_if_a_sync_dies_after_its_name_was_taken(
    kb: KnowledgeBase, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb.sync(folder)
    script(kb, folder, f"share 6.md; mv 6.md a.md; put 6.md {OTHER}")
    changed = Addition.changed

    def killed(addition: Addition, documents: Sequence[SourceDocument]) -> list[SourceDocument]:
        if not documents:  # those of a.md are left out
            raise KeyboardInterrupt
        return changed(addition, documents)

    with monkeypatch.context() as patch:
        patch.setattr(sync, "BATCH_WEIGHT", 1)  # each in a batch of its own
        patch.setattr(Addition, "changed", killed)
        with pytest.raises(KeyboardInterrupt):
            kb.sync(folder)
    assert names([*kb.sync(folder).failures]) == ["a.md"]
    assert allowed_by_name(kb) == {"6.md": ("user:6.md",)}


@pytest.mark.parametrize("text", [SAME, OTHER])
def test_a_restricted_file_that_is_deleted_while_it_is_synced_stays_restricted(
    kb: KnowledgeBase, folder: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb.sync(folder)
    script(kb, folder, f"share 6.md; put 6.md {text}; put 9.md Rule 9 is new.")
    store = Addition.store

    def late(addition: Addition, batch: PreparedBatch) -> None:
        kb.delete(str(folder / "6.md"))  # as another process may
        store(addition, batch)

    monkeypatch.setattr(Addition, "store", late)
    kb.sync(folder)
    monkeypatch.undo()
    kb.sync(folder)
    assert allowed_by_name(kb) == {"6.md": ("user:6.md",)}


@pytest.mark.slow
def test_many_moved_files_of_equal_content_are_found_in_linear_time(kb: KnowledgeBase) -> None:
    def stubs(folder: str) -> list[Document]:
        paths = (f"{folder}-{number}" for number in range(1000))
        return [Document(id_=path, text="stub", metadata={"file_path": path}) for path in paths]

    kb.sync(stubs("old"), name="wiki")
    start = process_time()
    assert len(kb.sync(stubs("new"), name="wiki", dry_run=True).moved) == 1000
    assert process_time() - start < 4  # 0.4 s; 8 s if each is compared with each


@pytest.mark.slow
def test_new_rows_of_a_file_are_visible_to_whom_all_its_others_are(
    kb: KnowledgeBase, folder: Path
) -> None:
    def rows() -> list[tuple[str, ...]]:
        return [document.allowed for document in kb.documents() if document.source.endswith(".csv")]

    def append_row() -> dict[str, Exception]:
        with (folder / "staff.csv").open("a") as file:
            file.write("Zoe\n")
        return dict(kb.sync(folder).failures)

    kb.sync(folder)
    ids = [document.document_id for document in kb.documents() if document.source.endswith(".csv")]
    kb.share(str(folder / "staff.csv"), allowed=["group:hr"])
    assert (append_row(), rows()) == ({}, [("group:hr",)] * 3)
    kb.share(ids[0], allowed=None)
    assert (append_row(), rows()) == ({}, [(), ("group:hr",), ("group:hr",), ()])
    for number, id_ in enumerate(ids):
        kb.share(id_, allowed=[f"user:{number}"])
    kb.share(f"{folder / 'staff.csv'}_part_3", allowed=["user:3"])
    assert "pass allowed=" in str(next(iter(append_row().values())))
    assert len(rows()) == 4


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
