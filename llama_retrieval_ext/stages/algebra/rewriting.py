"""Sends a query through rewrites, and goes on with what there is when one fails."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from llama_index.core.schema import QueryBundle

from llama_retrieval_ext.execution.degraded import note_degraded
from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.execution.legs import MISTAKES
from llama_retrieval_ext.execution.steps import step
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.algebra.rewrite import FanOut, Rewrite
from llama_retrieval_ext.stages.algebra.values import plan_of, query_of
from llama_retrieval_ext.stages.rewriting.query_variants import reworded

T = TypeVar("T")


def rewritten(query: Query, rewrites: Sequence[Rewrite]) -> Plan[Query]:
    """The plan for the query after all rewrites, in their order."""
    for stage in rewrites:
        name = f"{type(stage).__name__}.rewrite_plan"
        plan = plan_of(stage.rewrite_plan(query), name)
        made = yield from _attempt(repr(stage), plan, otherwise=query)
        query = _within(query, query_of(made, name))
    return query


def fanned_out(query: Query, stage: FanOut) -> Plan[list[Query]]:
    """The plan for the queries made of a query; the query alone when none can be made."""
    name = f"{type(stage).__name__}.fan_out_plan"
    plan = plan_of(stage.fan_out_plan(query), name)
    queries = yield from _attempt(repr(stage), plan, otherwise=[query])
    return [_within(query, query_of(made, name)) for made in queries or [query]]


def _within(query: Query, made: str | QueryBundle) -> Query:
    """A query made of another, within what that may see: a stage can narrow this, never widen."""
    if isinstance(made, str):
        return reworded(query, made)
    if not isinstance(made, Query):
        return replace(
            query,
            query_str=made.query_str,
            image_path=made.image_path,
            custom_embedding_strs=made.custom_embedding_strs,
            embedding=made.embedding,
        )
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
