"""A folder of files to sync, and whether a knowledge base is equal to it."""

from pathlib import Path

import pytest

from llama_retrieval_ext import KnowledgeBase, read_documents


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eight texts, and a table of two rows."""
    folder = tmp_path / "handbook"
    (folder / "rules").mkdir(parents=True)
    for number in range(8):
        place = folder / ("rules" if number < 4 else ".")
        (place / f"{number}.md").write_text(f"Rule {number} is about leave.")
    (folder / "staff.csv").write_text("name\nAnn\nBob\n")
    return folder


def names(paths: object) -> list[str]:
    assert isinstance(paths, tuple | list)
    return [Path(path).name for path in paths]


def is_equal(kb: KnowledgeBase, folder: Path) -> bool:
    """Whether it has the documents that a new one of the folder has."""
    return sorted(document.document_id for document in kb.documents()) == sorted(
        document.id_ for document in read_documents(folder) if document.text.strip()
    )


def allowed_by_name(kb: KnowledgeBase) -> dict[str, tuple[str, ...]]:
    """Who may see the files that not everyone may see."""
    return {
        Path(document.source).name: document.allowed
        for document in kb.documents()
        if document.allowed
    }
