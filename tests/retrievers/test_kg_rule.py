# ruff: noqa: RUF001 - Chinese has its own punctuation
"""Rules answer for the processes that a query names: sentences with proofs, within the scope."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from llama_index.core.graph_stores.simple_labelled import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import EntityNode, PropertyGraphStore, Relation

from llama_retrieval_ext import (
    KGRetriever,
    KGRuleRetriever,
    KnowledgeRetriever,
    Query,
    RetrievalItem,
    Scope,
)
from llama_retrieval_ext.errors import ConfigurationError, ScopeViolationError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.adjacency import Adjacency, Changes
from llama_retrieval_ext.graph.backend import WritableGraph
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.open import graph_of, open_graph
from llama_retrieval_ext.graph.rules.yaml import parse_rules
from llama_retrieval_ext.hits import document_title
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.samples.construction_safety import open_construction_safety
from llama_retrieval_ext.testing.retriever_contract import RetrieverContract
from llama_retrieval_ext.wording import short
from tests.cases import cases
from tests.searching import Searched
from tests.servers.neo4j import neo4j_url

__all__ = ["neo4j_url"]

ACME, GLOBEX = Scope("acme"), Scope("globex")
# Each topic of the contract's queries is known to both tenants.
TOPICS = ("annual leave", "员工年假", "parse_filters", "canteen")
KNOWLEDGE_BASES = ("handbook", "engineering")

CHAPTERS = parse_rules("""
rules:
  - id: safety
    kind: measure
    match: [{node: process}, {follow: HAS_HAZARD, node: hazard}]
    where: [{context: chapter, value: safety}]
    then: "{process} is dangerous: {hazard}"
