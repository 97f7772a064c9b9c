import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from llama_index.core import Document

from llama_retrieval_ext import KnowledgeBase
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.knowledge_base import snapshot
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.programs import Program, run_program

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")


def documents(version: int) -> list[Document]:
    return [Document(id_=f"d{n}", text=f"leave in version{version}") for n in range(5)]


def opened(
    folder: Path,
    *,
    read_only: bool = True,
    refresh_s: float | None = None,
    graph: str | None = None,
) -> KnowledgeBase:
    return KnowledgeBase.open(
        f"embedded:{folder}",
        embed_model=FakeEmbedding(dim=8),
        read_only=read_only,
        refresh_s=refresh_s,
        graph=graph,
    )


def found(kb: KnowledgeBase) -> set[str]:
    return {hit.text for hit in kb.retriever("keyword", top_k=50).retrieve("leave")}


@pytest.mark.slow
def test_a_read_only_copy_changes_only_by_refresh(tmp_path: Path) -> None:
    with opened(tmp_path / "kb", read_only=False) as writer:
        writer.add(documents(1), show_progress=False)
        with opened(tmp_path / "kb") as one, opened(tmp_path / "kb", refresh_s=0.05) as other:
            retriever = one.retriever("vector", top_k=50)
            assert found(one) == found(other) == {"leave in version1"}
            assert one.refresh() is False
            writer.add(documents(2), show_progress=False)
            writer.delete("d0")
            assert found(one) == {"leave in version1"}
            assert one.refresh() is True
            assert found(one) == found(writer) == {"leave in version2"}
            assert {hit.text for hit in retriever.retrieve("leave")} == {"leave in version2"}
            assert one.info().documents == one.count() == 4
            deadline = time.monotonic() + 60
            while found(other) != {"leave in version2"} and time.monotonic() < deadline:
                time.sleep(0.05)
            assert found(other) == {"leave in version2"}
            for write in (lambda: one.add([]), lambda: one.delete("d1"), one.clear, one.compact):
                with pytest.raises(ConfigurationError, match="read_only"):
                    write()
        writer.index()
        with opened(tmp_path / "kb") as indexed:
            assert found(indexed) == {"leave in version2"}


@pytest.mark.slow
def test_the_copy_of_a_killed_reader_is_removed_by_the_next_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "kb", read_only=False) as kb:
        kb.add(documents(1), show_progress=False)
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    code = """
import os, sys, tempfile
tempfile.tempdir = sys.argv[2]
from llama_retrieval_ext import KnowledgeBase
from llama_retrieval_ext.testing.fakes import FakeEmbedding
kb = KnowledgeBase.open(sys.argv[1], embed_model=FakeEmbedding(dim=8), read_only=True)
os.kill(os.getpid(), 9)
"""
    assert run_program(code, f"embedded:{tmp_path / 'kb'}", place).returncode == -9
    (left,) = place.iterdir()
    with opened(tmp_path / "kb") as living:
        assert left.exists()  # it is young: its reader may be about to lock it
        (used,) = set(place.iterdir()) - {left}
        for each in (left, used):
            os.utime(each / "lock", (1, 1))
        with opened(tmp_path / "kb"):
            assert not left.exists()
            assert used.exists()
        assert found(living) == {"leave in version1"}
    assert list(place.iterdir()) == []


def test_read_only_is_refused_except_for_a_directory_with_file_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="there is no knowledge base"):
        opened(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="a server takes any number"):
        KnowledgeBase.open("qdrant:./q", embed_model=FakeEmbedding(), read_only=True)
    with (
        opened(tmp_path / "kb", read_only=False) as kb,
        pytest.raises(ConfigurationError, match="is no copy"),
    ):
        kb.refresh()
    monkeypatch.setattr(snapshot, "CAN_FREEZE", False)
    with pytest.raises(ConfigurationError, match="Windows"):
        opened(tmp_path / "kb")


def passages(kb: KnowledgeBase) -> set[str]:
    assert isinstance(kb.graph, EmbeddedGraph)
    return {node.id for node in kb.graph.contents(scope=None).nodes if node.is_passage}


