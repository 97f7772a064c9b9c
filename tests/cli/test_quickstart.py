"""What a stranger sees first."""

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import openpyxl
import pytest

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding
from llama_retrieval_ext.cli.quickstart import (
    QUESTIONS,
    best_passages,
    compare,
    five_lines,
    samples,
    table_of,
)
from tests.cli.conftest import Run
from tests.knowledge_base.readers.sample_files import write_pdf

pytestmark = pytest.mark.slow

Shown = subprocess.CompletedProcess[str]

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
    hybrid = best_passages(compare(kb, question)["hybrid"])
    assert expected & set(list(hybrid)[:3])


def test_table_has_rank_and_score_of_each_retriever(kb: KnowledgeBase) -> None:
    header, (first, *_) = table_of(compare(kb, QUESTIONS[3]))
    assert [cell.split()[0] for cell in header] == ["document", "vector", "keyword", "hybrid"]
    assert first[3].split()[0] == "1"
    assert all(cell.split() == ["-"] or len(cell.split()) == 2 for cell in first[1:])


def test_missing_rank_is_explained(shown: Shown) -> None:
    assert '"-" means that the document is not among the first 10 passages' in shown.stdout


def test_best_document_of_every_retriever_has_a_row(kb: KnowledgeBase) -> None:
    for question in QUESTIONS:
        results = compare(kb, question)
        rows = [row[0] for row in table_of(results)[1]]
        assert len(rows) == len(set(rows))
        for result in results.values():
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


def test_questions_about_own_files_are_answered_from_them(
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


def test_own_files_without_a_question_are_not_indexed_for_nothing(
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


@pytest.mark.parametrize("paths", [(), ("handbook",)])
def test_empty_question_is_refused(run: Run, paths: tuple[str, ...]) -> None:
    finished = run("quickstart", *paths, "--ask", "lunch", "--ask", " ")
    assert (finished.returncode, finished.stdout) == (1, "")
    assert "--ask is empty" in finished.stderr


def test_samples_are_not_added_to_other_documents(
    run: Run, handbook: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    assert run("ingest", handbook, "--kb", url).returncode == 0
    answered = run("quickstart", "--kb", url, "--ask", "annual leave")
    assert answered.returncode == 0, answered.stderr
    assert f"{url} holds 3 documents; the samples are not added" in answered.stdout
    assert "leave.md" in answered.stdout
    exec("\n".join(answered.stdout.rstrip().splitlines()[-5:]), {})
    assert "25 days" in capsys.readouterr().out
    refused = run("quickstart", "--kb", url)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "--ask" in refused.stderr
    assert "3 unchanged" in run("ingest", handbook, "--kb", url).stdout
    assert "python/" not in run("search", "exception", "--kb", url).stdout


def test_samples_that_are_there_are_used_again(run: Run, tmp_path: Path) -> None:
    again = ("quickstart", "--kb", f"embedded:{tmp_path / 'kb'}")
    assert "367 added" in run(*again, "--ask", "tuple").stdout
    finished = run(*again)
    assert "367 unchanged" in finished.stdout
    assert QUESTIONS[0] in finished.stdout


def test_five_lines_work_on_every_kind_of_file_that_the_quickstart_reads(
    run: Run, handbook: Path
) -> None:
    write_pdf(handbook / "rules.pdf", "Exits must be marked.")
    workbook = openpyxl.Workbook()
    workbook.active.append(["name", "role"])
    workbook.active.append(["Ann", "welder"])
    workbook.save(handbook / "staff.xlsx")
    (handbook / "通知.txt").write_bytes("会议改到星期五下午三点。".encode("gb18030"))
    (handbook / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    finished = run("quickstart", handbook, "--ask", "会议改到星期几", "--ask", "welder")
    assert finished.returncode == 0
    assert "1 file left out" in finished.stdout
    assert "logo.png" in finished.stderr
    program = "\n".join(finished.stdout.rstrip().splitlines()[-5:])
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert printed.returncode == 0, printed.stderr
    assert "星期五" in printed.stdout


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


def test_kept_index_can_be_searched(run: Run, tmp_path: Path, handbook: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    assert run("quickstart", handbook, "--ask", "lunch", "--kb", url).returncode == 0
    assert "lunch.txt" in run("search", "lunch", "--kb", url).stdout
