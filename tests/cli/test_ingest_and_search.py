"""Files in, hits out, by the command line alone."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import llama_retrieval_ext
from llama_retrieval_ext import LocalEmbedding
from llama_retrieval_ext.knowledge_base import opening
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.readers.files import read_documents
from llama_retrieval_ext.testing.fakes import FakeEmbedding

NOTHING = "nothing found; try other words, --mode keyword or vector, or fewer filters\n"
Run = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def url(tmp_path: Path, run: Run, handbook: Path) -> str:
    url = f"embedded:{tmp_path / 'kb'}"
    finished = run("ingest", handbook, "--kb", url)
    assert finished.returncode == 0, finished.stderr
    return url


def best(run: Run, *args: str) -> list[str]:
    finished = run("search", *args, "--json")
    assert finished.returncode == 0, finished.stderr
    return [hit["metadata"]["file_name"] for hit in json.loads(finished.stdout)["hits"]]


@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
@pytest.mark.parametrize(
    ("query", "file"), [("annual leave", "leave.md"), ("年假", "年假.txt"), ("lunch", "lunch.txt")]
)
def test_ingested_file_is_found(run: Run, url: str, mode: str, query: str, file: str) -> None:
    assert best(run, query, "--kb", url, "--mode", mode)[0] == file


def test_ingesting_again_changes_nothing(run: Run, url: str, handbook: Path) -> None:
    assert "3 unchanged" in run("ingest", handbook, "--kb", url).stdout


def test_changed_file_replaces_itself(run: Run, url: str, handbook: Path) -> None:
    (handbook / "lunch.txt").write_text("The canteen is closed for holidays.")
    assert "1 updated, 2 unchanged" in run("ingest", handbook, "--kb", url).stdout
    assert best(run, "noon", "--kb", url, "--mode", "keyword") == []


def test_knowledge_base_inside_the_folder_is_not_ingested(run: Run, handbook: Path) -> None:
    url = f"embedded:{handbook / 'kb'}"
    assert "3 added" in run("ingest", handbook, "--kb", url).stdout
    assert "3 unchanged" in run("ingest", handbook, "--kb", url).stdout


def test_bad_file_is_named_and_the_rest_goes_in(run: Run, tmp_path: Path, handbook: Path) -> None:
    (handbook / "broken.pdf").write_bytes(b"not a pdf")
    finished = run("ingest", handbook, tmp_path / "missing.txt", "--kb", f"embedded:{tmp_path}/kb")
    assert finished.returncode == 3
    assert "3 added" in finished.stdout
    assert "2 files left out" in finished.stdout
    assert "broken.pdf" in finished.stderr
    assert "missing.txt: it does not exist" in finished.stderr


def test_excluded_files_are_not_left_out_by_error(run: Run, tmp_path: Path, handbook: Path) -> None:
    (handbook / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    url = f"embedded:{tmp_path / 'kb'}"
    finished = run("ingest", handbook, "--kb", url, "--exclude", "*.png", "--exclude", "lunch*")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "2 added" in finished.stdout
    included = run("ingest", handbook, "--kb", url, "--include", "*.md", "--include", "年*")
    assert "2 unchanged" in included.stdout


def test_knowledge_base_in_memory_is_refused_before_files_are_lost(
    run: Run, handbook: Path
) -> None:
    finished = run("ingest", handbook, "--kb", "embedded::memory:")
    assert (finished.returncode, finished.stdout) == (1, "")
    assert "embedded:./kb" in finished.stderr


class InterruptedEmbedding(FakeEmbedding):
    """As if Ctrl-C were pressed while the second batch of documents is embedded."""

    is_interrupted: bool = True

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        if self.is_interrupted and len(self.calls) >= 64:
            raise KeyboardInterrupt
        return super()._get_text_embeddings(texts)


def test_interruption_says_what_is_in_and_how_to_go_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for number in range(100):
        (files / f"{number}.txt").write_text(f"number {number}")
    model = InterruptedEmbedding()
    monkeypatch.setattr(opening, "resolve_embed_model", lambda _: model)
    url = f"embedded:{tmp_path / 'kb'}"
    command = ("ingest", files, "--kb", url, "--embed-model", "local")
    finished = run(*command)
    assert finished.returncode == 130
    assert finished.stderr.startswith(f"interrupted: 64 documents in {url}; run the same command")
    model.is_interrupted = False
    assert "36 added, 0 updated, 64 unchanged" in run(*command).stdout


def test_nothing_to_add_is_an_error_and_makes_no_knowledge_base(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    finished = run("ingest", tmp_path / "empty", "--kb", f"embedded:{tmp_path / 'kb'}")
    assert finished.returncode == 1
    assert "nothing to add" in finished.stderr
    assert not (tmp_path / "kb").exists()


def test_file_that_became_empty_is_no_longer_found(run: Run, url: str, handbook: Path) -> None:
    (handbook / "lunch.txt").write_text("")
    finished = run("ingest", handbook, "--kb", url)
    assert "lunch.txt: no text" in finished.stderr
    assert best(run, "lunch", "--kb", url, "--mode", "keyword") == []


def test_many_bad_files_are_counted(run: Run, tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}.bin").write_bytes(b"\xff")
    finished = run("ingest", tmp_path, "--kb", f"embedded:{tmp_path / 'kb'}")
    assert "left out 10 more" in finished.stderr
    assert len([line for line in finished.stderr.splitlines() if line]) == 22


def test_search_of_a_missing_knowledge_base_makes_none(run: Run, tmp_path: Path) -> None:
    finished = run("search", "leave", "--kb", f"embedded:{tmp_path / 'typo'}")
    assert finished.returncode == 1
    assert "llama-retrieval ingest" in finished.stderr
    assert not (tmp_path / "typo").exists()


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


@pytest.mark.parametrize("query", ["", "  "])
def test_empty_query_is_refused(run: Run, url: str, query: str) -> None:
    finished = run("search", query, "--kb", url)
    assert (finished.returncode, finished.stdout) == (1, "")
    assert "the query is empty" in finished.stderr


def test_no_match_is_no_error(run: Run, url: str) -> None:
    finished = run("search", "zeppelin", "--kb", url, "--mode", "keyword")
    assert (finished.returncode, finished.stdout) == (0, NOTHING)


def test_top_k_limits_the_hits(run: Run, url: str) -> None:
    assert len(best(run, "leave", "--kb", url, "--mode", "vector", "--top-k", "2")) == 2


def test_filter_narrows_the_hits(run: Run, url: str) -> None:
    names = best(run, "leave", "--kb", url, "--mode", "vector", "--filter", "file_name!=leave.md")
    assert sorted(names) == ["lunch.txt", "年假.txt"]
    two = ["--filter", "file_name~TXT", "--filter", 'file_name!="lunch.txt"']
    assert best(run, "leave", "--kb", url, "--mode", "vector", *two) == ["年假.txt"]
    either = "file_name=lunch.txt or not file_name in (leave.md, lunch.txt)"
    names = best(run, "leave", "--kb", url, "--mode", "vector", "--filter", either)
    assert sorted(names) == ["lunch.txt", "年假.txt"]


def test_bad_filter_says_what_to_write(run: Run, url: str) -> None:
    finished = run("search", "leave", "--kb", url, "--filter", "file_name")
    assert finished.returncode == 1
    assert "KEY=VALUE" in finished.stderr


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("file=leave.md", "none of 3 passages looked at has the key 'file'; did you mean 'file_"),
        ("zeppelin=1", "has the key 'zeppelin'; there are: file_name, file_path\n"),
        ("file_name=1", "file_name is text in 3 of 3 passages that have it; you wrote a number: "),
        ("lang=zh or file_name>1", "has the key 'lang'"),
    ],
)
def test_filter_that_matches_nothing_is_explained(
    run: Run, url: str, option: str, hint: str
) -> None:
    finished = run("search", "leave", "--kb", url, "--filter", option)
    assert (finished.returncode, finished.stdout) == (0, NOTHING)
    assert finished.stderr.startswith("hint: ")
    assert hint in finished.stderr
    as_json = run("search", "leave", "--kb", url, "--filter", option, "--json")
    assert json.loads(as_json.stdout)["hits"] == []
    assert hint in as_json.stderr


def test_filter_of_the_right_type_that_matches_nothing_gets_no_hint(run: Run, url: str) -> None:
    finished = run("search", "leave", "--kb", url, "--filter", "file_name=x and not lang=zh")
    assert (finished.stdout, finished.stderr) == (NOTHING, "")


def test_explain_shows_what_ran_and_the_account_of_each_hit(run: Run, url: str) -> None:
    shown = run("search", "annual leave", "--kb", url, "--explain").stdout
    assert "Explanation('annual leave'" in shown
    assert "hybrid: " in shown
    assert " ms" in shown
    assert "vector #1" in shown
    assert "keyword #1" in shown
    assert "adds " in shown


def test_why_not_names_the_stage_where_a_passage_fell_out(run: Run, url: str) -> None:
    search = ("search", "leave", "--kb", url, "--json")
    hits = json.loads(run(*search).stdout)["hits"]
    first, last = hits[0]["chunk_id"], hits[-1]["chunk_id"]
    options = ("--top-k", "1", "--why-not", last)
    assert f"why not: '{last}' was left out by " in run(*search[:-1], *options).stdout
    answer = json.loads(run(*search, *options, "--why-not", first).stdout)
    assert [each["node_id"] for each in answer["why_not"]] == [last, first]
    assert answer["why_not"][1]["rank"] == 1


def test_json_has_query_contributions_and_trace(run: Run, url: str) -> None:
    result = json.loads(run("search", "年假", "--kb", url, "--json").stdout)
    assert result["query"] == "年假"
    legs = {part["leg"] for part in result["hits"][0]["contributions"]}
    assert legs == {"vector", "keyword"}
    assert result["trace"]["duration_ms"] > 0


def test_degraded_answer_says_what_is_missing(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(_: LocalEmbedding, __: str) -> list[float]:
        raise ConnectionError("the model is down")

    monkeypatch.setattr(LocalEmbedding, "_get_query_embedding", down)
    finished = run("search", "annual leave", "--kb", url)
    assert finished.returncode == 0
    assert "leave.md" in finished.stdout
    assert finished.stderr == "degraded: vector: ConnectionError: the model is down\n"


def test_tenants_do_not_see_each_other(run: Run, tmp_path: Path, handbook: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    for tenant, text in (("acme", "Leave is 25 days."), ("globex", "Leave is 20 days.")):
        (tmp_path / tenant).mkdir()
        (tmp_path / tenant / f"{tenant}.txt").write_text(text)
        scope = ("--tenant", tenant, "--kb-id", "handbook")
        assert run("ingest", tmp_path / tenant, "--kb", url, *scope).returncode == 0
    for mode in ("vector", "keyword", "hybrid"):
        found = best(run, "leave", "--kb", url, "--mode", mode, "--tenant", "acme")
        assert found == ["acme.txt"]
    assert best(run, "leave", "--kb", url, "--tenant", "acme", "--kb-id", "other") == []


def test_one_that_requires_a_scope_is_used_with_one_only(
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
    assert best(run, "annual leave", "--kb", url, "--tenant", "globex") == []


def test_a_url_without_a_place_is_told(run: Run, handbook: Path) -> None:
    assert "names no store" in run("ingest", handbook, "--kb", "qdrant").stderr


def test_row_that_its_file_no_longer_has_is_not_found(run: Run, url: str, handbook: Path) -> None:
    rows = ["name,role", "Ann,welder", "Bob,crane operator"]
    (handbook / "staff.csv").write_text("\n".join(rows))
    assert run("ingest", handbook, "--kb", url).returncode == 0
    assert best(run, "crane operator", "--kb", url, "--mode", "keyword") == ["staff.csv"]
    (handbook / "staff.csv").write_text("\n".join(rows[:2]))
    assert run("ingest", handbook, "--kb", url).returncode == 0
    assert best(run, "crane operator", "--kb", url, "--mode", "keyword") == []


def test_another_embedding_model_is_an_error_that_names_both(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "resolve_embed_model", lambda _: FakeEmbedding())
    finished = run("search", "leave", "--kb", url, "--embed-model", "local")
    assert finished.returncode == 1
    assert "FakeEmbedding" in finished.stderr
    assert "wordllama" in finished.stderr


def test_copy_moves_a_knowledge_base_and_says_what_came_of_it(
    run: Run, url: str, tmp_path: Path
) -> None:
    pytest.importorskip("qdrant_client")
    target = f"qdrant:{tmp_path / 'qdrant'}"
    copied = run("copy", "--from", url, "--to", target, "--many-tenants")
    assert (copied.returncode, copied.stderr) == (0, "")
    assert copied.stdout.startswith("3 copied, 0 unchanged; 3 nodes in ")
    assert "0 copied, 3 unchanged" in run("copy", "--from", url, "--to", target).stdout
    assert best(run, "年假", "--kb", target)[0] == "年假.txt"
    assert run("remove", url, "--yes").stdout == f"removed {url}\n"
    run("ingest", tmp_path / "handbook" / "leave.md", "--kb", url)
    told = run("copy", "--from", url, "--to", target)
    assert "2 only at the target" in told.stdout
    assert "--mirror" in told.stderr
    assert "2 removed" in run("copy", "--from", url, "--to", target, "--mirror").stdout
    missing = run("copy", "--from", f"embedded:{tmp_path / 'typo'}", "--to", target)
    assert missing.returncode == 1
    assert "there is no knowledge base" in missing.stderr


def test_a_long_file_leaves_room_for_others(run: Run, url: str, handbook: Path) -> None:
    (handbook / "long.md").write_text("\n\n".join(["Lunch at noon. " * 200] * 5))
    run("ingest", handbook, "--kb", url)
    few = ("--kb", url, "--mode", "keyword", "--top-k", "2")
    assert best(run, "lunch", *few) == ["long.md", "long.md"]
    assert best(run, "lunch", *few, "--per-document", "1") == ["long.md", "lunch.txt"]


def test_remove_asks_first_and_removes_what_is_there(run: Run, url: str, tmp_path: Path) -> None:
    refused = run("remove", url)
    assert refused.returncode == 1
    assert "add --yes" in refused.stderr
    assert run("search", "leave", "--kb", url).returncode == 0
    removed = run("remove", url, "--yes")
    assert (removed.returncode, removed.stdout) == (0, f"removed {url}\n")
    again = run("remove", url, "--yes")
    assert again.returncode == 1
    assert "there is no knowledge base" in again.stderr


@pytest.mark.parametrize(("answer", "is_there"), [("n", True), ("y", False)])
def test_who_is_asked_may_say_no(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch, answer: str, is_there: bool
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    asked = run("remove", url)
    assert "with all its documents?" in asked.stdout + asked.stderr
    assert asked.returncode == (1 if is_there else 0)
    assert (run("search", "leave", "--kb", url).returncode == 0) is is_there


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


@pytest.mark.slow
def test_a_folder_that_is_open_elsewhere_is_searched_read_only(url: str) -> None:
    search = [sys.executable, "-m", "llama_retrieval_ext", "search", "annual leave", "--kb", url]
    with llama_retrieval_ext.KnowledgeBase.open(url, embed_model=LocalEmbedding()):
        finished = subprocess.run(
            [*search, "--read-only"], capture_output=True, text=True, check=False
        )
    assert finished.returncode == 0, finished.stderr
    assert "leave.md" in finished.stdout


def test_a_recorded_model_need_not_be_named(run: Run, handbook: Path, tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        kb.add(read_documents(handbook), show_progress=False)
    for command in (
        ("list",),
        ("info",),
        ("show", str(handbook / "leave.md")),
        ("search", "annual leave", "--mode", "keyword"),
        ("delete", str(handbook / "lunch.txt")),
        ("remove", "--yes"),
    ):
        finished = run(*command, "--kb", url)
        assert finished.returncode == 0, (command, finished.stderr)


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
    assert run("ingest", handbook, "--kb", url).returncode == 3


def test_texts_in_another_encoding_are_read(run: Run, handbook: Path, tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    (handbook / "fee.txt").write_bytes("Die Gebühr beträgt fünf Euro für Schüler.".encode("cp1252"))
    assert run("ingest", handbook, "--kb", url, "--encoding", "cp1252").returncode == 0
    assert "Gebühr" in run("search", "Gebühr", "--kb", url, "--mode", "keyword").stdout
    assert "--encoding" in run("ingest", "-h").stdout