""")


def topic_graph() -> EmbeddedGraph:
    graph = EmbeddedGraph(":memory:")
    for tenant in ("acme", "globex"):
        for kb in KNOWLEDGE_BASES:
            own = {"tenant_id": tenant, "kb_id": kb}
            nodes = [GraphNode(topic, "Process", topic, own) for topic in TOPICS]
            edges = [Edge.of(topic, "USES", f"{tenant} {kb}", own) for topic in TOPICS]
            graph.upsert(nodes, edges)
    return graph


class TestKGRetriever(RetrieverContract):
    @pytest.fixture(scope="class")
    @staticmethod
    def graph() -> Iterator[EmbeddedGraph]:
        with topic_graph() as graph:
            yield graph

    @pytest.fixture
    def retriever(self, graph: EmbeddedGraph) -> Retriever:
        return KGRetriever(graph, top_k=5)


def pit(tenant: str) -> tuple[list[GraphNode], list[Edge]]:
    own = {"tenant_id": tenant}
    nodes = [
        GraphNode(
            "pit", "Process", "深基坑开挖", {**own, "aliases": ["deep pit"], "name_en": "deep pit"}
        ),
        GraphNode("collapse", "Hazard", "坍塌", {**own, "name_en": "collapse"}),
        GraphNode("flood", "Hazard", "涌水", {**own, "name_en": "flooding"}),
        GraphNode("bracing", "Measure", f"支护 {tenant}", {**own, "name_en": f"bracing {tenant}"}),
        GraphNode("crane", "Equipment", "塔吊", {**own, "name_en": "crane"}),
        GraphNode("level", "QualityPoint", "标高", {**own, "name_en": "level"}),
    ]
    triples = [
        ("pit", "HAS_HAZARD", "collapse"),
        ("pit", "HAS_HAZARD", "flood"),
        ("collapse", "MITIGATED_BY", "bracing"),
        ("pit", "USES", "crane"),
        ("crane", "CAUSES", "collapse"),
        ("pit", "HAS_QUALITY_POINT", "level"),
    ]
    return nodes, [Edge.of(*triple, own) for triple in triples]


def filled(graph: WritableGraph) -> WritableGraph:
    for tenant in ("acme", "globex"):
        graph.upsert(*pit(tenant))
    return graph


@pytest.fixture
def graph() -> Iterator[WritableGraph]:
    with EmbeddedGraph(":memory:") as embedded:
        yield filled(embedded)


@pytest.fixture(params=["graph", pytest.param("neo4j", marks=pytest.mark.slow)])
def any_graph(request: pytest.FixtureRequest) -> Iterator[WritableGraph]:
    if request.param == "graph":
        yield request.getfixturevalue("graph")
        return
    with open_graph(request.getfixturevalue("neo4j_url")) as server:
        server.clear(scope=None)
        yield filled(server)
        server.clear(scope=None)


def test_a_process_named_in_a_question_has_its_whole_chain_with_proofs(
    any_graph: WritableGraph, searched: Searched
) -> None:
    retriever = KGRetriever(any_graph, scope=ACME)
    result = searched(retriever, "Which measures does the deep pit require?")
    assert {hit.text for hit in result.hits[:2]} == {
        "deep pit requires bracing acme against collapse",
        "deep pit requires a measure that the graph does not name against flooding",
    }
    assert (
        result[2].text
        == "deep pit uses crane, which can cause collapse, and so requires bracing acme"
    )
    assert {hit.text for hit in result.hits[3:]} == {
        "deep pit uses crane",
        "the quality of deep pit depends on level",
    }
    shown = json.loads(json.dumps(result.to_dict(), ensure_ascii=False))["hits"][0]
    assert (shown["source"], shown["priority"]) == ("kg_rule", 1)
    assert 0 < shown["score"] <= 1
    proofs = {hit.text: [str(edge) for edge in hit.proof] for hit in result.hits}
    assert proofs["deep pit requires bracing acme against collapse"] == [
        "deep pit -HAS_HAZARD-> collapse",
        "collapse -MITIGATED_BY-> bracing acme",
    ]
    assert result.details["processes"] == ["深基坑开挖"]


def test_an_explanation_names_the_entities_also_if_no_rule_applies(graph: WritableGraph) -> None:
    explanation = KGRetriever(graph, scope=ACME).explain("涌水有多危险？")
    assert explanation.hits == []
    assert "entities: flood" in str(explanation)


def test_a_question_in_chinese_is_answered_in_chinese(graph: WritableGraph) -> None:
    retriever = KGRetriever(graph, scope=ACME)
    first = retriever.retrieve("深基坑开挖需要哪些安全措施？")
    assert "深基坑开挖存在坍塌危险，须采取措施：支护 acme" in {
        hit.node.get_content() for hit in first[:2]
    }


def test_sentences_and_proofs_are_in_the_language_of_the_question_or_in_that_asked_for(
    any_graph: WritableGraph,
) -> None:
    chinese = "深基坑开挖 -存在危险-> 坍塌", "坍塌 -防控措施为-> 支护 acme"
    english = "deep pit -HAS_HAZARD-> collapse", "collapse -MITIGATED_BY-> bracing acme"
    for language, context, question, proof in (
        (None, {}, "深基坑开挖要防范坍塌吗？", chinese),
        (None, {}, "Which measures does 深基坑开挖 require, and against which hazards?", english),
        ("zh", {}, "deep pit", chinese),
        ("zh", {"language": "en"}, "深基坑开挖", english),
    ):
        retriever = KGRetriever(any_graph, language=language, scope=ACME)
        result = retriever.search(question, context=context)
        assert proof in [tuple(map(str, hit.proof)) for hit in result]
        assert [document_title(hit) for hit in result] == [short(hit.text) for hit in result]
    result = KGRetriever(any_graph, language="de", scope=ACME).search("deep pit")
    assert (result.hits, result.hints) == ([], ("the rules have sentences in zh, en, not in 'de'",))


@cases("process", ["pit", "深基坑开挖", "what is a deep pit?"])
def test_requirements_list_equipment_hazards_and_quality_points(
    graph: WritableGraph, process: str
) -> None:
    retriever = KGRetriever(graph, scope=ACME)
    found = retriever.requirements(process)
    assert found.process == "深基坑开挖"
    assert len(found.equipment) == len(found.quality_points) == 1
    assert sorted(len(measures) for _, measures in found.hazards) == [0, 1]
    assert asyncio.run(retriever.arequirements(process)) == found
    assert json.loads(json.dumps(found.to_dict()))["process"] == "深基坑开挖"


def test_an_unknown_process_is_an_error_that_names_it(graph: WritableGraph) -> None:
    with pytest.raises(ConfigurationError, match="'tunnelling'"):
        KGRetriever(graph).requirements("tunnelling")
    assert KGRetriever(graph).retrieve("tunnelling") == []


def test_processes_are_taken_from_the_context(graph: WritableGraph) -> None:
    retriever = KGRetriever(graph, scope=ACME)
    named = retriever.search("what is needed?", context={"processes": ["pit"]})
    assert {hit.text for hit in named} == {hit.text for hit in retriever.search("deep pit")}
    with pytest.raises(ConfigurationError, match="processes"):
        retriever.search("what?", context={"processes": [1]})


def test_one_id_in_two_knowledge_bases_is_two_nodes() -> None:
    with EmbeddedGraph(":memory:") as graph:
        for kb in ("a", "b"):
            own = {"kb_id": kb}
            nodes = [GraphNode("pit", "Process", "pit", own), GraphNode("x", "Equipment", kb, own)]
            graph.upsert(nodes, [Edge.of("pit", "USES", "x", own)])
        hits = KGRetriever(graph).retrieve("pit")
        assert {(hit.node.get_content(), hit.metadata["kb_id"]) for hit in hits} == {
            ("pit uses a", "a"),
            ("pit uses b", "b"),
        }


def test_a_tenant_sees_its_own_rows_only(any_graph: WritableGraph) -> None:
    retriever = KGRetriever(any_graph)
    for tenant, scope in (("acme", ACME), ("globex", GLOBEX)):
        alone = EmbeddedGraph(":memory:")
        with alone:
            alone.upsert(*pit(tenant))
            expected = KGRetriever(alone).search("deep pit", scope=scope)
            found = retriever.search("deep pit", scope=scope)
            assert [hit.to_dict() for hit in found] == [hit.to_dict() for hit in expected]
            assert found[0].metadata["tenant_id"] == tenant
    assert retriever.search("deep pit", scope=Scope("spy")).hits == []


def test_an_exclusion_holds_in_the_knowledge_base_of_the_node(any_graph: WritableGraph) -> None:
    rules = parse_rules("""
