"""What the knowledge side says where a type, chapter, process or entity is unknown."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from llama_index.core import Document

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.retrievers.kg_rule import KGRetriever
from llama_retrieval_ext.retrievers.knowledge import KnowledgeRetriever
from llama_retrieval_ext.samples.construction_safety import open_construction_safety
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.testing.fakes import FakeEmbedding

Asking: TypeAlias = Callable[[KnowledgeRetriever], Any]
CASE = {"chapter": "安全管理", "engineering_type": "地铁"}


@pytest.fixture(scope="module")
def graph() -> Iterator[GraphBackend]:
    opened, _ = open_construction_safety()
    yield opened
    opened.close()


@pytest.fixture
def knowledge(graph: GraphBackend) -> Iterator[KnowledgeRetriever]:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        kb.add([Document(id_="a", text="深基坑开挖 案例", metadata=CASE)], show_progress=False)
        yield KnowledgeRetriever(kb.retriever("vector"), KGRetriever(graph))


NO_TYPE = "no engineering type '核电站'; the graph has '地铁', '房建', '水利'"


@pytest.mark.parametrize(
    ("ask", "hint"),
    [
        (lambda k: k.retrieve_regulations("核电站"), NO_TYPE),
        (lambda k: k.retrieve_regulations("核电站", ["深基坑开挖"]), NO_TYPE),
        (
            lambda k: k.retrieve_regulations("地铁", ["挖坑"]),
            "no process '挖坑'; the graph has '挖机', '深基",
        ),
        (lambda k: k.infer_rules("x", ["qqq"]), "no process 'qqq' in the graph"),
        (
            lambda k: k.infer_rules("挖坑"),
            "the query names nothing of the graph; the nearest there: '挖机",
        ),
        (
            lambda k: k.legs["rules"].retriever.search("挖坑要注意什么"),
            "the query names nothing of ",
        ),
        (
            lambda k: k.retrieve_cases("案例", chapter="安全"),
            "no passage has '安全' as 'chapter'; there is",
        ),
        (
            lambda k: k.search("案例", chapter="乱写的章节"),
            "no rules for the chapter '乱写的章节'; they run for ",
        ),
    ],
)
def test_what_is_unknown_is_named_with_the_nearest(
    knowledge: KnowledgeRetriever, ask: Asking, hint: str
) -> None:
    answer = ask(knowledge)
    assert not answer
    assert answer.hints[0].startswith(hint)


@pytest.mark.parametrize(
    "ask",
    [
        lambda k: k.retrieve_regulations("地铁"),
        lambda k: k.infer_rules("深基坑开挖"),
        lambda k: k.retrieve_cases("深基坑开挖 案例", chapter="安全管理"),
        lambda k: k.search("深基坑开挖 案例"),
    ],
)
def test_what_is_known_gets_no_hint(knowledge: KnowledgeRetriever, ask: Asking) -> None:
    answer = ask(knowledge)
    assert answer
    assert answer.hints == ()


def test_names_of_another_tenant_are_not_proposed() -> None:
    graph = EmbeddedGraph(":memory:")
    own: dict[str, Any] = {"tenant_id": "acme"}
    nodes = [GraphNode(name, "Process", properties=own) for name in ("digging deep pits", "metro")]
    secret = GraphNode("digging pits", "Process", properties={"tenant_id": "other"})
    edge = Edge.of("digging deep pits", "APPLIES_TO", "metro", properties=own)
    graph.upsert([*nodes, secret], [edge])
    retriever = KGRetriever(graph)
    with pytest.raises(ConfigurationError, match="no process 'dig pit'; the graph has") as raised:
        retriever.requirements("dig pit", scope=Scope("other"))
    assert "deep" not in str(raised.value)
    found = {
        tenant: retriever.search("x", context={"engineering_type": "Z"}, scope=Scope(tenant)).hints
        for tenant in ("acme", "other")
    }
    assert found == {
        "acme": ("no engineering type 'Z'; the graph has 'metro'",),
        "other": ("no engineering type 'Z' in the graph",),
    }
    graph.close()
