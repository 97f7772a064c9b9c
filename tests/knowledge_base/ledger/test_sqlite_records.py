"""The ledger in a SQLite file: files that are no ledger, and disks that are full."""

from collections.abc import Callable
from pathlib import Path

import pytest
from llama_index.core.schema import Document, TextNode

from llama_retrieval_ext.errors import StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from tests.knowledge_base.engines import EMBEDDED

Open = Callable[..., KnowledgeBase]


@pytest.fixture
def directory(url: str) -> Path:
    return Path(url.partition(":")[2])


@EMBEDDED
def test_a_newer_knowledge_base_is_refused(open_kb: Open) -> None:
    kb = open_kb()
    assert kb._ledger.file is not None
    with kb._ledger.file.connection() as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreFormatError, match="format 99"):
        open_kb()


@EMBEDDED
def test_a_ledger_file_that_is_no_database_is_refused(open_kb: Open, directory: Path) -> None:
    open_kb().close()
    for path in directory.glob("ledger.sqlite3*"):
        path.unlink()
    (directory / "ledger.sqlite3").write_text("not a database, but long enough to look at" * 50)
    with pytest.raises(StoreFormatError, match=r"ledger\.sqlite3 is no ledger"):
        open_kb()


@EMBEDDED
@pytest.mark.parametrize(
    ("trouble", "relief", "message"),
    [
        ("PRAGMA max_page_count = 1", "PRAGMA max_page_count = 1000000", "full"),
        ("PRAGMA query_only = 1", "PRAGMA query_only = 0", "readonly"),
    ],
    ids=["full disk", "read-only directory"],
)
def test_a_ledger_that_cannot_be_written_loses_no_document(
    open_kb: Open, trouble: str, relief: str, message: str
) -> None:
    kb = open_kb()
    kb.add([Document(id_="d", text="annual leave")])
    assert kb._ledger.file is not None
    kb._ledger.file._connection.execute(trouble)
    many = [TextNode(id_=f"node {number}", text="leave") for number in range(100)]
    with pytest.raises(StoreUnavailableError, match=message):
        kb.add(many)
    assert len(kb.retriever("keyword").retrieve("leave")) == kb.count() == 1
    kb._ledger.file._connection.execute(relief)
    assert kb.add(many).added == 100
