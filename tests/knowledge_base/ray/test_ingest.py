"""`ingest_with_ray` on a cluster of one node with two CPUs, on the loopback address."""

import gc
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode, Document, TransformComponent
from pydantic import PrivateAttr

from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey
from llama_retrieval_ext.knowledge_base.ray.ingest import ingest_with_ray
from llama_retrieval_ext.knowledge_base.readers.files import read_documents
from llama_retrieval_ext.knowledge_base.report import IngestionReport
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.testing.fakes import FakeEmbedding

pytestmark = [
    pytest.mark.slow,
    # Ray's own: the pipes and logs of the processes that it starts, and its data sets' settings.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning:ray.*"),
]
EMBEDDED = pytest.mark.parametrize("engine", ["embedded"], indirect=True)
Ingest = Callable[..., IngestionReport]
N_BATCH = 64


class ObstructedEmbedding(FakeEmbedding):
    """Kills its process, or waits, at some texts: as long as a file says so, or always."""

    folder: Path

    def _embed(self, text: str) -> list[float]:
        if "poison" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        if "deadly" in text and (self.folder / "deadly").exists():
            (self.folder / "deadly").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        while "slow" in text and (self.folder / "slow").exists():
            time.sleep(0.05)
        return super()._embed(text)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster that this process is connected to."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        context = ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 * 2**20,
            log_to_driver=False,
            logging_level="ERROR",
            _node_ip_address="127.0.0.1",
        )
        yield context.address_info["address"]
        ray.shutdown()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()  # what it left open, before another test is blamed for it


@pytest.fixture
def obstructed(tmp_path: Path) -> ObstructedEmbedding:
    return ObstructedEmbedding(dim=16, folder=tmp_path)


@pytest.fixture
def ingest(cluster: str, url: str, obstructed: ObstructedEmbedding) -> Ingest:
    def ingest_(documents: Any, **options: Any) -> IngestionReport:
        options = {"embed_model": obstructed, "show_progress": False, **options}
        return ingest_with_ray(documents, url, **options)

    return ingest_


def stored(kb: KnowledgeBase, scope: Scope | None = None) -> dict[str, object]:
    """What is in a knowledge base: the nodes of each document, and its digest in the ledger."""
    contents: dict[str, object] = {}
    for document in kb.documents(scope=scope):
        key = DocumentKey("", "" if scope is None else scope.kb_ids[0], document.document_id)
        nodes = kb.get(document.document_id, scope=scope)
        contents[document.document_id] = (
            [(node.node_id, node.get_content(), node.metadata, related(node)) for node in nodes],
            list(kb._ledger.digests([key])),
        )
    return contents


def related(node: BaseNode) -> str:
    return str(sorted((str(kind), repr(each)) for kind, each in node.relationships.items()))


def added(
    documents: Any, model: FakeEmbedding, scope: Scope | None = None, **options: Any
) -> dict[str, object]:
    """What `KnowledgeBase.add` makes of documents."""
    with KnowledgeBase.open("embedded::memory:", embed_model=model, **options) as kb:
        kb.add(documents, scope=scope, show_progress=False)
        return stored(kb, scope)


def many(n: int, **texts: str) -> list[Document]:
    return [Document(id_=f"d{i}", text=texts.get(f"d{i}", f"leave {i}")) for i in range(n)]


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


@pytest.mark.parametrize(
    "engine", ["embedded", "qdrant", "milvus-server", "elasticsearch"], indirect=True
)
def test_files_are_stored_as_add_stores_them_and_again_they_are_unchanged(
    ingest: Ingest, folder: Path, open_kb: Any, engine: str, obstructed: ObstructedEmbedding
) -> None:
    scope = Scope(kb_ids=("hr",))
    is_on_server = engine in ("milvus-server", "elasticsearch")
    writers = {"n_writers": 2} if is_on_server else {}
    report = ingest(folder, scope=scope, **writers)
    expected = added(read_documents(folder), obstructed, scope)
    assert len(expected) == 2 * N_BATCH + 8
    assert report.added == len(expected)
    assert set(report.skipped) == {str(folder / "empty.txt")}
    assert set(report.failures) == {str(folder / "broken.pdf")}
    with open_kb(embed_model=obstructed) as kb:
        assert stored(kb, scope) == expected
        assert report.n_nodes == kb.info().nodes
    (folder / "3.md").write_text("Changed.")
    again = ingest(folder, scope=scope, **writers)
    assert (again.added, again.updated, again.unchanged) == (0, 1, len(expected) - 1)


@EMBEDDED
def test_batches_of_a_killed_worker_are_prepared_again(
    ingest: Ingest, open_kb: Any, obstructed: ObstructedEmbedding
) -> None:
    documents = many(2 * N_BATCH, d70="deadly", d71="one or two|three or four|five or six")
    # LlamaIndex leaves the function out when it pickles a splitter.
    bars = SentenceSplitter(
        chunk_size=5, chunk_overlap=0, chunking_tokenizer_fn=lambda text: text.split("|")
    )
    (obstructed.folder / "deadly").touch()
    report = ingest(iter(documents), transformations=[bars])
    assert not (obstructed.folder / "deadly").exists()
    assert (report.added, report.failures) == (len(documents), {})
    with open_kb(embed_model=obstructed) as kb:
        assert stored(kb) == added(documents, obstructed, transformations=[bars])
        assert [node.get_content() for node in kb.get("d71")][1] == "three or four"


@EMBEDDED
def test_documents_that_kill_each_worker_are_reported_and_the_others_stored(ingest: Ingest) -> None:
    report = ingest(many(2 * N_BATCH + 1, d70="poison"), task_options={"max_retries": 0})
    assert set(report.failures) == {f"d{i}" for i in range(N_BATCH, 2 * N_BATCH)}
    assert "worker died" in str(report.failures["d70"])
    assert report.added == N_BATCH + 1


DRIVER = """
import sys
import ray
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from tests.knowledge_base.ray.test_ingest import N_BATCH, ObstructedEmbedding, ingest_with_ray, many

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
                "SELECT count(*) FROM documents WHERE state IS NULL"
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


class Locked(TransformComponent):
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def __call__(self, nodes: Any, **_: Any) -> Any:
        return nodes


@EMBEDDED
def test_a_model_that_cannot_be_pickled_is_refused(ingest: Ingest) -> None:
    with pytest.raises(ConfigurationError, match="cannot be sent to workers"):
        ingest(many(1), transformations=[Locked()])


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
