"""The services with a real client of LlamaIndex's, over HTTP."""

import asyncio
from datetime import UTC, datetime

import pytest

from llama_retrieval_ext.capabilities import CapabilityFactory
from llama_retrieval_ext.errors import GenerationError
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.services import KnowledgeService, MimicService, ReportService
from tests.capabilities.test_over_http import client
from tests.servers.openai import Failure, FakeOpenAI, Reply
from tests.services.conftest import ACME, WEEK
from tests.services.test_report import COMPARED, FINDINGS

pytestmark = pytest.mark.slow


def test_each_service_over_http(kb: KnowledgeBase) -> None:
    overview = "Valves were closed [1]."
    drawn = '{"insights": [{"title": "Rest", "evidence": [1]}]}'
    said: list[Reply] = [
        FINDINGS,
        COMPARED,
        overview,
        "Cheers!",
        "Leave is granted [1].",
        Failure(500),
        drawn,
    ]
    with FakeOpenAI(said) as server:
        made = CapabilityFactory.of(kb, llm=client(server))
        reports = ReportService.of(made, scope=ACME)
        moment = datetime(2026, 5, 5, tzinfo=UTC)
        log = asyncio.run(reports.aadd_work_log("eve", "Closed valves.", timestamp=moment))
        report = asyncio.run(reports.agenerate_weekly_report("eve", *WEEK))
        assert [each.id for each in report.work_logs] == [log.id]
        assert report.overview == overview
        reply = MimicService.of(made, scope=ACME).generate_response("Is leave granted?")
        assert reply.text == "Cheers!"
        assert server.requests[-1]["temperature"] == pytest.approx(0.8)
        knowledge = KnowledgeService.of(made, scope=ACME)
        assert knowledge.ask("Is leave granted?").citations
        with pytest.raises(GenerationError, match="the LLM failed"):
            reports.generate_weekly_report("eve", *WEEK)
        assert knowledge.insights("leave").insights[0].title == "Rest"
        assert not any("beta" in prompt for prompt in server.prompts)
