"""Sends a query through rewrites, and goes on with what there is when one fails."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from llama_retrieval_ext.arguments import of_type
from llama_retrieval_ext.execution.degraded import note_degraded
from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.execution.legs import MISTAKES
from llama_retrieval_ext.execution.steps import step
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.algebra.rewrite import FanOut, Rewrite

T = TypeVar("T")


def rewritten(query: Query, rewrites: Sequence[Rewrite]) -> Plan[Query]:
    """The plan for the query after all rewrites, in their order."""
    for stage in rewrites:
        made = yield from _attempt(repr(stage), stage.rewrite(query), otherwise=query)
        query = _within(query, made, repr(stage))
    return query


def fanned_out(query: Query, stage: FanOut) -> Plan[list[Query]]:
    """The plan for the queries made of a query; the query alone when none can be made."""
    queries = yield from _attempt(repr(stage), stage.fan_out(query), otherwise=[query])
    return [_within(query, made, repr(stage)) for made in queries or [query]]


def _within(query: Query, made: Query, stage: str) -> Query:
    """A query made of another, within what that may see: a stage can narrow this, never widen."""
    instead = "write dataclasses.replace(query, query_str=...)"
    of_type(made, Query, f"what {stage} makes of a query", instead=instead)
    if made.scope != query.scope or made.filters is not query.filters:
        made = made.but(filters=query.filters, scope=query.scope)
    return made if made.at_least else replace(made, at_least=query.at_least)


def _attempt(name: str, plan: Plan[T], *, otherwise: T) -> Plan[T]:
    try:
        return (yield from step(name, plan))
    except MISTAKES:
        raise
    except Exception as error:  # noqa: BLE001 - reported as degraded
        note_degraded(name, error)
        return otherwise
