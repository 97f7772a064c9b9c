"""What a pipe gets to see."""

import pytest
from rich.cells import cell_len
from rich.text import Text

from llama_retrieval_ext.cli.output import one_line, say, say_table, say_wrapped, say_wrong

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
    ends = [
        cell_len(line[: line.index(word)] + word)
        for line, word in zip(lines, ("score", "0.1", "0.2"), strict=True)
    ]
    assert len(set(ends)) == 1


def test_table_has_no_lines_and_a_pipe_gets_whole_rows(capsys: Captured) -> None:
    say_table(("a", "b"), [("x" * 160, "y" * 135)])
    assert capsys.readouterr().out.splitlines()[1].rstrip() == "x" * 160 + "  " + "y" * 135


@pytest.mark.parametrize("text", ["", "short", "long " * 30, "安全生产许可证" * 30, "a安" * 50])
@pytest.mark.parametrize("cells", [10, 11])
def test_cut_line_fits(text: str, cells: int) -> None:
    cut = one_line(text, cells=cells)
    assert cell_len(cut) <= cells
    assert text.replace(" ", "").startswith(cut.rstrip("…").replace(" ", ""))


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("a long sentence", "a long…"),
        ("a long, sentence", "a long,…"),
        ("Donaudampfschifffahrt", "Donaudampf…"),
        ("a Donaudampfschifffahrt", "a Donaudam…"),
    ],
)
def test_line_is_cut_after_a_word_unless_that_leaves_little(text: str, cut: str) -> None:
    assert one_line(text, cells=11) == cut


def test_numbers_are_aligned_to_the_right(capsys: Captured) -> None:
    say_table(("document", "score"), [("a", "15.3"), ("b", "0.981"), ("c", "-")])
    lines = capsys.readouterr().out.splitlines()
    assert [cell_len(line) for line in lines] == [cell_len("document  score")] * 4


def test_wrapped_text_is_indented_and_keeps_its_lines(capsys: Captured) -> None:
    say_wrapped(Text(f"{'word ' * 30}\n\n  code"), indent=4)
    lines = capsys.readouterr().out.splitlines()
    assert [cell_len(line) <= 100 for line in lines] == [True] * 4
    assert [line[:8].rstrip() for line in lines] == ["    word", "    word", "", "      co"]


def test_text_that_is_not_wrapped_stays_as_it_is(capsys: Captured) -> None:
    text = f"{'word ' * 30}end\n\n  code"
    say_wrapped(Text(text), indent=0, wrap=False)
    assert capsys.readouterr().out == f"{text}\n"
