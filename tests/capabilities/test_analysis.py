"""Findings about metrics in documents, and insights from them."""

import asyncio
import json
import re
from collections.abc import Callable

import pytest
from llama_index.core.base.response.schema import PydanticResponse
from llama_index.core.schema import TextNode

from llama_retrieval_ext.capabilities import DataAnalyzer, InsightGenerator
from llama_retrieval_ext.capabilities.analysis import Analysis
from llama_retrieval_ext.capabilities.query_engine import as_hits
from llama_retrieval_ext.errors import ConfigurationError, GenerationError
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.testing import ScriptedLLM
from tests.capabilities.conftest import ACME, LOGS


def findings(prompt: str) -> str:
    """Reads the documents in a prompt, and merges findings, as a model should."""
    if "Merge those" in prompt:
        numbers = [int(n) for n in re.findall(r"^\[(\d+)\]", prompt, re.MULTILINE)]
        merged = {"metric": "key_tasks", "text": "All tasks are done.", "sources": numbers}
        return json.dumps({"findings": [merged], "summary": "A busy week."})
    found = [
        {"metric": "Key Tasks", "text": f"Task {task} is done.", "sources": [int(number)]}
        for number, task in re.findall(r"^\[(\d+)\] Day (\d+):", prompt, re.MULTILINE)
    ]
    return f"<think>{{}}</think>```json\n{json.dumps({'findings': found})}\n```"


def analyzed(way: str) -> Callable[..., Analysis]:
    async def last(analyzer: DataAnalyzer, *args: object) -> Analysis:
        return [each async for each in analyzer.astream(*args)][-1]  # type: ignore[arg-type]

    ways: dict[str, Callable[..., Analysis]] = {
        "sync": lambda analyzer, *args: analyzer.analyze(*args),
        "async": lambda analyzer, *args: asyncio.run(analyzer.aanalyze(*args)),
        "stream": lambda analyzer, *args: list(analyzer.stream(*args))[-1],
        "astream": lambda analyzer, *args: asyncio.run(last(analyzer, *args)),
    }
    return ways[way]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["sync", "async", "stream", "astream"])
def test_long_input_is_read_in_parts_and_merged(way: str) -> None:
    llm = ScriptedLLM(findings, context_window=1200, num_output=200)  # it checks each prompt
    analysis = analyzed(way)(DataAnalyzer(llm=llm), LOGS, ["key_tasks", "challenges"])
    assert list(analysis.metrics) == ["key_tasks", "challenges"]
    assert analysis.metrics["challenges"] == []
    (finding,) = analysis.metrics["key_tasks"]
    assert sorted(finding.sources) == sorted(node.node_id for node in LOGS)
    assert analysis.summary == "A busy week."
    assert analysis.degraded == []
    assert len(llm.prompts) > 3


@pytest.mark.slow
def test_streaming_yields_the_findings_of_each_part() -> None:
    llm = ScriptedLLM(findings, context_window=1200, num_output=200)
    counts = [len(each.metrics["key_tasks"]) for each in DataAnalyzer(llm=llm).stream(LOGS)]
    assert len(counts) > 1
    assert counts == [*sorted(counts[:-1]), 1]


@pytest.mark.slow
def test_one_document_that_is_too_long_is_cut_in_parts() -> None:
    llm = ScriptedLLM(findings, context_window=1200, num_output=200)
    long = " ".join(f"Day {n}: digging." for n in range(200))
    analysis = DataAnalyzer(llm=llm).analyze([TextNode(id_="long", text=long)])
    assert len(llm.prompts) > 1
    assert analysis.metrics["key_tasks"][0].sources == ["long"]


@pytest.mark.slow
def test_parts_that_fail_are_named_and_the_others_kept() -> None:
    def flaky(prompt: str) -> str:
        if "Day 3:" in prompt:
            raise RuntimeError("503")
        return findings(prompt)

    llm = ScriptedLLM(flaky, context_window=1200, num_output=200)
    analysis = DataAnalyzer(llm=llm).analyze(LOGS)
    assert "log-3" in analysis.degraded[0]
    assert "503" in analysis.degraded[0]
    (finding,) = analysis.metrics["key_tasks"]
    assert "log-3" not in finding.sources
    assert "log-12" in finding.sources
    with pytest.raises(GenerationError, match="no usable answer"):
        DataAnalyzer(llm=ScriptedLLM(lambda _: "no JSON today")).analyze(LOGS)