@pytest.mark.slow
def test_a_graph_is_copied_with_its_knowledge_base(tmp_path: Path) -> None:
    graph = f"graph:{tmp_path / 'graph'}"
    train = Document(id_="train", text="Night Train was directed by Anne Lister.")
    train.metadata["title"] = "Night Train"
    anne = Document(id_="anne", text="Born in York.", metadata={"title": "Anne Lister"})
    paths = {"Night Train", "Night Train -NAMES-> Anne Lister"}

    def walked(kb: KnowledgeBase) -> set[str]:
        hits = kb.retriever("graph").search("Where was the director of Night Train born?").hits
        return {str(hit.path) for hit in hits}

    with opened(tmp_path / "kb", read_only=False, graph=graph) as writer:
        writer.add([train, anne], show_progress=False)
        with opened(tmp_path / "kb", graph=graph) as copy:
            assert walked(writer) == walked(copy) == paths
            writer.delete("anne")
            assert walked(copy) == paths
            assert copy.refresh() is True
            assert walked(copy) == walked(writer) == {"Night Train"}
            writer.add([anne], show_progress=False)
            assert copy.refresh() is True
            assert walked(copy) == paths
        with opened(tmp_path / "kb") as without:
            assert without.graph is None
            assert without.count() == 2
    with opened(tmp_path / "kb", graph=graph) as unwritten:
        assert walked(unwritten) == paths
    with opened(tmp_path / "plain", read_only=False) as plain:
        plain.add([train], show_progress=False)
    for folder, other, problem in (
        ("plain", graph, "has no graph"),
        ("kb", "graph::memory:", "must be graph:DIRECTORY"),
        ("kb", "neo4j://localhost/neo4j", "must be graph:DIRECTORY"),
        ("kb", f"graph:{tmp_path / 'none'}", "there is no graph"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            opened(tmp_path / folder, graph=other)


_WRITER = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from tests.knowledge_base.test_snapshot import documents, opened
with opened(Path({folder!r}), read_only=False, graph={graph!r}) as kb:
    for version in range(1, 10_000):
        kb.add(documents(version), show_progress=False).raise_for_failures()
        if version == 1:
            print("begun", flush=True)
"""


@pytest.mark.slow
def test_two_readers_see_each_document_whole_while_another_process_writes(tmp_path: Path) -> None:
    graph = f"graph:{tmp_path / 'graph'}"
    program = _WRITER.format(path=sys.path, folder=str(tmp_path / "kb"), graph=graph)
    with Program(program) as writer:
        assert writer.stdout.readline() == "begun\n"
        with (
            opened(tmp_path / "kb", graph=graph) as one,
            opened(tmp_path / "kb", graph=graph) as other,
        ):
            seen = set()
            for _ in range(5):
                for kb in (one, other):
                    kb.refresh()
                    hits = kb.retriever("keyword", top_k=50).retrieve("leave")
                    assert sorted(str(hit.node.ref_doc_id) for hit in hits) == [
                        f"d{n}" for n in range(5)
                    ]
                    assert kb.count() == 5
                    assert passages(kb) == {hit.node.node_id for hit in hits}
                    seen |= {hit.text for hit in hits}
            assert len(seen) > 2
    with opened(tmp_path / "kb", graph=graph) as after_a_kill:
        assert after_a_kill.count() == len(passages(after_a_kill)) == 5


@pytest.mark.slow
def test_a_read_only_copy_opens_on_a_read_only_file_system(tmp_path: Path) -> None:
    with opened(tmp_path / "kb", read_only=False) as writer:
        writer.add(documents(1), show_progress=False)
    folder = tmp_path / "ro"
    folder.mkdir()
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from pathlib import Path\n"
        "from tests.knowledge_base.test_snapshot import found, opened\n"
        f"folder = Path({str(folder)!r})\n"
        "try:\n    (folder / 'x').touch()\n"
        "except OSError as error:\n    print(error.errno)\n"
        "with opened(folder) as kb:\n    print(found(kb))\n"
    )
    mount = f"mount --bind {tmp_path / 'kb'} {folder} && mount -o remount,ro,bind {folder}"
    done = subprocess.run(
        [
            *("unshare", "-rm", "sh", "-c", f'{mount} || exit 77; exec "$0" "$@"'),
            *(sys.executable, "-c", program),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"this user may not mount: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == str(30), os.strerror(30)
    assert "leave in version1" in done.stdout
