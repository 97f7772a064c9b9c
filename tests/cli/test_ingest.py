"""`llama-retrieval ingest`: files into a knowledge base."""

from pathlib import Path

import pytest

from llama_retrieval_ext.knowledge_base import knowledge_base
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.cli.conftest import Run, best

pytestmark = pytest.mark.slow


def test_excluded_files_are_not_left_out_by_error(run: Run, tmp_path: Path, handbook: Path) -> None:
    (handbook / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    url = f"embedded:{tmp_path / 'kb'}"
    finished = run("ingest", handbook, "--kb", url, "--exclude", "*.png", "--exclude", "lunch*")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "2 added" in finished.stdout
    included = run("ingest", handbook, "--kb", url, "--include", "*.md", "--include", "年*")
    assert "2 unchanged" in included.stdout


class InterruptedEmbedding(FakeEmbedding):
    """As if Ctrl-C were pressed while the second batch of documents is embedded."""

    is_interrupted: bool = True

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        if self.is_interrupted and len(self.calls) >= 64:
            raise KeyboardInterrupt
        return super()._get_text_embeddings(texts)


def test_an_interruption_counts_the_documents_and_the_same_command_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for number in range(100):
        (files / f"{number}.txt").write_text(f"number {number}")
    model = InterruptedEmbedding()
    monkeypatch.setattr(knowledge_base, "resolve_embed_model", lambda _: model)
    url = f"embedded:{tmp_path / 'kb'}"
    command = ("ingest", files, "--kb", url, "--embed-model", "local")
    finished = run(*command)
    assert finished.returncode == 130
    assert finished.stderr.startswith(f"interrupted: 64 documents in {url}; run the same command")
    model.is_interrupted = False
    assert "36 added, 0 updated, 64 unchanged" in run(*command).stdout


def test_what_cannot_be_kept_is_refused(run: Run, tmp_path: Path, handbook: Path) -> None:
    lost = run("ingest", handbook, "--kb", "embedded::memory:")
    assert (lost.returncode, lost.stdout) == (1, "")
    assert "embedded:./kb" in lost.stderr
    (tmp_path / "empty").mkdir()
    nothing = run("ingest", tmp_path / "empty", "--kb", f"embedded:{tmp_path / 'kb'}")
    assert nothing.returncode == 1
    assert "nothing to add" in nothing.stderr
    assert not (tmp_path / "kb").exists()


def test_many_bad_files_are_counted(run: Run, tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}.bin").write_bytes(b"\xff")
    finished = run("ingest", tmp_path, "--kb", f"embedded:{tmp_path / 'kb'}")
    assert "left out 10 more" in finished.stderr
    assert len([line for line in finished.stderr.splitlines() if line]) == 22


@pytest.mark.parametrize(
    ("module", "place"),
    [("qdrant_client", "qdrant:{}/qdrant"), ("pymilvus", "milvus:{}/kb.db")],
    ids=["qdrant", "milvus"],
)
def test_the_commands_are_the_same_on_other_engines(
    run: Run, tmp_path: Path, handbook: Path, module: str, place: str
) -> None:
    pytest.importorskip(module)
    url = place.format(tmp_path)
    missing = run("search", "leave", "--kb", url)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "there is no knowledge base" in missing.stderr
    assert list(tmp_path.iterdir()) == [handbook]
    assert "3 added" in run("ingest", handbook, "--kb", url).stdout
    assert "3 unchanged" in run("ingest", handbook, "--kb", url).stdout
    assert best(run, "annual leave", "--kb", url)[0] == "leave.md"


def test_a_knowledge_base_that_requires_a_scope_refuses_commands_without_tenant(
    run: Run, tmp_path: Path, handbook: Path
) -> None:
    url, acme = f"embedded:{tmp_path / 'kb'}", ("--tenant", "acme")
    bare = run("ingest", handbook, "--kb", url, "--require-scope")
    assert (bare.returncode, "--tenant" in bare.stderr) == (1, True)
    assert run("ingest", handbook, "--kb", url, "--require-scope", *acme).returncode == 0
    assert "3 unchanged" in run("ingest", handbook, "--kb", url, *acme).stdout
    assert "yes" in run("info", "--kb", url).stdout
    for command in (("search", "leave"), ("ingest", handbook), ("list",), ("delete", "x")):
        refused = run(*command, "--kb", url)
        assert (refused.returncode, "--tenant" in refused.stderr) == (1, True)
    assert best(run, "annual leave", "--kb", url, *acme)[0] == "leave.md"
    for other in (("--tenant", "globex"), (*acme, "--kb-id", "other")):
        assert best(run, "annual leave", "--kb", url, *other) == []


def test_row_that_its_file_no_longer_has_is_not_found(run: Run, url: str, handbook: Path) -> None:
    rows = ["name,role", "Ann,welder", "Bob,crane operator"]
    (handbook / "staff.csv").write_text("\n".join(rows))
    assert run("ingest", handbook, "--kb", url).returncode == 0
    assert best(run, "crane operator", "--kb", url, "--mode", "keyword") == ["staff.csv"]
    (handbook / "staff.csv").write_text("\n".join(rows[:2]))
    assert run("ingest", handbook, "--kb", url).returncode == 0
    assert best(run, "crane operator", "--kb", url, "--mode", "keyword") == []


def test_a_graph_is_remembered_and_searched(run: Run, tmp_path: Path, handbook: Path) -> None:
    (handbook / "lunch.txt").write_text("On days of leave.md the canteen is closed.")
    url, graph = f"embedded:{tmp_path / 'kb'}", f"graph:{tmp_path / 'graph'}"
    made = run("ingest", handbook, "--kb", url, "--graph", graph)
    assert made.returncode == 0, made.stderr
    assert graph in run("info", "--kb", url).stdout
    assert best(run, "annual leave", "--kb", url, "--mode", "graph")[0] == "leave.md"
    assert "1 document" in run("delete", str(handbook / "lunch.txt"), "--kb", url).stdout
    copy = ("copy", "--from", url, "--to", f"embedded:{tmp_path / 'copy'}")
    assert "--graph" in run(*copy).stderr
    assert "2 copied" in run(*copy, "--graph", f"graph:{tmp_path / 'graph2'}").stdout
    assert run("remove", url, "--yes").returncode == 0
    assert best(run, "年假", "--kb", copy[-1], "--mode", "graph")[0] == "年假.txt"


def test_a_picture_is_no_failure_and_a_broken_file_is(
    run: Run, handbook: Path, tmp_path: Path
) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    (handbook / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (handbook / "rows.csv").write_text("name\nAnn\nBen\n")
    finished = run("ingest", handbook, "--kb", url)
    assert (finished.returncode, "photo.png" in finished.stderr) == (0, True)
    assert finished.stdout.startswith("5 documents from 4 files: 5 added")
    (handbook / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    broken = run("ingest", handbook, tmp_path / "missing.txt", "--kb", url)
    assert broken.returncode == 3
    assert "5 unchanged" in broken.stdout
    assert "3 files left out" in broken.stdout
    assert "broken.pdf" in broken.stderr
    assert "missing.txt: it does not exist" in broken.stderr


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("photo.png", b"\x89PNG\r\n\x1a\n\0\0", 0),
        ("empty.html", b"<p></p>", 0),
        ("bad.txt", b"El ni\xf1o", 3),
        ("bad.eml", b"Subject: a\nContent-Type: text/plain; charset=utf-8\n\nEl ni\xf1o", 3),
    ],
)
def test_ingest_and_sync_end_with_the_same_code_where_something_is_left_out(
    run: Run, handbook: Path, tmp_path: Path, name: str, content: bytes, code: int
) -> None:
    (handbook / name).write_bytes(content)
    for command in ("ingest", "sync"):
        finished = run(command, handbook, "--kb", f"embedded:{tmp_path / command}")
        assert finished.returncode == code, finished.stderr
        assert finished.stderr.count(name) == 1
