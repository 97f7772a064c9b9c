"""A selector called in one of its two ways."""

import asyncio

import pytest

from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.routing.selectors import Selection, Selector
from tests.quick import is_async
from tests.retrievers.routing.sample_routes import CHOICES, Selected


@pytest.fixture
def select(request: pytest.FixtureRequest) -> Selected:
    def picked(selector: Selector, query: str | Query) -> list[Selection]:
        plan = selector.select_plan(Query.of(query), CHOICES)
        return asyncio.run(arun(plan)) if is_async(request) else run(plan)

    return picked
