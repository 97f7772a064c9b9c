"""`KnowledgeBase.check` names what to add again."""

from collections.abc import Callable

from llama_index.core import Document

from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.scope import Scope

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