@pytest.mark.slow
def test_a_malformed_answer_is_requested_again() -> None:
    good = '{"findings": [{"metric": "achievements", "text": "Won.", "sources": [1, 99]}]}'
    llm = ScriptedLLM(['{"findings": [{"metric": "achiev', good])
    analysis = DataAnalyzer(llm=llm).analyze(["We won."])
    assert analysis.metrics["achievements"][0].sources == ["documents-1"]
    assert "not valid" in llm.prompts[1]
    assert analysis.degraded == []
    cut_off = good[:-2] + ', {"metric": "achievements", "text": "And th'
    with pytest.raises(GenerationError, match="it ends before its JSON does"):
        DataAnalyzer(llm=ScriptedLLM([cut_off] * 2)).analyze(["We won."])


def test_findings_without_evidence_are_left_out() -> None:
    said = '{"findings": [{"metric": "achievements", "text": "Won.", "sources": [9]}]}'
    analysis = DataAnalyzer(llm=ScriptedLLM([said])).analyze(["We won."])
    assert analysis.metrics["achievements"] == []
    assert "1 findings named no metric or no document" in analysis.degraded[0]


@pytest.mark.slow
def test_the_comparison_is_with_material_of_the_scope(kb: KnowledgeBase) -> None:
    said = '{"findings": [{"metric": "leave", "text": "Leave was taken.", "sources": [1]}]}'
    llm = ScriptedLLM([said, "More than before [1]."])
    analyzer = DataAnalyzer(kb.retriever(), llm=llm)
    analysis = analyzer.analyze(["Annual leave in May"], ["leave"], scope=ACME)
    assert analysis.comparison == "More than before [1]."
    assert analysis.history
    assert "beta" not in "".join(llm.prompts)
    failing = DataAnalyzer(kb.retriever(), llm=ScriptedLLM([said, RuntimeError("503")]))
    degraded = failing.analyze(["Annual leave"], ["leave"], scope=ACME)
    assert degraded.metrics["leave"]
    assert "503" in degraded.degraded[0]
    with pytest.raises(ConfigurationError, match="no retriever"):
        DataAnalyzer(llm=llm).analyze(["x"], scope=ACME)


def test_an_analyzer_is_a_response_synthesizer() -> None:
    nodes = as_hits(LOGS[:2])
    response = DataAnalyzer(llm=ScriptedLLM(findings)).synthesize("tasks only", list(nodes))
    assert isinstance(response, PydanticResponse)
    assert isinstance(response.response, Analysis)
    assert response.response.metrics["key_tasks"][1].sources == ["log-2"]
    assert len(response.source_nodes) == 2


def insights(prompt: str) -> str:
    ids = re.findall(r"^\[(\d+)\]", prompt, re.MULTILINE)
    several = [{"title": "Pump", "explanation": "It fails.", "evidence": ids, "confidence": 0.9}]
    return json.dumps({"insights": [*several, {"title": "Guess", "evidence": []}]})


def test_each_insight_has_its_evidence() -> None:
    records = [{"id": "r1", "pump": "hot"}, {"id": "r2", "pump": "hot"}]
    report = InsightGenerator(llm=ScriptedLLM(insights)).generate(records)
    assert [(insight.title, insight.evidence) for insight in report.insights] == [
        ("Pump", ["r1", "r2"])
    ]
    assert "1 insights had no evidence" in report.degraded[0]
    analysis = DataAnalyzer(llm=ScriptedLLM(findings)).analyze(LOGS[:2])
    of_analysis = asyncio.run(InsightGenerator(llm=ScriptedLLM(insights)).agenerate(analysis))
    assert of_analysis.insights[0].evidence == ["log-1", "log-2"]
