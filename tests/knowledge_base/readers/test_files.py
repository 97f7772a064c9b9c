"""Which files are read, which are left out, and the ids of their documents."""

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters
from typer.testing import CliRunner

from llama_retrieval_ext import KnowledgeBase, Scope, read_documents
from llama_retrieval_ext.cli.app import app
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation import Judgements
from llama_retrieval_ext.knowledge_base.readers.files import iter_documents
from llama_retrieval_ext.testing import FakeEmbedding
from tests.cases import cases


def read(paths: list[Path], **options: Any) -> Any:
    """All documents, read."""
    reading = iter_documents(paths, **options)
    reading.documents = list(reading.documents)
    return reading


def texts(path: Path) -> list[str]:
    reading = read([path])
    assert reading.left_out == {}
    return [document.text for document in reading.documents]


def reason(path: Path) -> str:
    reading = read([path])
    assert reading.documents == []
    message: str = reading.left_out[path]
    return message


def test_folder_is_read_with_its_folders_but_not_hidden_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a/b/c.md", ".git/config", "a/.hidden.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    assert texts(tmp_path) == ["a/b/c.md", "b.txt"]


@pytest.mark.parametrize("named", [".cache/docs", ".cache/docs/.note.txt"])
def test_what_is_named_is_read_though_it_or_its_folder_is_hidden(
    tmp_path: Path, named: str
) -> None:
    (tmp_path / ".cache" / "docs").mkdir(parents=True)
    for name in ("a.txt", ".note.txt"):
        (tmp_path / ".cache" / "docs" / name).write_text("found")
    assert texts(tmp_path / named) == ["found"]


def test_folder_of_the_knowledge_base_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "kb").mkdir()
    (tmp_path / "kb" / "manifest.json").write_text("{}")
    (tmp_path / "a.txt").write_text("found")
    reading = read([tmp_path], leave_out=tmp_path / "kb")
    assert [document.text for document in reading.documents] == ["found"]


def test_file_named_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("found")
    assert len(read([tmp_path, tmp_path / "a.txt"]).documents) == 1


def test_ids_do_not_depend_on_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("found")
    (absolute,) = read([tmp_path / "a.txt"]).documents
    monkeypatch.chdir(tmp_path)
    (relative,) = read([Path("a.txt")]).documents
    assert (absolute.doc_id, absolute.hash) == (relative.doc_id, relative.hash)


@pytest.mark.slow
def test_unreadable_files_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("good")
    (tmp_path / "latin.txt").write_bytes("Übung".encode("latin-1"))
    (tmp_path / "broken.docx").write_bytes(b"not a zip")
    (tmp_path / "broken.pdf").write_bytes(b"not a pdf")
    reading = read([tmp_path, tmp_path / "missing.txt"])
    assert [document.text for document in reading.documents] == ["good"]
    assert {path.name for path in reading.left_out} == {
        *("latin.txt", "broken.docx", "broken.pdf", "missing.txt")
    }


def test_reason_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\xff")
    assert reason(tmp_path / "picture.png") == "this kind of file is not supported: .png"
    (tmp_path / "latin.txt").write_bytes("Übung für Müller".encode("latin-1"))
    assert reason(tmp_path / "latin.txt").startswith(
        "it is not text in UTF-8, UTF-16 or GB18030, or not certainly; likely encodings are cp125"
    )
    assert reason(tmp_path / "missing.txt") == "it does not exist"


def test_part_that_a_file_no_longer_has_is_outdated(tmp_path: Path) -> None:
    staff, other = tmp_path / "staff.csv", tmp_path / "other.csv"
    staff.write_text("name\nAnn\nBob\n")
    before = [document.doc_id for document in read([staff]).documents]
    staff.write_text("name\nAnn\n")
    reading = read([staff])
    assert reading.outdated([*before, f"{other}_part_0", str(staff)]) == before[1:]


