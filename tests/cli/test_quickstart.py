"""What a stranger sees first."""

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding
from llama_retrieval_ext.cli.comparison import best_passages, compare
from llama_retrieval_ext.cli.demonstration import samples
from llama_retrieval_ext.cli.program import five_lines
from llama_retrieval_ext.cli.quickstart import QUESTIONS

Shown = subprocess.CompletedProcess[str]
Run = Callable[..., Shown]

EXPECTED = (
    {"python/try", "python/compound", "python/exceptions", "python/execmodel"},
    {"python/function", "python/compound"},
    {"python/string-methods"},
    {"安全生产许可证条例#第九条"},
    {"建设工程安全生产管理条例#第二十六条"},
)


@pytest.fixture(scope="module")
def kb() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=LocalEmbedding()) as opened:
        opened.add(list(samples().documents), show_progress=False)
        yield opened


@pytest.fixture(scope="module")
def shown() -> Shown:
    program = [sys.executable, "-c", "from llama_retrieval_ext.cli import main; main()"]
    return subprocess.run([*program, "quickstart"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("question", "expected"), [*zip(QUESTIONS, EXPECTED, strict=True)])
def test_hybrid_has_the_right_document_in_its_top_3(
    kb: KnowledgeBase, question: str, expected: set[str]
) -> None:
    hybrid = best_passages(compare(kb, question).results["hybrid"])
    assert expected & set(list(hybrid)[:3])


def test_table_has_rank_and_score_of_each_retriever(kb: KnowledgeBase) -> None:
    comparison = compare(kb, QUESTIONS[3])
    assert [cell.split()[0] for cell in comparison.header()] == [
        *("document", "vector", "keyword", "hybrid")
    ]
    first = next(comparison.rows())
    assert first[3].split()[0] == "1"
    assert all(cell == "-" or len(cell.split()) == 2 for cell in first[1:])


def test_best_document_of_every_retriever_has_a_row(kb: KnowledgeBase) -> None:
    for question in QUESTIONS:
        comparison = compare(kb, question)
        rows = [row[0] for row in comparison.rows()]
        assert len(rows) == len(set(rows))
        for result in comparison.results.values():
            assert set(list(best_passages(result))[:3]) <= set(rows)


def test_quickstart_answers_all_questions(shown: Shown) -> None:
    assert shown.returncode == 0, shown.stderr
    for question, expected in zip(QUESTIONS, EXPECTED, strict=True):
        assert question in shown.stdout
        assert any(document in shown.stdout for document in expected)


def test_quickstart_quotes_the_answer(shown: Shown) -> None:
    assert "有效期为3年" in shown.stdout


def test_quickstart_is_honest_about_the_llm(shown: Shown) -> None:
    assert "RetrieverQueryEngine" in shown.stdout
    assert "No LLM" in shown.stdout


def test_quickstart_is_readable_in_a_pipe(shown: Shown) -> None:
    assert "\x1b" not in shown.stdout
    assert not set("│┃━─╭╰") & set(shown.stdout)
    assert "Traceback" not in shown.stderr


def test_quickstart_prints_the_five_lines(shown: Shown) -> None:
    # They are the README's too, where a test runs them.
    assert shown.stdout.rstrip().splitlines()[-5:] == five_lines(QUESTIONS[0]).splitlines()


def test_own_files_are_asked_own_questions(
    run: Run, handbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished = run("quickstart", handbook, "--ask", "员工年假", "--ask", "annual leave")
    assert finished.returncode == 0, finished.stderr
    assert "年假.txt" in finished.stdout
    assert "leave.md" in finished.stdout
    exec("\n".join(finished.stdout.rstrip().splitlines()[-5:]), {})
    assert "二十五天年假" in capsys.readouterr().out


def test_five_lines_for_a_single_file_work(
    handbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(five_lines("annual leave", handbook / "leave.md"), {})
    assert "25 days" in capsys.readouterr().out


def test_five_lines_for_several_paths_read_all_of_them(
    handbook: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "badge.txt").write_text("The badge is blue.")
    program = five_lines("badge", handbook / "leave.md", tmp_path / "more")
    exec(program, {})
    assert "blue" in capsys.readouterr().out
    assert len(program.splitlines()) == 5


def test_own_files_without_a_question_and_nobody_there(run: Run, handbook: Path) -> None:
    finished = run("quickstart", handbook)
    assert finished.returncode == 0
    assert "--ask" in finished.stdout


class Somebody(io.StringIO):
    """What a person types, as far as the program can tell."""

    def isatty(self) -> bool:
        return True


def test_somebody_who_is_there_is_asked_until_there_is_no_question(
    run: Run, handbook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Somebody("annual leave\nlunch\n\nnever read\n"))
    finished = run("quickstart", handbook)
    assert finished.returncode == 0
    assert finished.stdout.count("your question") == 3
    assert "25 days" in finished.stdout
    assert "at noon" in finished.stdout
    assert 'retrieve("annual leave")' in finished.stdout


def test_kept_index_can_be_searched(run: Run, tmp_path: Path, handbook: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    assert run("quickstart", handbook, "--ask", "lunch", "--kb", url).returncode == 0
    assert "lunch.txt" in run("search", "lunch", "--kb", url).stdout
