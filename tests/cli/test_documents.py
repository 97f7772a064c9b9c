"""`list`, `show`, `delete` and `info`: what a knowledge base holds, from the command line."""

import io
import json
from pathlib import Path

import pytest

from llama_retrieval_ext import KnowledgeBase, Scope
from tests.cli.conftest import Run, best
from tests.knowledge_base.readers.sample_files import write_pdf

pytestmark = pytest.mark.slow


@pytest.fixture
def library(tmp_path: Path, run: Run, handbook: Path) -> str:
    write_pdf(handbook / "law.pdf", "Exits must be marked.", "Drills are held twice a year.")
    url = f"embedded:{tmp_path / 'kb'}"
    finished = run("ingest", handbook, "--kb", url)
    assert finished.returncode == 0, finished.stderr
    return url


def test_files_are_listed_shown_and_deleted(
    run: Run, library: str, handbook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, *rows = [line.split() for line in run("list", "--kb", library).stdout.splitlines()]
    assert header == ["passages", "documents", "source"]
    assert ["2", "2", str(handbook / "law.pdf")] in rows
    assert ["1", "1", str(handbook / "leave.md")] in rows
    assert len(rows) == 4
    listed = json.loads(run("list", "--kb", library, "--json").stdout)
    assert {each["source"] for each in listed} == {row[2] for row in rows}

    with monkeypatch.context() as patched:
        patched.chdir(handbook)
        shown = run("show", "law.pdf", "--kb", library).stdout
    assert shown.startswith("law.pdf: 2 passages\n")
    assert "page=2" in shown
    assert shown.index("Exits must") < shown.index("Drills are")
    nodes = json.loads(run("show", handbook / "law.pdf", "--kb", library, "--json").stdout)
    assert [node["metadata"]["page"] for node in nodes] == [1, 2]

    unknown = run("show", "elsewhere/law.pdf", "--kb", library)
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert f"did you mean {str(handbook / 'law.pdf')!r}?" in unknown.stderr
    assert "list shows what there is" in run("delete", "zeppelin", "--kb", library).stderr

    (handbook / "law.pdf").unlink()
    gone = run("delete", handbook / "law.pdf", "--kb", library)
    assert gone.stdout == f"deleted {handbook / 'law.pdf'}: 2 documents\n"
    assert "nothing found" in run("search", "drills", "--kb", library, "--mode", "keyword").stdout
    assert run("delete", handbook / "*.txt", "--kb", library).returncode == 0
    left = run("list", "--kb", library).stdout
    assert ("lunch.txt" in left, "leave.md" in left) == (False, True)
    assert run("delete", handbook, "--kb", library).returncode == 0
    assert run("list", "--kb", library).stdout == "no documents\n"
    assert (handbook / "lunch.txt").exists()


def test_a_name_that_a_search_prints_is_a_name_of_every_command(run: Run, tmp_path: Path) -> None:
    docs, url = tmp_path / "docs", f"embedded:{tmp_path / 'kb'}"
    (docs / "sub").mkdir(parents=True)
    (docs / "leave.md").write_text("Annual leave is 25 days.")
    (docs / "sub" / "leave.md").write_text("Parental leave is 14 weeks.")
    assert run("ingest", docs, "--kb", url).returncode == 0
    printed = run("search", "leave", "--kb", url).stdout
    assert "docs/leave.md" in printed
    assert "sub/leave.md" in printed
    for name, text in (("docs/leave.md", "Annual"), ("sub/leave.md", "Parental")):
        shown = run("show", name, "--kb", url)
        assert text in shown.stdout, shown.stderr
    ambiguous = run("show", "leave.md", "--kb", url)
    assert ambiguous.returncode == 1
    assert "'leave.md' names 2 files" in ambiguous.stderr
    for path in (docs / "leave.md", docs / "sub" / "leave.md"):
        assert str(path) in "".join(ambiguous.stderr.split("\n"))

    questions = tmp_path / "questions.csv"
    questions.write_text(
        "question,document\nparental weeks,sub/leave.md\nannual days,docs/leave.md\n"
        "25 days,leave.md\nparental weeks leave,docs/sub/leave.md\n"
    )
    measured = run("eval", questions, "--kb", url, "--mode", "keyword", "--measure", "R@10")
    assert "not in the knowledge base" not in measured.stdout
    assert "'leave.md' names several files, which all count: " in measured.stderr
    assert "1.0" in measured.stdout
    assert run("delete", "sub/leave.md", "--kb", url).returncode == 0
    assert "Annual" in run("show", "leave.md", "--kb", url).stdout


def test_info_lists_the_facts_of_a_knowledge_base(run: Run, read_url: str) -> None:
    lines = [line.split("  ", 1) for line in run("info", "--kb", read_url).stdout.splitlines()]
    facts = {name: value.strip() for name, value in lines}
    assert facts.pop("splitting").startswith("PassageParser(chunk_size=512, chunk_overlap=64), ")
    assert facts.pop("size").split()[1] in {"kB", "MB"}
    assert facts == {
        "URL": read_url,
        "engine": "embedded",
        "embedding model": "LocalEmbedding:wordllama-l2-supercat-256, 256 dimensions",
        "files or sources": "3",
        "documents": "3",
        "passages": "3",
        "requires a scope": "no",
        "many tenants": "no",
        "searched fields": "* 1, title 1, headings 0.5",
    }
    assert json.loads(run("info", "--kb", read_url, "--json").stdout)["nodes"] == 3


def test_a_missing_knowledge_base_is_an_error_and_none_is_made(run: Run, tmp_path: Path) -> None:
    for command in (("list",), ("delete", "x"), ("info",)):
        finished = run(*command, "--kb", f"embedded:{tmp_path / 'typo'}")
        assert (finished.returncode, finished.stdout) == (1, "")
        assert "there is no knowledge base" in finished.stderr
        assert not (tmp_path / "typo").exists()


def test_each_tenant_has_its_own_documents(run: Run, tmp_path: Path, handbook: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    leave = handbook / "leave.md"
    for tenant in ("acme", "globex"):
        assert run("ingest", leave, "--kb", url, "--tenant", tenant).returncode == 0
    everything = run("list", "--kb", url).stdout.splitlines()
    assert everything[0].split() == ["passages", "documents", "tenant", "kb", "id", "source"]
    assert len(everything) == 3
    assert run("delete", leave, "--kb", url).returncode == 1
    assert run("delete", leave, "--kb", url, "--tenant", "acme").returncode == 0
    assert run("list", "--kb", url, "--tenant", "acme").stdout == "no documents\n"
    assert len(run("list", "--kb", url, "--tenant", "globex").stdout.splitlines()) == 2


def test_copy_moves_a_knowledge_base_and_counts_its_documents(
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
    outdated = run("copy", "--from", url, "--to", target)
    assert "2 only at the target" in outdated.stdout
    assert "--mirror" in outdated.stderr
    assert "2 removed" in run("copy", "--from", url, "--to", target, "--mirror").stdout
    missing = run("copy", "--from", f"embedded:{tmp_path / 'typo'}", "--to", target)
    assert missing.returncode == 1
    assert "there is no knowledge base" in missing.stderr


def test_copy_to_another_model_names_it_and_checks_it_first(
    run: Run, url: str, tmp_path: Path
) -> None:
    target = f"embedded:{tmp_path / 'new'}"
    unknown = run("copy", "--from", url, "--to", target, "--embed-model", "fastembed:./nowhere")
    assert unknown.returncode == 1
    assert "is not the folder of a model" in unknown.stderr
    assert not (tmp_path / "new").exists()
    same = run("copy", "--from", url, "--to", target, "--embed-model", "local", "--no-compare")
    assert same.stdout.startswith("3 copied, 0 unchanged; 3 nodes in ")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_remove_needs_a_confirmation_and_deletes_the_knowledge_base(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = run("remove", url)
    assert refused.returncode == 1
    assert "add --yes" in refused.stderr
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdin", Terminal("n\n"))
        declined = run("remove", url)
    assert "with all its documents?" in declined.stdout + declined.stderr
    assert declined.returncode == 1
    assert run("search", "leave", "--kb", url).returncode == 0
    removed = run("remove", url, "--yes")
    assert (removed.returncode, removed.stdout) == (0, f"removed {url}\n")
    for yes in ([], ["--yes"]):
        again = run("remove", url, *yes)
        assert again.returncode == 1
        assert "there is no knowledge base" in again.stderr


def test_documents_are_added_for_some_and_shared_with_others(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "board.txt").write_text("The board meets on Monday.")
    url = f"embedded:{tmp_path / 'kb'}"
    assert run("ingest", folder, "--kb", url, "--allowed", "group:board").returncode == 0
    refused = run("share", folder, "--kb", url)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "--everyone" in refused.stderr
    names = ("--allowed", "group:hr", "--allowed", "user:ann")
    assert "1 document" in run("share", folder, "--kb", url, *names).stdout
    assert seen(url) == ["", "group:hr", "user:ann"]
    members: tuple[str, ...]
    for members, count in (((), 1), (("user:ann",), 1), (("user:eve",), 0), (("x", "group:hr"), 1)):
        principals = [word for name in members for word in ("--principal", name)]
        found = run("search", "board", "--kb", url, "--json", *principals)
        assert len(json.loads(found.stdout)["hits"]) == count
    unknown = run("share", "other.txt", "--kb", url, "--allowed", "group:hr")
    assert (unknown.returncode, "no document 'other.txt'" in unknown.stderr) == (1, True)
    assert run("sync", folder, "--kb", url, "--allowed", "group:it").returncode == 0
    assert seen(url) == ["", "group:it"]
    assert run("share", folder, "--kb", url, "--everyone").returncode == 0
    assert seen(url) == ["", "group:board", "group:hr", "group:it", "user:ann", "user:eve"]


def seen(url: str) -> list[str]:
    """Return the principals who see the document, and "" for a scope without any."""
    names = ["group:board", "group:hr", "group:it", "user:ann", "user:eve"]
    with KnowledgeBase.open(url, embed_model="local") as kb:
        scopes = {"": None, **{name: Scope(principals=[name]) for name in names}}
        return [name for name, scope in scopes.items() if kb.documents(scope=scope)]


def test_ranking_rules_are_set_shown_and_cleared_by_scope(
    run: Run, library: str, tmp_path: Path
) -> None:
    file, of_acme = tmp_path / "ranking.yaml", ("--tenant", "acme", "--kb", library)
    file.write_text("synonyms:\n- 年假 = leave\npins:\n- document: lunch.txt\n", encoding="utf-8")
    assert run("ranking", "--kb", library).stdout == "no rules\n"
    assert run("ranking", file, *of_acme).stdout.strip() == file.read_text("utf-8").strip()
    assert json.loads(run("ranking", "--json", *of_acme).stdout)["synonyms"] == ["年假 = leave"]
    file.write_text("pins:\n- documents: x\n")
    wrong = run("ranking", file, "--kb", library)
    assert (wrong.returncode, "line 2" in wrong.stderr) == (1, True)
    assert run("ranking", "--clear", *of_acme).stdout == "no rules\n"
