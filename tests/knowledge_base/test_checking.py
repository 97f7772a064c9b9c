"""Lost nodes and damaged files are named, and never other answers."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
from llama_index.core import Document

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.errors import StoreFormatError
from tests.knowledge_base.damage import ENDS, Trials, build, copied, counted, open_in
from tests.quick import trials

Open = Callable[..., KnowledgeBase]


def test_lost_nodes_are_named_until_their_documents_are_added_again(open_kb: Open) -> None:
    kb, scope = open_kb(), Scope("acme")
    documents = [Document(id_=name, text=f"the {name} plan") for name in ("first", "second")]
    restricted = Document(id_="board", text="the merger", metadata={"allowed": ["ann"]})
    kb.add([*documents, restricted], scope=scope)
    assert (kb.check().is_whole, kb.check().documents) == (True, 3)
    (lost,) = kb.get("first", scope=scope)
    (foreign,) = kb.get("board", scope=scope)
    kb._storage.store.delete_nodes([lost.node_id])
    foreign.metadata["allowed"] = ["bob"]
    kb._storage.store.add([foreign])
    report = kb.check()
    assert report.to_dict()["damaged"] == {
        "first": [f"1 node not in the store: {lost.node_id}"],
        "board": [
            f"1 node stored for another document, tenant or other principals: {foreign.node_id}",
            f"1 node not found by its tenant or principals: {foreign.node_id}",
        ],
    }
    assert "2 documents are damaged" in repr(report)
    for name in report.damaged:
        kb.delete(name, scope=scope)
    kb.add([*documents, restricted], scope=scope)
    assert kb.check().is_whole


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_a_damaged_file_gives_an_error_or_the_same_answers(tmp_path: Path, end: str) -> None:
    with Trials(tmp_path) as damaged:
        results = [*damaged.run(trials(5), end=end, seed=3)]
    assert counted(results).keys() <= {"same", "error"}, results


@pytest.mark.slow
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
