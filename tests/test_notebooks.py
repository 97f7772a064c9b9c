"""Notebooks are committed with outputs; `.ci/run` compares these with those of another run."""

from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@cases("path", NOTEBOOKS)
def test_a_notebook_is_committed_with_outputs_and_without_errors(path: Path) -> None:
    # It takes seconds to import, which no other worker need spend.
    import nbformat  # noqa: PLC0415

    from tests.notebooks import problems  # noqa: PLC0415

    notebook = nbformat.read(path, as_version=4)
    assert problems(notebook) == []
    kinds = {
        kind
        for cell in notebook.cells
        for o in cell.get("outputs", ())
        for kind in o.get("data", {})
    }
    assert {"text/html", "image/png", "image/svg+xml"} & kinds, "there is nothing to look at"


def test_times_and_ids_do_not_count_and_everything_else_does() -> None:
    import nbformat  # noqa: PLC0415 - as above

    from tests.notebooks import shown  # noqa: PLC0415

    def notebook(text: str) -> Any:
        output = nbformat.v4.new_output("stream", text=text)
        return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x", outputs=[output])])

    once = notebook("3 hits in 4.2 ms, score 0.98123")
    assert shown(once) == shown(notebook("3 hits in 17 ms, score 0.98124"))
    assert shown(once) != shown(notebook("4 hits in 4.2 ms, score 0.98123"))
    assert shown(once) != shown(notebook("3 hits in 4.2 ms, score 0.97123"))
