"""What a stranger sees first."""

import io
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from llama_index.core import Document

from llama_retrieval_ext.cli import main, quickstart
from llama_retrieval_ext.cli.quickstart import QUESTIONS, five_lines
from tests.cli.conftest import Run

pytestmark = pytest.mark.slow

EXPECTED = (
    {"python/try", "python/compound", "python/exceptions", "python/execmodel"},
    {"python/function", "python/compound"},
    {"python/string-methods"},
    {"安全生产许可证条例#第九条"},
    {"建设工程安全生产管理条例#第二十六条"},
)


@pytest.fixture(scope="module")
def shown() -> str:
    """What the quickstart prints on its samples."""
    printed = io.StringIO()
    with redirect_stdout(printed), pytest.raises(SystemExit, match="0"):
        main(["quickstart"])
    return printed.getvalue()


@pytest.mark.parametrize(("question", "expected"), [*zip(QUESTIONS, EXPECTED, strict=True)])
def test_hybrid_has_the_right_document_in_its_top_3(
    shown: str, question: str, expected: set[str]
) -> None:
    _, header, *rows = shown.partition(f"\n{question}")[2].splitlines()
    assert [*header.split()[::3], header.split()[1]] == ["document", "ms", "ms", "ms", "vector"]
    assert expected & {row.split()[0] for row in rows[:3]}
    assert "  1  " in rows[0]


def test_the_samples_are_explained_quoted_and_end_with_the_five_lines(shown: str) -> None:
    assert '"-" means that the document is not among the first 10 passages' in shown
    assert "有效期为3年" in shown
    assert not set("\x1b│┃━─╭╰") & set(shown)
    # They are the README's too, where a test runs them.
    assert shown.rstrip().splitlines()[-5:] == five_lines(QUESTIONS[0]).splitlines()


def test_questions_about_own_files_are_answered_from_them(
    run: Run, handbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished = run("quickstart", handbook, "--ask", "员工年假", "--ask", "annual leave")
    assert finished.returncode == 0, finished.stderr
    assert "年假.txt" in finished.stdout
    assert "leave.md" in finished.stdout
    exec("\n".join(finished.stdout.rstrip().splitlines()[-5:]), {})
    assert "二十五天年假" in capsys.readouterr().out


def test_five_lines_for_several_paths_read_all_of_them(
    handbook: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "badge.txt").write_text("The badge is blue.")
    program = five_lines("badge", [handbook / "leave.md", tmp_path / "more"])
    exec(program, {})
    assert "blue" in capsys.readouterr().out
    assert len(program.splitlines()) == 5


def test_own_files_without_a_question_are_indexed_only_if_the_index_is_kept(
    run: Run, handbook: Path, tmp_path: Path
) -> None:
    finished = run("quickstart", handbook)
    assert (finished.returncode, finished.stdout) == (1, "")
    assert "--ask" in finished.stderr
    url = f"embedded:{tmp_path / 'kb'}"
    kept = run("quickstart", handbook, "--kb", url)
    assert kept.returncode == 0
    assert "3 added" in kept.stdout
    assert f"llama-retrieval search QUESTION --kb {url}" in kept.stdout
    assert "lunch.txt" in run("search", "lunch", "--kb", url).stdout


def test_samples_are_added_to_no_other_documents(
    run: Run, handbook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = Document(id_="python/tuple", text="A tuple is immutable.")
    monkeypatch.setattr(quickstart, "_sample_documents", lambda: [sample])
    url = f"embedded:{tmp_path / 'kb'}"
    again = ("quickstart", "--kb", url, "--ask", "tuple")
    assert "1 added" in run(*again).stdout
    assert "1 unchanged" in run(*again).stdout
    assert run("ingest", handbook, "--kb", url).returncode == 0
    refused = run(*again)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"llama-retrieval search QUESTION --kb {url}" in refused.stderr


class Somebody(io.StringIO):
    """What a person types, as far as the program can tell."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_questions_are_read_until_an_empty_line(
    run: Run, handbook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Somebody("annual leave\nlunch\n\nnever read\n"))
    finished = run("quickstart", handbook)
    assert finished.returncode == 0
    assert finished.stdout.count("your question") == 3
    assert "25 days" in finished.stdout
    assert "at noon" in finished.stdout
    assert 'search("annual leave", top_k=3)' in finished.stdout
