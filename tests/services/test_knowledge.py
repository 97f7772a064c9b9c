"""Answers, insights, related entities and timelines."""

import asyncio
import re
from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest

# ruff: noqa: RUF001 - Chinese punctuation on purpose
from llama_index.core.schema import TextNode

from llama_retrieval_ext import Hit, KnowledgeBase, Scope
from llama_retrieval_ext.capabilities import CapabilityFactory
from llama_retrieval_ext.errors import ConfigurationError, GenerationError
from llama_retrieval_ext.graph import Edge, GraphNode, open_graph
from llama_retrieval_ext.services import KnowledgeService
from llama_retrieval_ext.services.knowledge import related_in_passages
from llama_retrieval_ext.testing import ScriptedLLM
from tests.cases import cases
from tests.services.conftest import ACME, BETA, DOCUMENTS, SECRET, factory, prompts_of


@pytest.mark.slow
def test_ask_cites_within_the_scope_and_the_token_budget(kb: KnowledgeBase) -> None:
    def reader(prompt: str) -> str:
        number = re.search(r"\[(\d)\]\nAnnual leave is", prompt)
        assert number is not None
        return f"Annual leave is 25 days [{number[1]}]."

    made = factory(kb, reader, context_window=700, num_output=100)  # it checks each prompt
    service = KnowledgeService.of(made)
    answers = {
        ACME: service.ask("How much annual leave?", scope=ACME),
        BETA: asyncio.run(service.aask("How much annual leave?", scope=BETA)),
    }
    for (scope, answer), prompt in zip(answers.items(), prompts_of(made), strict=True):
        assert [citation.hit.node.ref_doc_id for citation in answer.citations] == ["leave"]
        assert SECRET[scope] not in prompt


@pytest.mark.slow
def test_insights_rest_on_passages_of_the_scope(kb: KnowledgeBase) -> None:
    said = '{"insights": [{"title": "Cranes", "evidence": [1], "confidence": 0.9}]}'
    made = factory(kb, [said, "nonsense", "nonsense"])
    service = KnowledgeService.of(made)
    report = asyncio.run(service.ainsights("tower crane", top_k=2, scope=BETA))
    known = {node.node_id for name in DOCUMENTS for node in kb.get(name, scope=BETA)}
    assert set(report.insights[0].evidence) <= known
    assert "acme" not in prompts_of(made)[0]
    with pytest.raises(GenerationError, match="insights"):
        service.insights("tower crane", scope=BETA)
    assert service.insights("x", scope=Scope("nobody")).insights == []


@pytest.mark.slow
def test_related_without_a_graph_stand_in_the_same_passages(kb: KnowledgeBase) -> None:
    service = KnowledgeService.of(factory(kb))
    related = service.related("Tower Crane", top_k=2, scope=ACME)
    assert [each.name for each in related] == ["Ada Stone", "North Quay"]
    assert related[0].passages == (kb.get("site", scope=ACME)[0].node_id,)


@pytest.mark.slow
def test_related_of_a_graph_are_those_of_the_scope(kb: KnowledgeBase) -> None:
    graph = open_graph("graph::memory:")
    for tenant, other in (("acme", "Gale"), ("beta", "Flood")):
        own = {"tenant_id": tenant}
        nodes = [GraphNode(name, "Thing", name, own) for name in ("Tower Crane", other)]
        graph.upsert(nodes, [Edge.of("Tower Crane", "FEARS", other, own)])
    made = CapabilityFactory.of(kb, llm=ScriptedLLM([]), graph_store=graph)
    service = KnowledgeService.of(made)
    (related,) = service.related("What does the tower crane fear?", scope=BETA)
    assert (related.name, related.hops) == ("Flood", 1)
    assert related.path == "Tower Crane -FEARS-> Flood"
    assert asyncio.run(service.arelated("tower crane", scope=ACME))[0].name == "Gale"
    graph.close()


def test_a_timeline_has_dated_documents_and_memories(kb: KnowledgeBase) -> None:
    service = KnowledgeService.of(factory(kb), scope=ACME)
    memories = service.memory_manager
    assert memories is not None
    moment = datetime(2026, 1, 20, tzinfo=ZoneInfo("UTC"))
    memory = memories.remember("Asked for annual leave", timestamp=moment, scope=ACME)
    events = service.timeline("annual leave", start=date(2026, 1, 1), end=date(2026, 1, 31))
    assert [(event.text, event.source) for event in events] == [
        ("Annual leave is 25 days a year. (acme)", "document"),
        ("Asked for annual leave", "memory"),
    ]
    everything = asyncio.run(service.atimeline("annual leave"))
    assert [each.timestamp for each in everything] == sorted(e.timestamp for e in everything)
    assert events[0] in everything
    memories.forget(memory.id, scope=ACME)
    with pytest.raises(ConfigurationError, match="ends before"):
        service.timeline("x", start=date(2026, 2, 1), end=date(2026, 1, 1))


def related(text: str, subject: str) -> list[str]:
    hits = [Hit(node=TextNode(id_="n", text=text), score=1.0, source="vector")]
    return [hit.name for hit in related_in_passages(hits, subject, ner=None)]


@cases(
    "text",
    [
        "The leave budget is 12,345 EUR.",
        "# Leave\nEvery employee has annual leave; we said so to every employee.",
        "- Max leave is a week\n| Max | leave |",
        "Ticket HR-4711 is about leave, and so is INC0012 of 2026-05-04.",
        "All asked for leave. Nobody came.",
    ],
)
def test_numbers_sentence_starts_and_ticket_ids_are_no_names(text: str) -> None:
    assert related(text, "leave") == []


def test_capitalised_words_inside_a_sentence_are_names() -> None:
    text = "On leave, Ada Stone met Siemens and (IBM) at North Quay 12."
    assert sorted(related(text, "leave")) == ["Ada Stone", "IBM", "North Quay", "Siemens"]


@pytest.mark.slow
def test_names_of_persons_in_chinese_are_found_without_a_ner() -> None:
    text = "张伟和李娜昨天检查了塔吊，由欧阳修按《安全生产法》审核，许可证齐全。"
    assert sorted(related(text, "塔吊")) == ["安全生产法", "张伟", "李娜", "欧阳修"]


@pytest.mark.slow
def test_the_subject_is_not_related_to_itself() -> None:
    assert related("张伟和李娜检查了塔吊。", "张伟做了什么？") == ["李娜"]
