"""The nodes of a document, on every engine."""

from collections.abc import Callable

from llama_index.core.schema import Document

from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.scope import Scope
from tests.knowledge_base.nodes import book

Open = Callable[..., KnowledgeBase]
ACME, GLOBEX = Scope("acme"), Scope("globex")


def test_get_returns_nodes_in_the_order_of_the_text(open_kb: Open) -> None:
    kb = open_kb()
    kb.add([*reversed(book("a")), *book("b")], show_progress=False)
    nodes = kb.get("a")
    assert [node.node_id for node in nodes] == [f"a-{n}" for n in range(12)]
    assert all(len(node.get_embedding()) == 16 for node in nodes)
    assert kb.get("none") == []


def test_get_returns_only_documents_of_the_scope(open_kb: Open) -> None:
    kb = open_kb()
    for scope in (ACME, GLOBEX, None):
        kb.add([Document(id_="d", text=f"leave of {scope}")], scope=scope, show_progress=False)
    for scope in (ACME, GLOBEX, None):
        assert [each.get_content() for each in kb.get("d", scope=scope)] == [f"leave of {scope}"]
    assert kb.get("d", scope=Scope("umbrella")) == []
