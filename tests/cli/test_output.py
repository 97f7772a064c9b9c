"""What a pipe gets to see."""

import pytest
from rich.cells import cell_len

from llama_retrieval_ext.cli.output import one_line, say, say_table, say_wrong

Captured = pytest.CaptureFixture[str]


def test_brackets_are_shown_and_not_obeyed(capsys: Captured) -> None:
    say("a[0] = [bold]b[/bold] :smile:")
    assert capsys.readouterr().out == "a[0] = [bold]b[/bold] :smile:\n"


def test_pipe_gets_no_colours(capsys: Captured) -> None:
    say("heading", style="bold red")
    assert capsys.readouterr().out == "heading\n"


def test_error_is_one_line_on_standard_error(capsys: Captured) -> None:
    say_wrong("it is\n  " + "long " * 60)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("error: it is long long")


def test_columns_are_aligned_over_chinese(capsys: Captured) -> None:
    say_table(("document", "score"), [("安全生产许可证条例", "0.1"), ("python/try", "0.2")])
    lines = capsys.readouterr().out.splitlines()
    starts = [
        cell_len(line[: line.index(word)])
        for line, word in zip(lines, ("score", "0.1", "0.2"), strict=True)
    ]
    assert len(set(starts)) == 1


def test_table_has_no_lines_and_a_pipe_at_least_100_columns(capsys: Captured) -> None:
    say_table(("a", "b"), [("x" * 60, "y" * 35)])
    assert capsys.readouterr().out.splitlines()[1].rstrip() == "x" * 60 + "  " + "y" * 35


@pytest.mark.parametrize("text", ["", "short", "long " * 30, "安全生产许可证" * 30, "a安" * 50])
@pytest.mark.parametrize("cells", [10, 11])
def test_cut_line_fits(text: str, cells: int) -> None:
    cut = one_line(text, cells=cells)
    assert cell_len(cut) <= cells
    assert text.replace(" ", "").startswith(cut.rstrip("…").replace(" ", ""))
