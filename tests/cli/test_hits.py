"""How hits look on a terminal and in a pipe."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from rich.cells import cell_len

Run = Callable[..., "CompletedProcess[str]"]

LONG = "\n\n".join(f"Paragraph {number} is about leave and lunch." for number in range(40))


@pytest.fixture
def search(tmp_path: Path, run: Run, handbook: Path) -> Callable[..., str]:
    (handbook / "long.md").write_text(LONG)
    url = f"embedded:{tmp_path / 'kb'}"
    assert run("ingest", handbook, "--kb", url).returncode == 0

    def shown(*args: str) -> str:
        finished = run("search", *args, "--kb", url)
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


def test_hit_has_rank_score_document_and_its_rank_in_each_leg(
    search: Callable[..., str],
) -> None:
    head, passage, *_ = search("annual leave").splitlines()
    assert head.split()[0] == "1"
    assert 0 < float(head.split()[1]) <= 1
    assert head.endswith("leave.md  (vector 1, keyword 1)")
    assert passage == "    Every employee has 25 days of annual leave."


def test_pipe_gets_plain_text(search: Callable[..., str]) -> None:
    assert "\x1b" not in search("annual leave", "--full")


@pytest.mark.parametrize("columns", [60, 120, 200])
def test_passage_takes_the_width_of_the_terminal(
    search: Callable[..., str], terminal: Callable[[int], None], columns: int
) -> None:
    terminal(columns)
    lines = search("zeppelin", "--mode", "vector", "--filter", "file_name=long.md").splitlines()
    widths = [cell_len(line) for line in lines[1:]]
    assert len(widths) == 3
    assert columns - 12 < max(widths) <= columns


def test_matched_terms_are_highlighted_on_a_terminal(
    search: Callable[..., str], terminal: Callable[[int], None]
) -> None:
    terminal(80)
    assert "\x1b[1;33mannual\x1b[0m \x1b[1;33mleave\x1b[0m" in search("annual leaves")
    assert "\x1b[1;33m年假\x1b[0m" in search("年假")


def test_full_shows_the_whole_passage_in_its_own_lines(search: Callable[..., str]) -> None:
    shown = search("lunch", "--filter", "file_name=long.md", "--full")
    assert "\n".join(line[4:] for line in shown.splitlines()[1:]).strip() == LONG
