"""Registered classes with an async ``retrieve`` that answers with records, as retrievers."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Protocol, TypeGuard

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.retrieval import visible
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import KB_KEY, Query
from llama_retrieval_ext.results import Hit


class AnswersRecords(Protocol):
    """An object that answers with records, which have ``chunk_id``, ``text`` and ``score``."""

    async def retrieve(
        self, *, query: str, tenant_id: str | None, kb_ids: list[str] | None, top_k: int
    ) -> list[dict[str, Any]]:
        """Return records, best first."""
        ...


class RecordRetriever(Retriever):
    """Retriever of the records of an object with an async ``retrieve``.

    A record outside the scope or filters of the query is dropped, and the answer is marked
    degraded; tenant and knowledge base are those in its ``metadata``, or its
    ``knowledge_base_id``.
    """

    def __init__(self, source: AnswersRecords, *, name: str, top_k: int = 10) -> None:
        super().__init__(top_k=top_k, name=name)
        self.source = source

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Await the records, then drop those that the query must not see."""
        scope = query.scope
        arguments: dict[str, Any] = {
            "query": query.query_str,
            "tenant_id": None if scope is None else scope.tenant_id,
            "kb_ids": None if scope is None or not scope.kb_ids else [*scope.kb_ids],
            "top_k": query.top_k,
        }
        records = yield Call(
            lambda: asyncio_run(self.source.retrieve(**arguments)),
            lambda: self.source.retrieve(**arguments),
        )
        hits = [_hit(record, self.name) for record in records]
        hits.sort(key=lambda hit: (-(hit.score or 0.0), hit.node_id))
        seen = visible([*hits], query, self.name)
        return [hit for hit in seen if isinstance(hit, Hit)][: query.top_k]


def answers_records(make: object) -> TypeGuard[type[AnswersRecords]]:
    """Return whether a class is no retriever but has an async ``retrieve``."""
    return (
        isinstance(make, type)
        and not issubclass(make, BaseRetriever)
        and inspect.iscoroutinefunction(getattr(make, "retrieve", None))
    )


def record_retriever(kind: type[AnswersRecords], name: str) -> Callable[..., RecordRetriever]:
    """Return a function with the parameters of a class that creates a retriever from it."""

    @wraps(kind)
    def make(parts: RegistryParts, **params: object) -> RecordRetriever:
        del parts
        return RecordRetriever(kind(**params), name=name)

    parameters = list(inspect.signature(kind).parameters.values())
    first = inspect.Parameter("parts", inspect.Parameter.POSITIONAL_ONLY)
    vars(make)["__signature__"] = inspect.Signature([first, *parameters])
    make.__annotations__ = {**inspect.get_annotations(kind.__init__), "return": RecordRetriever}
    del make.__wrapped__  # the class has another signature
    return make


def _hit(record: Mapping[str, Any], name: str) -> Hit:
    missing = [key for key in ("chunk_id", "text", "score") if key not in record]
    if missing:
        raise ConfigurationError(f"a record of {name!r} has no {', '.join(missing)}: {record!r}")
    metadata = dict(record.get("metadata") or {})
    if record.get("knowledge_base_id") is not None:
        metadata.setdefault(KB_KEY, record["knowledge_base_id"])
    node = TextNode(id_=str(record["chunk_id"]), text=str(record["text"]), metadata=metadata)
    if record.get("document_id") is not None:
        source = RelatedNodeInfo(node_id=str(record["document_id"]))
        node.relationships[NodeRelationship.SOURCE] = source
    return Hit(node=node, score=float(record["score"]), source=record.get("source") or name)
