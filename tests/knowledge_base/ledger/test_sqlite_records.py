"""The ledger in a SQLite file: files that are no ledger, and disks that are full."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import time

import pytest
from llama_index.core.schema import Document, TextNode
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilters

from llama_retrieval_ext.errors import StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, Prepared
from llama_retrieval_ext.knowledge_base.ledger.records import all_of, where
from llama_retrieval_ext.knowledge_base.ledger.sqlite_records import SqliteRecords
from llama_retrieval_ext.stores.engine.records import IntentRecords, Record, Records
from tests.knowledge_base.engines import EMBEDDED
from tests.knowledge_base.ledger.memory_server import Nodes, Server

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


@pytest.mark.slow
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


@pytest.fixture(params=["file", "server"])
def records(request: pytest.FixtureRequest) -> Records:
    if request.param == "file":
        return SqliteRecords(None)
    return IntentRecords(Nodes(), is_shared=True, clock=time, patience_s=30.0)  # type: ignore[arg-type]  # the methods that records need


def test_records_are_found_by_fields_and_replaced_only_if_they_are_unchanged(
    records: Records,
) -> None:
    records.put(
        [
            Record("a", "1", {"kind": "document", "since": 5}),
            Record("b", "2", {"kind": "document", "since": 9, "owner": "x"}),
            Record("c", "3", {"kind": "synced"}),
        ]
    )
    old = where("since", 5, FilterOperator.LTE)
    either = MetadataFilters(filters=[old, where("owner", "x")], condition=FilterCondition.OR)
    for filters, expected in (
        (all_of(where("kind", "document")), "ab"),
        (all_of(old), "a"),
        (all_of(where("since", 5, FilterOperator.GT)), "b"),
        (all_of(where("owner", ["x", "y"], FilterOperator.IN)), "b"),
        (all_of(where("kind", "document"), either), "ab"),
    ):
        assert sorted(record.id for record in records.find(filters)) == [*expected]
        assert records.count(filters) == len(expected)
    assert [record.id for record in records.find(limit=1)] == ["a"]
    a, b = (records.get(["a", "b"])[id_] for id_ in "ab")
    done = records.replace(
        [replace(a, text="new"), Record("d")], remove=[replace(b, version="another")]
    )
    assert done.keys() == {"a", "d"}
    assert records.replace([replace(a, text="late"), Record("d")]) == {}
    assert records.replace([], remove=[b]) == {"b": ""}
    assert {id_: record.text for id_, record in records.get([*"abcd"]).items()} == {
        "a": "new",
        "c": "3",
        "d": "",
    }


def test_an_unclean_end_is_known_until_the_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    SqliteRecords(path).close()
    path.with_name("ledger.closed").unlink()
    SqliteRecords(path).close()
    records = SqliteRecords(path)
    assert not records.was_closed
    records.is_checked = True
    records.close()
    assert SqliteRecords(path).was_closed


def test_long_values_are_split_into_records_that_milvus_accepts(server: Server) -> None:
    nodes = [TextNode(id_=f'"{n}' * 40, text='"' * 100, embedding=[1.0]) for n in range(500)]
    key = DocumentKey("", "", "a" * 500)
    writer = server.writer()
    writer.write([Prepared(key, "1", tuple(nodes))])
    server.journal().begin([Prepared(key, "2", tuple(nodes[1:]))])
    assert len(server.beside.nodes) > 4
    longest = max(len(node.model_dump_json()) for node in server.beside.nodes.values())
    assert longest < 65_000
    assert server.ledger().node_ids([key]) == {key: sorted(node.node_id for node in nodes)}
