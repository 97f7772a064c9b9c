"""Insights from records, with their evidence."""

import asyncio
import json
import re

from llama_retrieval_ext.capabilities import DataAnalyzer, InsightGenerator
from llama_retrieval_ext.testing import ScriptedLLM
from tests.capabilities.conftest import LOGS
from tests.capabilities.test_analysis import findings


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
