"""`ingest_with_ray` stores what `KnowledgeBase.add` stores."""

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import Document

from llama_retrieval_ext import Scope, read_documents
from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
from llama_retrieval_ext.knowledge_base import ingest_with_ray
from llama_retrieval_ext.testing import FakeEmbedding
from tests.knowledge_base.ray.workers import (
    EMBEDDED,
    N_BATCH,
    Ingest,
    ObstructedEmbedding,
    added,
    many,
    stored,
)

pytestmark = [
    pytest.mark.slow,
    # Ray's own: the pipes and logs of the processes that it starts, and its data sets' settings.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning:ray.*"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "docs"
    made.mkdir()
    for number in range(2 * N_BATCH):
        (made / f"{number}.md").write_text(f"Sentence {number} of many. " * (1 + number % 10))
    (made / "0.md").write_text("A sentence of a long text, one of many. " * 200)
    (made / "rows.csv").write_text("".join(f"row,{row}\n" for row in range(9)))
    (made / "empty.txt").write_text("")
    (made / "broken.pdf").write_bytes(b"%PDF-1.7 not really")
    return made


@pytest.mark.parametrize("engine", ["qdrant-server"], indirect=True)
def test_files_are_stored_as_add_stores_them_and_again_they_are_unchanged(
    ingest: Ingest, folder: Path, open_kb: Any, obstructed: ObstructedEmbedding
) -> None:
    scope = Scope(kb_ids=("hr",))
    report = ingest(folder, scope=scope, n_writers=2)
    expected = added(read_documents(folder), obstructed, scope)
    assert len(expected) == 2 * N_BATCH + 9
    assert report.added == len(expected)
    assert set(report.skipped) == {str(folder / "empty.txt")}
    assert set(report.failures) == {str(folder / "broken.pdf")}
    with open_kb(embed_model=obstructed) as kb:
        assert stored(kb, scope) == expected
        assert report.n_nodes == kb.info().nodes
    (folder / "3.md").write_text("Changed.")
    again = ingest(folder, scope=scope)
    assert (again.added, again.updated, again.unchanged) == (0, 1, len(expected) - 1)


@EMBEDDED
def test_documents_name_who_may_see_them(
    ingest: Ingest, folder: Path, open_kb: Any, obstructed: ObstructedEmbedding
) -> None:
    assert ingest(folder / "3.md", allowed=["group:hr"]).added == 1
    documents = [Document(id_=name, text="leave") for name in ("hr", "open")]
    ingest(documents, allowed=lambda each: ["group:hr"] if each.node_id == "hr" else None)
    with open_kb(embed_model=obstructed) as kb:
        counts = [kb.count(scope=Scope(principals=own)) for own in ([], ["group:hr"])]
    assert counts == [1, 3]
    named = ingest(folder / "3.md", allowed=lambda _: ["group:it"])  # on a worker
    assert (named.added, named.updated, named.unchanged) == (0, 1, 0)
    with open_kb(embed_model=obstructed) as kb:
        assert kb.count(scope=Scope(principals=["group:it"])) == 2


DRIVER = """
import sys
import ray
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from llama_retrieval_ext.knowledge_base.ray.ingest import ingest_with_ray
from tests.knowledge_base.ray.workers import N_BATCH, ObstructedEmbedding, many

ray.init(address=sys.argv[1], log_to_driver=False)
model = ObstructedEmbedding(dim=16, folder=Path(sys.argv[3]))
ingest_with_ray(many(3 * N_BATCH, d190="slow"), sys.argv[2], embed_model=model)
"""


@EMBEDDED
def test_another_call_continues_after_the_driver_was_killed(
    ingest: Ingest, cluster: str, url: str, open_kb: Any, obstructed: ObstructedEmbedding
) -> None:
    (obstructed.folder / "slow").touch()
    ledger = Path(url.partition(":")[2]) / "ledger.sqlite3"
    root = Path(__file__).parents[3]
    arguments = map(str, (cluster, url, obstructed.folder, root))
    # An interpreter of its own: a fork has the environment of the first test that forked.
    with subprocess.Popen([sys.executable, "-c", DRIVER, *arguments]) as driver:
        try:
            deadline = time.monotonic() + 100
            while n_written(ledger) < 2 * N_BATCH:
                assert driver.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            driver.kill()
    (obstructed.folder / "slow").unlink()
    documents = many(3 * N_BATCH, d190="slow")
    report = ingest(documents)
    assert (report.unchanged, report.added) == (2 * N_BATCH, N_BATCH)
    with open_kb(embed_model=obstructed) as kb:
        assert stored(kb) == added(documents, obstructed)


def n_written(ledger: Path) -> int:
    if not ledger.exists():
        return 0
    with closing(sqlite3.connect(ledger)) as database:
        try:
            (count,) = database.execute(
                "SELECT count(*) FROM records WHERE kind = 'document' AND since IS NULL"
            ).fetchone()
        except sqlite3.OperationalError:  # it is being made
            return 0
    return int(count)


@EMBEDDED
def test_rows_of_a_data_set_are_documents(
    ingest: Ingest, open_kb: Any, obstructed: ObstructedEmbedding
) -> None:
    data = pytest.importorskip("ray.data")
    rows = [{"id": f"r{n}", "text": f"row {n}", "n": n} for n in range(5)]
    assert ingest(data.from_items(rows)).added == 5
    documents = [Document(id_=f"r{n}", text=f"row {n}", metadata={"n": n}) for n in range(5)]
    with open_kb(embed_model=obstructed) as kb:
        assert stored(kb) == added(documents, obstructed)
    with pytest.raises(ConfigurationError, match="rename_columns"):
        ingest(data.from_items([{"text": "who am I?"}]))


def test_invalid_arguments_are_refused_before_ray_starts(
    model: FakeEmbedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="gone when this returns"):
        ingest_with_ray([], "embedded::memory:", embed_model=model)
    for url in ("embedded:kb", "qdrant:kb", "milvus:kb.db"):
        with pytest.raises(ConfigurationError, match="one process at a time"):
            ingest_with_ray([], url, embed_model=model, n_writers=2)
    with pytest.raises(ConfigurationError, match="n_writers"):
        ingest_with_ray([], "embedded:kb", embed_model=model, n_writers=0)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(
        sys.modules, "llama_retrieval_ext.knowledge_base.ray.cluster", raising=False
    )
    with pytest.raises(MissingDependencyError, match="ray"):
        ingest_with_ray([], "embedded:kb", embed_model=model)
