"""Records as answers: operators, and registered classes that answer with records."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeGuard

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import check_count, checked_call
from llama_retrieval_ext.config.definitions import Definition, definition_of
from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.dates import Moment
from llama_retrieval_ext.errors import ConfigurationError, UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.retrieval import visible
from llama_retrieval_ext.hits import ordered
from llama_retrieval_ext.pipeline.pipeline import Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.stages import items_of
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, ResultList
from llama_retrieval_ext.scope import KB_KEY, TENANT_KEY, Scope

# The names of a record's fields that differ from those of `Hit.to_dict`.
_RECORD_NAMES: Final = {"node_id": "chunk_id", "kb_id": "knowledge_base_id"}


class RecordList(ResultList[dict[str, Any]]):
    """Records of hits, best first.

    Attributes:
        degraded: Parts that failed and were left out; empty if the answer is complete.
        hints: What was looked for and is not there, in sentences; see `SearchResult`.
        details: Extra fields of the answer, such as ``hyde_queries``, also if nothing was found.
    """

    details: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Operator:
    """Retriever that returns records, for any tenant and knowledge bases.

    It is stateless: threads, tenants and event loops may share it.

    Attributes:
        name: The retriever's name in the registry.
        retriever: The LlamaIndex retriever.
        fields: Extra fields of the first record, with their values if an LLM failed.
    """

    name: str
    retriever: BaseRetriever
    fields: Mapping[str, object]

    @checked_call
    async def retrieve(  # noqa: PLR0913 - a search, and for whom
        self,
        query: str,
        *,
        tenant_id: str | None = None,
        kb_ids: Sequence[str] | None = None,
        principals: Sequence[str] | None = None,
        top_k: int = 10,
        filters: MetadataFilters | None = None,
        timeout_s: float | None = None,
        correct: bool = True,
        interpret: bool = False,
        fields: Mapping[str, float] | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
    ) -> RecordList:
        """Return the best hits as records.

        Args:
            query: The query.
            tenant_id: The tenant; trusted, never from a user or a model.
            kb_ids: The tenant's visible knowledge bases; None for all.
            principals: The user and the user's groups, as for `Scope`; None for a trusted caller.
            top_k: Number of records to return, at least 1.
            filters: Conditions on metadata for every hit; they can only narrow the scope.
            timeout_s: Time limit for the whole answer in seconds; None for no limit.
            correct: Whether typing errors are corrected, as for `Query`.
            interpret: Whether words that state filters become filters, as for `Query`.
            fields: The fields of keyword searches, with weights, as for `Query`.
            as_of: The time for which the query asks, as for `Query`.
            known_at: The time at which it was known, as for `Query`.

        Returns:
            Records: `Hit.to_dict`, in which ``node_id`` is ``chunk_id`` and ``kb_id`` is
            ``knowledge_base_id``, best first. The first also has
            ``fields``, and so has the attribute ``details``, even if nothing was found. Beside it
            are ``degraded``, ``hints`` and ``corrected``, as in a `SearchResult`.

        Raises:
            ConfigurationError: ``top_k`` is below 1, or ``kb_ids`` is empty.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        has_scope = any(value is not None for value in (tenant_id, kb_ids, principals))
        scope = Scope(tenant_id, kb_ids, principals) if has_scope else None
        bound = Query.of(query).but(
            filters=filters,
            scope=scope,
            top_k=check_count(top_k, "top_k"),
            timeout_s=timeout_s,
            correct=correct,
            interpret=interpret,
            fields=fields,
            as_of=as_of,
            known_at=known_at,
        )
        retriever = self.retriever
        if not isinstance(retriever, Retriever):  # wrapped to enforce scopes
            retriever = Pipeline(retriever, name=self.name)
        result = await retriever.asearch(bound)
        details = {
            name: _nested(result.details.get(name, value)) for name, value in self.fields.items()
        }
        rows = (_record(hit.to_dict()) for hit in result.hits)
        records = RecordList(rows)
        records.degraded, records.hints = result.degraded, result.hints
        records.details = details
        if records:
            records[0] |= details
        return records


