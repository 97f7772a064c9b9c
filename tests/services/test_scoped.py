"""The scope of each service."""

from collections.abc import Callable

import pytest

from llama_retrieval_ext.errors import ScopeError, ScopeRequiredError
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.services import (
    KnowledgeService,
    MimicService,
    ReportService,
    SearchService,
)
from tests.services.conftest import ACME, BETA, WEEK, factory


def test_each_service_requires_a_scope_where_the_knowledge_base_does(kb: KnowledgeBase) -> None:
    made = factory(kb)
    knowledge = KnowledgeService.of(made)
    calls: list[Callable[[], object]] = [
        lambda: SearchService.of(made).search("x"),
        lambda: MimicService.of(made).generate_response("x", use_history=False),
        lambda: ReportService.of(made).generate_weekly_report("ann", *WEEK),
        lambda: knowledge.ask("x"),
        lambda: knowledge.insights("x"),
        lambda: knowledge.related("x"),
        lambda: knowledge.timeline("x"),
    ]
    for call in calls:
        with pytest.raises(ScopeRequiredError):
            call()
    with pytest.raises(ScopeError, match="nothing in common"):
        SearchService.of(made, scope=ACME).search(Query("x"), scope=BETA)
