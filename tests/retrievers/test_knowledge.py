"""Rules and cases in one answer: merged by a policy, and either side can stand alone."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import pytest
from llama_index.core import Document

from llama_retrieval_ext import (
    KGRetriever,
    KGRuleRetriever,
    KnowledgePolicy,
    KnowledgeResponse,
    KnowledgeRetriever,
    Query,
    RetrievalItem,
    Scope,
    VectorRetriever,
    open_graph,
    open_store,
)
from llama_retrieval_ext.errors import ConfigurationError, StoreClosedError, TooFewLegsError
from llama_retrieval_ext.graph import Edge, GraphNode
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.samples.construction_safety import (
    construction_safety,
    open_construction_safety,
)
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import RetrieverContract, sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever, FixedRetriever
from tests.cases import cases
from tests.meeting import Meeting, Meets
from tests.retrievers.test_kg_rule import topic_graph

MODEL = FakeEmbedding()
CASES = [
    ("near", 0.9, "A pit collapsed in 2019.", {"engineering_type": "subway"}),
    ("other", 0.8, "A house was built.", {"engineering_type": "house"}),
    ("plain", 0.7, "Pits are deep.", {}),
    ("form", 0.75, "Form 7: excavation permit", {"kb_id": "forms"}),
    ("twin", 0.65, "pits  are deep.", {}),
    ("far", 0.5, "Lunch is at noon.", {}),
]
POLICY = KnowledgePolicy(template_collections=("forms",), case_top_k=5)
PIT = "deep foundation pit excavation"


@pytest.mark.slow
class TestKnowledgeRetriever(RetrieverContract):
    @pytest.fixture(scope="class")
    @staticmethod
    def graph() -> Iterator[EmbeddedGraph]:
        with topic_graph() as graph:
            yield graph

    @pytest.fixture
    def retriever(self, store: EmbeddedVectorStore, graph: EmbeddedGraph) -> Retriever:
        policy = KnowledgePolicy(case_threshold=0.0, case_top_k=8)
        vector = VectorRetriever(store, embed_model=MODEL, top_k=20)
        return KnowledgeRetriever(vector, KGRetriever(graph), policy=policy)


@pytest.fixture(scope="module")
def rules() -> Iterator[KGRuleRetriever]:
    graph, rules = open_construction_safety()
    with graph:
        yield KGRuleRetriever(graph, rules)


def test_rules_come_before_cases_and_cases_before_templates(rules: KGRuleRetriever) -> None:
    knowledge = KnowledgeRetriever(FixedRetriever(CASES), rules, policy=POLICY)
    response = knowledge.search(PIT)
    order = [(item.priority, -item.score) for item in response.items]
    assert order == sorted(order)
    assert {item.source for item in response.items} == {"kg_rule", "vector", "template"}
    assert [item.content for item in response.cases] == [
        *("A pit collapsed in 2019.", "A house was built.", "Pits are deep.")
    ]
    assert response.items[-1].content == "Form 7: excavation permit"
    assert response.items[-1].score == 0.75
    assert response.regulations[0].metadata["proof"]
    assert response.query_context["processes"] == ["深基坑开挖"]
    shown = json.loads(json.dumps(response.to_dict(), ensure_ascii=False))
    assert shown["items"][0]["source"] == shown["hits"][0]["source"] == "kg_rule"
    assert response.degraded == ()


def test_sync_and_async_knowledge_methods_agree(rules: KGRuleRetriever) -> None:
    knowledge = KnowledgeRetriever(FixedRetriever(CASES), rules, policy=POLICY)

    async def every() -> list[object]:
        return [
            (await knowledge.asearch(PIT, chapter="safety")).items,
            await knowledge.aretrieve_regulations("subway", ["deep-pit"]),
            await knowledge.aretrieve_cases(PIT, "safety", "subway", 1),
            await knowledge.ainfer_rules(PIT, ["deep-pit"]),
        ]

    assert asyncio.run(every()) == [
        knowledge.search(PIT, chapter="safety").items,
        knowledge.retrieve_regulations("subway", ["deep-pit"]),
        knowledge.retrieve_cases(PIT, "safety", "subway", 1),
        knowledge.infer_rules(PIT, ["deep-pit"]),
    ]


@cases(
    ("chapter", "searched"),
    [(None, True), ("Safety", True), ("第三章 质量管理", True), ("cost", False), ("进度", False)],
)
def test_the_policy_says_for_which_chapters_rules_are_searched(
    rules: KGRuleRetriever, chapter: str | None, searched: bool
) -> None:
    response = KnowledgeRetriever(FixedRetriever(CASES), rules).search(PIT, chapter=chapter)
    assert bool(response.regulations) is searched
    assert response.query_context["rules_asked"] is searched
    assert response.cases
    assert response.degraded == ()


def test_cases_of_another_engineering_type_are_left_out(rules: KGRuleRetriever) -> None:
    knowledge = KnowledgeRetriever(FixedRetriever(CASES), rules)
    found = knowledge.retrieve_cases(PIT, engineering_type="subway", limit=5)
    assert [item.content for item in found if "house" in item.content] == []
    assert len(found) == 3  # "form" is a case here; "twin" repeats "plain"
    assert len(knowledge.retrieve_cases(PIT, limit=1)) == 1


def test_rules_or_cases_can_stand_alone(rules: KGRuleRetriever) -> None:
    only_rules = KnowledgeRetriever(rules=rules)
    assert only_rules.search(PIT).cases == only_rules.retrieve_cases(PIT) == []
    assert only_rules.retrieve(PIT)
    only_cases = KnowledgeRetriever(FixedRetriever(CASES))
    assert only_cases.search(PIT).regulations == []
    assert only_cases.retrieve_regulations(None, ["pit"]) == []
    assert only_cases.retrieve(PIT)
    with pytest.raises(ConfigurationError, match="needs a side"):
        KnowledgeRetriever()


def test_a_failing_side_of_knowledge_keeps_the_other_and_degrades(rules: KGRuleRetriever) -> None:
    down = FakeRetriever(error=ConnectionError("no route to host"))
    response = KnowledgeRetriever(down, rules).search(PIT)
    assert response.regulations
    assert [(part.where, "no route" in part.reason) for part in response.degraded] == [
        ("vector", True)
    ]
    graph, own = open_construction_safety()
    closed = KGRuleRetriever(graph, own)
    graph.close()
    response = KnowledgeRetriever(FixedRetriever(CASES), closed).search(PIT)
    assert response.cases
    assert [(part.where, "closed" in part.reason) for part in response.degraded] == [
        ("rules", True)
    ]
    with pytest.raises(TooFewLegsError):
        KnowledgeRetriever(down, closed).search(PIT)


def test_a_side_of_knowledge_without_hits_keeps_the_other_and_degrades(
    rules: KGRuleRetriever,
) -> None:
    response = KnowledgeRetriever(FixedRetriever(CASES), rules).search("payroll")
    assert response.cases
    assert [part.where for part in response.degraded] == ["rules"]
    response = KnowledgeRetriever(FixedRetriever([("a", 0.4, "x")]), rules).search(PIT)
    assert response.regulations
    (part,) = response.degraded
    assert (part.where, "0.6" in part.reason, "0.4" in part.reason) == ("vector", True, True)


def test_rules_and_cases_are_searched_at_the_same_time(rules: KGRuleRetriever) -> None:
    meeting = Meeting(2)
    sides = (Meets(CASES, meeting), Meets([("r", 0.9, "A rule")], meeting))
    response = KnowledgeRetriever(*sides).search(PIT)
    assert len(response.regulations) == 1


@pytest.mark.slow
def test_infer_rules_takes_a_question_or_a_context(rules: KGRuleRetriever) -> None:
    knowledge = KnowledgeRetriever(rules=rules)
    by_text = knowledge.infer_rules("which measures?", ["deep-pit"])
    assert by_text == knowledge.infer_rules({"query": "which measures?"}, ["deep-pit"])
    assert by_text[0].metadata["kind"] == "measure"
    named = knowledge.infer_rules({"chapter": "emergency"}, ["deep-pit"])
    assert any(item.metadata["kind"] == "emergency" for item in named)
    assert knowledge.infer_rules(PIT) == knowledge.infer_rules({"query": PIT}) != []
    assert knowledge.infer_rules({"engineering_type": "地铁"})
    with pytest.raises(ConfigurationError, match="TextToCypher"):
        knowledge.infer_rules("which measures?", ["deep-pit"], use_llm=True)


@pytest.mark.slow
def test_from_storage_opens_and_closes_store_and_graph(tmp_path: Path) -> None:
    store_url, graph_url = f"embedded:{tmp_path / 'store'}", f"graph:{tmp_path / 'graph'}"
    with open_store(store_url) as store:
        store.add(sample_nodes(MODEL))
    graph = open_graph(graph_url)
    graph.upsert(*construction_safety())
    graph.close()
    with KnowledgeRetriever.from_storage(
        store_url, graph=graph_url, embed_model=MODEL
    ) as knowledge:
        response = knowledge.search(PIT)
        assert isinstance(response, KnowledgeResponse)
        assert response.regulations
    knowledge.close()
    with pytest.raises(TooFewLegsError) as failed:
        knowledge.search(PIT)
    assert any(isinstance(error, StoreClosedError) for error in failed.value.causes.values())
    with KnowledgeRetriever.from_storage(store_url, embed_model=MODEL) as again:
        assert again.retrieve_cases("annual leave days") is not None
    with pytest.raises(ConfigurationError, match="rules need a graph"):
        KnowledgeRetriever.from_storage(store_url, rules="rules.yaml")


def test_a_scope_holds_for_rules_and_cases_in_every_method() -> None:
    question, process, acme = "annual leave days", ["annual leave"], Scope("acme")
    with topic_graph() as graph, EmbeddedVectorStore(":memory:") as store:
        store.add(sample_nodes(MODEL))
        policy = KnowledgePolicy(case_threshold=0.0)
        made = KnowledgeRetriever.from_storage(store, graph=graph, embed_model=MODEL, policy=policy)
        response = made.search(Query(question, scope=acme))
        assert response.regulations
        assert response.cases
        for name, items in {
            "search": response.items,
            "retrieve_cases": made.retrieve_cases(question, scope=acme),
            "infer_rules": made.infer_rules(question, scope=acme),
            "retrieve_regulations": made.retrieve_regulations(processes=process, scope=acme),
        }.items():
            assert {item.metadata["tenant_id"] for item in items} == {"acme"}, name


@cases("key", ["collection", "kb_id"])
def test_templates_are_recognised_by_default_and_follow_the_cases(key: str) -> None:
    found = [("form", 0.9, "Form 7", {key: "templates"}), ("pit", 0.8, "A pit collapsed.", {})]
    knowledge = KnowledgeRetriever(FixedRetriever(found))
    case, template = knowledge.retrieve_cases("pit")
    assert (case.source, case.priority, case.content) == ("vector", 2, "A pit collapsed.")
    assert (template.source, template.priority, template.content) == ("template", 3, "Form 7")
    assert knowledge.search("pit").cases == [case]


def test_the_query_context_keeps_the_processes_of_the_caller(rules: KGRuleRetriever) -> None:
    both = KnowledgeRetriever(FixedRetriever(CASES), rules)
    for knowledge, chapter, processes in (
        (both, "cost", ["deep-pit"]),
        (both, None, ["deep-pit"]),
        (both, None, ["no such process"]),
        (KnowledgeRetriever(FixedRetriever(CASES)), None, ["deep-pit"]),
    ):
        response = knowledge.search("which?", chapter=chapter, processes=processes)
        assert response.query_context["processes"] == processes


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


@pytest.mark.slow
@cases(
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


@pytest.mark.slow
@cases(
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


def test_an_item_has_any_mapping_as_metadata() -> None:
    item = RetrievalItem("text", "vector", 2, 0.5, MappingProxyType({"year": 2024}))
    assert item.to_dict()["metadata"] == {"year": 2024}


@cases("wrong", [{"case_threshold": 2.0}, {"case_top_k": 0}, {"priorities": {"kg_rule": 1}}])
def test_a_policy_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        KnowledgePolicy(**wrong)  # type: ignore[arg-type]  # on purpose