def test_files_are_read_one_by_one_as_they_are_needed(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(name)
    watched: list[str] = []

    def watch(files: list[Path]) -> Iterator[Path]:
        for file in files:
            watched.append(file.name)
            yield file

    reading = iter_documents([tmp_path], watched=watch)
    assert watched == []
    assert reading.finds_any()
    assert watched == ["a.txt"]
    assert [document.text for document in reading.documents] == ["a", "b", "c"]
    assert not iter_documents([tmp_path / "missing"]).finds_any()


def test_film_is_not_read_as_a_whole(tmp_path: Path) -> None:
    with (tmp_path / "film.mp4").open("wb") as film:
        film.truncate(2**40)  # takes no room, and would not fit into memory
    assert reason(tmp_path / "film.mp4") == "this kind of file is not supported: .mp4"


def test_globs_and_patterns_choose_files(tmp_path: Path) -> None:
    for name in ("a.md", "b.txt", "old/c.md", "old/deep/d.txt", ".git/e.md", "build/f.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)

    def found(*paths: Any, **options: Any) -> list[str]:
        return [document.text for document in read_documents(paths, **options)]

    assert found(f"{tmp_path}/**/*.md") == ["a.md", "build/f.md", "old/c.md"]
    assert found(tmp_path, include=["*.md"]) == ["a.md", "build/f.md", "old/c.md"]
    assert found(tmp_path, include=["old/*"]) == ["old/c.md", "old/deep/d.txt"]
    assert found(tmp_path, exclude=["build", "*.txt"]) == ["a.md", "old/c.md"]
    assert found(f"{tmp_path}/*", exclude=["a.*"]) == ["b.txt"]
    assert found(tmp_path / "b.txt", include=["*.md"]) == ["b.txt"]  # it was named
    assert list(read_documents(f"{tmp_path}/*.pdf").left_out.values()) == [
        "no file matches this pattern"
    ]
    for wrong in ({"paths": 3}, {"paths": [""]}, {"paths": tmp_path, "include": "*.md"}):
        with pytest.raises(ConfigurationError):
            read_documents(**wrong)


def test_file_outside_of_the_folder_is_read_only_if_symbolic_links_are_followed(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret.txt").write_text("Secret.")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "own.txt").write_text("Own.")
    (folder / "alias.txt").symlink_to(folder / "own.txt")
    (folder / "leak.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "loop.txt").symlink_to(folder / "loop.txt")
    documents = read_documents(folder)
    assert {document.text for document in documents} == {"Own."}
    assert [path.name for path in documents.left_out] == ["leak.txt", "loop.txt"]
    assert "follow_symlinks" in documents.left_out[folder / "leak.txt"]
    followed = read_documents(folder, follow_symlinks=True)
    assert {document.text for document in followed} == {"Own.", "Secret."}
    assert read_documents(folder / "leak.txt")[0].text == "Secret."
    looping = read_documents(folder / "loop.txt").left_out
    assert list(looping.values()) == ["it is a loop of symbolic links"]


Form = Literal["NFC", "NFD"]
FORMS: Final[tuple[Form, ...]] = ("NFC", "NFD")
CAFE: Final = "Müll/Café.txt"


def cafe(folder: Path, form: Form) -> Path:
    return folder / unicodedata.normalize(form, CAFE)


@pytest.fixture(params=FORMS)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a file with letters that can be composed; others have no such name."""
    file = cafe(tmp_path, request.param)
    file.parent.mkdir()
    file.write_text("Lunch is at noon.")
    (tmp_path / "tea.txt").write_text("Tea is at four.")
    return tmp_path


def opened(folder: Path, place: str = "embedded::memory:", *, by_sync: bool) -> KnowledgeBase:
    kb = KnowledgeBase.open(place, embed_model=FakeEmbedding(dim=8))
    if by_sync:
        kb.sync(folder)
    else:
        kb.add(read_documents(folder))
    return kb


@pytest.mark.slow
@pytest.mark.parametrize(("form", "by_sync"), [*zip(FORMS, (False, True), strict=True)])
def test_a_file_is_named_in_composed_and_in_decomposed_letters(
    stored: Path, form: Form, by_sync: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = cafe(stored, form)
    monkeypatch.chdir(stored)
    with opened(stored, by_sync=by_sync) as kb:
        (node,) = kb.get(str(file))
        assert node.ref_doc_id == node.metadata["file_path"] == str(cafe(stored, "NFC"))
        assert node.metadata["file_name"] == unicodedata.normalize("NFC", file.name)
        assert kb.get(unicodedata.normalize(form, CAFE)) == [node]
        is_in, is_not = FilterOperator.IN, FilterOperator.NIN
        filters: list[tuple[str, Any, FilterOperator, int]] = [
            ("file_name", file.name, FilterOperator.EQ, 1),
            ("file_path", str(file), FilterOperator.EQ, 1),
            ("file_name", file.name, FilterOperator.NE, 0),
            ("file_name", [file.name, "x"], is_in, 1),
            ("file_name", [file.name, "x"], is_not, 0),
            ("file_path", file.parent.name, FilterOperator.TEXT_MATCH, 1),
            ("file_name", file.stem.upper(), FilterOperator.TEXT_MATCH_INSENSITIVE, 1),
        ]
        for key, value, operator, count in filters:
            named = MetadataFilter(key=key, value=value, operator=operator)
            hits = kb.search("lunch", mode="keyword", filters=MetadataFilters(filters=[named]))
            assert len(hits.hits) == count, named
        judged = Judgements({"q": "lunch"}, {"q": {file.name: 1}})
        assert file.name in judged.names_of(node, "q")
        assert kb.share(str(file), allowed=["ann"]) == 1
        assert kb.get(str(file), scope=Scope(principals=["bob"])) == []
        assert kb.delete(str(file)) == 1
        assert [source.source for source in kb.sources()] == [str(stored / "tea.txt")]


@cases("form", FORMS)
def test_paths_and_patterns_find_files_in_either_form(stored: Path, form: Form) -> None:
    file = cafe(stored, form)
    lunch, tea = ["Lunch is at noon."], ["Tea is at four."]
    for path in (file, file.parent, file.parent / "*.txt", stored / "*" / file.name):
        assert texts(path) == lunch
    for pattern in (file.name, file.parent.name, f"{file.parent.name}/*"):
        assert [document.text for document in read_documents(stored, exclude=[pattern])] == tea
    for pattern in (file.name, f"{file.parent.name}/*"):
        assert [document.text for document in read_documents(stored, include=[pattern])] == lunch


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.slow
def test_the_command_line_names_a_file_in_either_form(stored: Path, form: Form) -> None:
    file = cafe(stored, form)
    place = f"embedded:{stored / '.kb'}"
    opened(stored, place, by_sync=False).close()
    tail = f"{file.parent.name}/{file.name}"
    for named in (file, file.name, tail, file.parent, f"*{file.name}"):
        result = CliRunner().invoke(app, ["delete", str(named), "--kb", place])
        assert result.exit_code == 0, result.output
        with KnowledgeBase.open(place, embed_model=FakeEmbedding(dim=8)) as kb:
            assert [source.source for source in kb.sources()] == [str(stored / "tea.txt")]
            kb.add(read_documents(stored))


def test_a_file_renamed_to_the_other_form_is_unchanged(tmp_path: Path) -> None:
    composed, decomposed = (tmp_path / unicodedata.normalize(form, "Café.txt") for form in FORMS)
    decomposed.write_text("Lunch is at noon.")
    with opened(tmp_path, by_sync=True) as kb:
        decomposed.rename(composed)
        report = kb.sync(tmp_path)
        assert (report.unchanged, report.moved, report.deleted) == ((str(composed),), {}, ())


@pytest.mark.parametrize("by_sync", [False, True], ids=["read", "sync"])
def test_files_whose_names_look_the_same_are_both_kept(tmp_path: Path, by_sync: bool) -> None:
    files = [tmp_path / unicodedata.normalize(form, "Café.txt") for form in FORMS]
    for number, file in enumerate(files):
        file.write_text(f"Lunch {number}")
    with opened(tmp_path, by_sync=by_sync) as kb:
        assert [kb.get(str(file))[0].get_content() for file in files] == ["Lunch 0", "Lunch 1"]
        assert kb.sync(tmp_path, prune=False).deleted == ()
        assert kb.delete(str(files[1])) == 1
        assert [source.source for source in kb.sources()] == [str(files[0])]
