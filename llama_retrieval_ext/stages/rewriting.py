"""Sends a query through rewrites, and goes on with what there is when one fails."""

from collections.abc import Sequence

from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.execution.steps import step
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.rewrite import Rewrite


def rewritten(query: Query, rewrites: Sequence[Rewrite]) -> Plan[Query]:
    """The plan for the query after all rewrites, in their order."""
    for stage in rewrites:
        query = yield from step(repr(stage), stage.rewrite(query))
    return query
