"""What a pipe gets to see, what is quoted of a passage, and how hits look."""

import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout, suppress

import pytest
from rich.cells import cell_len

from llama_retrieval_ext.cli import main
from llama_retrieval_ext.cli.output import quote, say, say_table
from tests.cases import cases
from tests.cli.conftest import Run, written

Captured = pytest.CaptureFixture[str]


def test_a_pipe_gets_brackets_as_they_are_and_no_colours(capsys: Captured) -> None:
    say("a[0] = [bold]b[/bold] :smile:", style="bold red")
    assert capsys.readouterr().out == "a[0] = [bold]b[/bold] :smile:\n"


def test_columns_are_aligned_over_chinese_and_numbers_to_the_right(capsys: Captured) -> None:
    say_table(
        ("document", "score"), [("安全生产许可证条例", "15.3"), ("python", "0.2"), ("c", "-")]
    )
    lines = capsys.readouterr().out.splitlines()
    assert {cell_len(line) for line in lines} == {cell_len("安全生产许可证条例  score")}


def test_a_pipe_gets_whole_rows_of_a_table(capsys: Captured) -> None:
    say_table(("a", "b"), [("x" * 160, "y" * 135)])
    assert capsys.readouterr().out.splitlines()[1].rstrip() == "x" * 160 + "  " + "y" * 135


ROW = "name: Person50\ncity: Rome\namount: 675"


@cases(
    ("text", "question", "quoted"),
    [
        ("Lunch is free. Leave is 25 days.", "days of leave", ["Leave is 25 days."]),
        ("第一条 总则。第二条 有效期为3年。", "有效期是多久", ["第二条 有效期为3年。"]),
        ("Heading\n\nThe answer is here", "where is the answer", ["The answer is here"]),
        ("", "zeppelin", []),
    ],
)
def test_quote_begins_with_the_sentence_that_answers(
    text: str, question: str, quoted: list[str]
) -> None:
    assert quote(text, question, width=25, lines=1) == quoted
    assert quote(ROW, "Rome", width=25, lines=3) == ROW.splitlines()  # all of it fits


CODE = """The call binds its arguments. For example:

    def bind(first, second):
        return first + second

Defaults are evaluated once."""


def test_quote_keeps_the_lines_of_code() -> None:
    assert quote(CODE, "call", width=60, lines=2) == [
        "The call binds its arguments. For example:",
        "def bind(first, second): …",
    ]
    assert quote(CODE, "bind first second", width=60, lines=2) == [
        "def bind(first, second):",
        "    return first + second …",
    ]


LONG = "\n\n".join(f"Paragraph {number} is about leave and lunch." for number in range(40))


@pytest.fixture(scope="module")
def long_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("output")
    (written(folder / "handbook") / "long.md").write_text(LONG)
    url = f"embedded:{folder / 'kb'}"
    with redirect_stdout(io.StringIO()), suppress(SystemExit):
        main(["ingest", str(folder / "handbook"), "--kb", url])
    return url


@pytest.fixture
def search(run: Run, long_url: str) -> Callable[..., str]:
    def shown(*args: str) -> str:
        finished = run("search", *args, "--kb", long_url)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return shown


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def set_width(columns: int) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))

    return set_width


@pytest.mark.slow
def test_hit_has_rank_score_document_and_its_rank_in_each_leg(search: Callable[..., str]) -> None:
    head, passage, *_ = search("annual leave").splitlines()
    assert head.split()[0] == "1"
    assert 0 < float(head.split()[1]) <= 1
    assert re.search(r"leave\.md  \(vector 1, keyword 1\)  [0-9a-f-]{36}$", head)
    assert passage == "    # Leave"
    assert "\x1b" not in search("annual leave", "--full")


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 120])
def test_passage_takes_the_width_of_the_terminal(
    search: Callable[..., str], terminal: Callable[[int], None], columns: int
) -> None:
    terminal(columns)
    shown = search("zeppelin", "--mode", "vector", "--filter", "file_name=long.md")
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
    widths = [cell_len(line) for line in lines[1:]]
    assert len(widths) == 3
    assert columns - 12 < max(widths) <= columns


@pytest.mark.slow
def test_matched_terms_are_highlighted_on_a_terminal(
    search: Callable[..., str], terminal: Callable[[int], None]
) -> None:
    terminal(80)
    assert "\x1b[1;33mannual\x1b[0m \x1b[1;33mleave\x1b[0m" in search("annual leaves")
    assert "\x1b[1;33m年假\x1b[0m" in search("年假")


@pytest.mark.slow
def test_full_shows_the_whole_passage_in_its_own_lines(search: Callable[..., str]) -> None:
    shown = search("lunch", "--filter", "file_name=long.md", "--full")
    assert "\n".join(line[4:] for line in shown.splitlines()[1:]).strip() == LONG
