"""Damaged files of the embedded engine are errors, and never other answers."""

import gc
from pathlib import Path

import pytest

from llama_retrieval_ext.errors import StoreFormatError
from tests.knowledge_base.damage import ENDS, Trials, build, copied, counted, open_in
from tests.quick import trials


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_a_damaged_file_gives_an_error_or_the_same_answers(tmp_path: Path, end: str) -> None:
    with Trials(tmp_path) as damaged:
        results = [*damaged.run(trials(8), end=end, seed=3)]
    assert counted(results).keys() <= {"same", "error"}, results


def test_a_file_that_changes_while_it_is_closed_is_named_and_another_end_is_compared(
    tmp_path: Path,
) -> None:
    build(tmp_path)
    folder = copied(tmp_path, "closed")
    (status, *_) = sorted(folder.rglob("status.dat"))
    status.write_bytes(b"")
    with pytest.raises(StoreFormatError, match=r"status\.dat has changed.*backup, or delete it"):
        open_in(folder)
    (folder / "kb" / "store.json.closed").unlink()
    with pytest.raises(StoreFormatError, match="cannot read it"):
        open_in(folder)
    gc.collect()
    with open_in(copied(tmp_path, "killed")) as kb:
        assert (kb.check().is_whole, kb.check().documents) == (True, 60)
