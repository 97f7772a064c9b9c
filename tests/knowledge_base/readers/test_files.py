"""Which files are read, which are left out, and the ids of their documents."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base import read_documents
from llama_retrieval_ext.knowledge_base.readers.files import iter_documents


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