def _record(hit: Mapping[str, Any]) -> dict[str, Any]:
    """Return a hit under the names of the registry's records."""
    return {_RECORD_NAMES.get(name, name): value for name, value in hit.items()}


def _nested(value: object) -> object:
    """Return an extra field, with its lists of hits as records."""
    if not isinstance(value, list):
        return value
    return [
        {**item, "hits": [*map(_record, item["hits"])]}
        if isinstance(item, Mapping) and "hits" in item
        else item
        for item in value
    ]


@dataclass(frozen=True, slots=True)
class OperatorFactory:
    """Factory of operators of one name: ``registry.get("retriever", "hybrid")(dense_weight=0.6)``.

    Attributes:
        definition: The definition of the name.
        make: Creates the retriever from the parameters.
    """

    definition: Definition
    make: Callable[[Mapping[str, object]], BaseRetriever]

    def __call__(self, **params: object) -> Operator:
        """Return an operator; raise ConfigurationError if a parameter is unknown or invalid."""
        return Operator(self.definition.name, self.make(params), self.definition.fields)

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters with their defaults."""
        return {name: parameter.default for name, parameter in self.definition.parameters.items()}


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
    degraded. A record states its tenant and its knowledge base as ``tenant_id`` and
    ``knowledge_base_id``, or in its ``metadata``. One that states no tenant is of the tenant that
    the object was called with; one that states no knowledge base is of none.
    """

    def __init__(self, source: AnswersRecords, *, name: str, top_k: int = 10) -> None:
        super().__init__(top_k=top_k, name=name)
        self.source = source

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Await the records, then drop those that the query must not see."""
        scope = query.scope
        if scope is not None and scope.principals is not None:
            raise UnsupportedModeError(
                f"the records of {self.name} do not say who may see them; leave it out for a scope "
                "with principals"
            )
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
        given = items_of(records, dict, f"{self.name}.retrieve", expected="records (dict)")
        hits = ordered(_hit(record, self.name, arguments["tenant_id"]) for record in given)
        seen = visible([*hits], query, self.name)
        return [hit for hit in seen if isinstance(hit, Hit)][: query.top_k]


def answers_records(make: object) -> TypeGuard[type[AnswersRecords]]:
    """Return whether a class is no retriever but has an async ``retrieve``."""
    return (
        isinstance(make, type)
        and not issubclass(make, BaseRetriever)
        and inspect.iscoroutinefunction(getattr(make, "retrieve", None))
    )


def record_definition(kind: type[AnswersRecords], name: str) -> Definition:
    """Return the definition of a retriever of the records of a class, with its parameters."""

    def make(_: RegistryParts, **params: object) -> RecordRetriever:
        return RecordRetriever(kind(**params), name=name)

    definition = definition_of(kind, name=name, takes_parts=False)
    return replace(definition, make=make, kind=RecordRetriever, takes_parts=True)


# The fields of a record that state its partition, with their keys in the metadata.
_PARTITION: Final = {"tenant_id": TENANT_KEY, "knowledge_base_id": KB_KEY}


def _hit(record: Mapping[str, Any], name: str, tenant_id: str | None) -> Hit:
    missing = [key for key in ("chunk_id", "text", "score") if record.get(key) is None]
    if missing:
        raise ConfigurationError(f"a record of {name!r} has no {', '.join(missing)}: {record!r}")
    metadata = dict(record.get("metadata") or {})
    for field, key in _PARTITION.items():
        stated = record.get(field)
        if stated is not None and metadata.setdefault(key, stated) != stated:
            raise ConfigurationError(
                f"a record of {name!r} has {field}={stated!r}, and {key}={metadata[key]!r} in its "
                "metadata; state one"
            )
    if tenant_id is not None and metadata.get(TENANT_KEY) is None:
        metadata[TENANT_KEY] = tenant_id
    node = TextNode(id_=str(record["chunk_id"]), text=str(record["text"]), metadata=metadata)
    if record.get("document_id") is not None:
        source = RelatedNodeInfo(node_id=str(record["document_id"]))
        node.relationships[NodeRelationship.SOURCE] = source
    return Hit(node=node, score=float(record["score"]), source=record.get("source") or name)