rules:
  - id: unmitigated
    match: [{node: hazard, label: Danger}]
    unless: [{from: hazard, follow: MITIGATED_BY, node: measure}]
    then: "{hazard} has no measure"
""")
    for kb_id, edges in (("a", [("gas", "MITIGATED_BY", "fan")]), ("b", [])):
        own = {"tenant_id": "acme", "kb_id": kb_id}
        nodes = [GraphNode("gas", "Danger", f"gas of {kb_id}", own)]
        any_graph.upsert(nodes, [Edge.of(*edge, own) for edge in edges])
    for principals in (None, ["user:ann"]):
        scope = Scope("acme", ["a", "b"], principals)
        query = Query("Which?", context={"processes": ["gas"]})
        (hit,) = KGRuleRetriever(any_graph, rules, scope=scope).retrieve(query)
        assert (hit.text, hit.metadata["kb_id"]) == ("gas of b has no measure", "b")


def test_a_rule_names_passages_by_their_label(any_graph: WritableGraph) -> None:
    rules = parse_rules("""
rules:
  - id: source
    match: [{node: thing}, {follow: MENTIONS, direction: in, node: passage, label: text_chunk}]
    then: "{passage} is about {thing}"
""")
    own = {"tenant_id": "acme"}
    passage = GraphNode("p1", "text_chunk", properties=own, text="A crane.")
    edges = [Edge.of(source, "MENTIONS", "crane", own) for source in ("p1", "pit")]
    any_graph.upsert([passage], edges)
    hits = KGRuleRetriever(any_graph, rules, scope=ACME).retrieve("塔吊")
    assert [hit.text for hit in hits] == ["p1 is about 塔吊"]


@pytest.fixture(params=["simple", pytest.param("neo4j", marks=pytest.mark.slow)])
def foreign_store(request: pytest.FixtureRequest) -> Iterator[PropertyGraphStore]:
    """A store of LlamaIndex: an edge can join knowledge bases, and name no partition."""
    if request.param == "simple":
        yield SimplePropertyGraphStore()
        return
    module = pytest.importorskip("llama_index.graph_stores.neo4j")
    url = request.getfixturevalue("neo4j_url")
    with open_graph(url) as server:
        server.clear(scope=None)
        with closing(module.Neo4jPropertyGraphStore(username="", password="", url=url)) as store:
            yield store
        server.clear(scope=None)


def test_an_edge_of_llamaindex_is_in_the_partition_it_names_or_in_those_of_its_ends(
    foreign_store: PropertyGraphStore,
) -> None:
    homes = {"Pit": "a", "Crane": "b", "Gas": "a", "Truck": "a"}
    nodes = [
        EntityNode(name=name, properties={"tenant_id": "acme", "kb_id": kb})
        for name, kb in homes.items()
    ]
    foreign_store.upsert_nodes(nodes)
    links = {
        "Crane": {"tenant_id": "acme", "kb_id": "a"},
        "Gas": {},
        "Truck": {"tenant_id": "acme"},  # in no knowledge base
    }
    relations = [
        Relation(label="USES", source_id="Pit", target_id=name, properties=own)
        for name, own in links.items()
    ]
    foreign_store.upsert_relations(relations)
    with graph_of(foreign_store) as graph:
        for principals in (None, ["user:ann"]):
            for kbs, used in ((["a", "b"], "Crane Gas"), (["a"], "Gas"), (None, "Crane Gas Truck")):
                scope = Scope("acme", kbs, principals)
                hits = KGRetriever(graph).search("pit", scope=scope).hits
                assert sorted(hit.text for hit in hits) == [
                    f"Pit uses {name}" for name in used.split()
                ]


class LeakingGraph(EmbeddedGraph):
    """A graph that ignores scopes, and returns the principals of its rows."""

    leaked: Mapping[str, object] = {}

    def views(self, scope: Scope | None) -> list[Adjacency]:
        return super().views(None)

    def plan_nodes(
        self, ids: Sequence[str], *, scope: Scope | None = None
    ) -> Call[dict[str, GraphNode]]:
        return (
            super()
            .plan_nodes(ids, scope=scope)
            .then(
                lambda found: {
                    id_: replace(node, properties={**node.properties, **self.leaked})
                    for id_, node in found.items()
                }
            )
        )


@cases(
    ("scope", "leaked"),
    [(GLOBEX, {}), (Scope("acme", principals=["user:ann"]), {"allowed": ["group:hr"]})],
)
def test_rows_outside_of_the_scope_are_refused_whatever_the_graph_returns(
    scope: Scope, leaked: Mapping[str, object]
) -> None:
    with LeakingGraph(":memory:") as graph:
        graph.upsert(*pit("acme"))
        graph.leaked = leaked
        with pytest.raises(ScopeViolationError, match="embedded graph returned rows"):
            KGRetriever(graph).search("deep pit", scope=scope)


def test_an_edge_in_no_knowledge_base_is_outside_of_a_scope_of_some() -> None:
    own = {"tenant_id": "acme", "kb_id": "a"}
    edge = Edge.of("pit", "USES", "crane", {"tenant_id": "acme"})
    with EmbeddedGraph(":memory:") as graph:
        graph.upsert([GraphNode(name, properties=own) for name in ("pit", "crane")])
        (view,) = graph.views(None)
        view.apply(Changes(edges={edge.id: edge}))
        with pytest.raises(ScopeViolationError) as raised:
            KGRetriever(graph).search("pit", scope=Scope("acme", ["a"]))
    assert raised.value.node_ids == ("pit -USES-> crane",)


def test_conditions_see_the_context_of_the_query(any_graph: WritableGraph) -> None:
    retriever = KGRuleRetriever(any_graph, CHAPTERS, scope=ACME)
    assert retriever.retrieve("deep pit") == []
    hits = retriever.retrieve(Query("deep pit", context={"chapter": "safety"}))
    assert {hit.node.get_content() for hit in hits} == {
        "deep pit is dangerous: collapse",
        "deep pit is dangerous: flooding",
    }


def test_rules_are_read_from_a_file_path(graph: WritableGraph, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "rules: [{id: r, match: [{node: p}, {follow: USES, node: e}], then: '{p} {e}'}]",
        encoding="utf-8",
    )
    (hit,) = KGRuleRetriever(graph, str(path), scope=ACME).retrieve("deep pit")
    assert hit.node.get_content() == "deep pit crane"


def test_default_rules_over_a_graph_with_other_relations_are_degraded() -> None:
    with EmbeddedGraph(":memory:") as graph:
        graph.upsert([GraphNode("ada", "Person", "Ada")], [Edge("ada", "LIVES_IN", "york")])
        retriever = KGRetriever(graph)
        (part,) = retriever.search("Where does Ada live?").degraded
        assert part.where == "kg_rule"
        assert "KGRuleRetriever" in part.reason
        assert "'ada'" in part.reason
        assert retriever.search("Where does Bob live?").degraded == ()
        graph.upsert([], [Edge("ada", "USES", "pen")])
        assert retriever.search("Where does Ada live?").degraded == ()
        assert retriever.requirements("york").conclusions == ()


@pytest.fixture(scope="module")
def rules() -> Iterator[KGRuleRetriever]:
    graph, rules = open_construction_safety()
    with graph:
        yield KGRuleRetriever(graph, rules)


def texts(items: list[RetrievalItem]) -> list[str]:
    return [item.content for item in items]


@pytest.mark.slow
def test_the_engineering_type_alone_selects_its_processes(rules: KGRuleRetriever) -> None:
    knowledge = KnowledgeRetriever(rules=rules)
    metro, hydraulic = (knowledge.retrieve_regulations(name) for name in ("地铁", "水利"))
    assert {item.metadata["process"] for item in metro} >= {"深基坑开挖", "盾构掘进"}
    assert "爆破作业" in {item.metadata["process"] for item in hydraulic}
    assert texts(metro) != texts(hydraulic)
    searched = knowledge.search("有哪些要求", engineering_type="地铁").regulations
    assert texts(searched) == texts(metro)
    assert knowledge.retrieve_regulations("no such type") == knowledge.retrieve_regulations() == []


@pytest.mark.slow
def test_the_engineering_type_narrows_the_processes(rules: KGRuleRetriever) -> None:
    knowledge = KnowledgeRetriever(rules=rules)
    both = ["深基坑开挖", "爆破作业", "焊接作业"]
    found = knowledge.retrieve_regulations("水利", both)
    assert {item.metadata["process"] for item in found} == {"爆破作业", "焊接作业"}
    assert knowledge.retrieve_regulations(processes=["爆破作业"])


def test_a_process_lists_its_engineering_types_in_a_property() -> None:
    with EmbeddedGraph(":memory:") as graph:
        for process, types in (
            ("pile", ["bridge"]),
            ("lining", ["tunnel", "bridge"]),
            ("fence", []),
        ):
            node = GraphNode(process, "Process", properties={"engineering_types": types})
            graph.upsert([node], [Edge(process, "HAS_HAZARD", f"{process} falls")])
        knowledge = KnowledgeRetriever(rules=KGRetriever(graph))
        assert len(knowledge.retrieve_regulations("bridge")) == 2
        (only,) = knowledge.retrieve_regulations("tunnel", ["pile", "lining"])
        assert "lining falls" in only.content
        assert len(knowledge.retrieve_regulations("tunnel", ["pile", "fence"])) == 1
