"""Operators: retrievers of the registry that answer with records, for any tenant."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import checked_call
from llama_retrieval_ext.config.definitions import Definition
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.pipeline.pipeline import Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query, Scope, check_top_k

# The names of a record's fields that differ from those of `Hit.to_dict`.
_RECORD_NAMES: Final = {"node_id": "chunk_id", "kb_id": "knowledge_base_id"}


class Records(list[dict[str, Any]]):
    """Records of hits, best first.

    Attributes:
        details: Extra fields of the answer, such as ``hyde_queries``, also if nothing was found.
    """

    def __init__(self, records: Iterable[dict[str, Any]], details: Mapping[str, object]) -> None:
        super().__init__(records)
        self.details = dict(details)


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
    async def retrieve(
        self,
        query: str,
        *,
        tenant_id: str | None = None,
        kb_ids: Sequence[str] | None = None,
        top_k: int = 10,
        filters: MetadataFilters | None = None,
        timeout_s: float | None = None,
    ) -> Records:
        """Return the best hits as records.

        Args:
            query: The query.
            tenant_id: The tenant; trusted, never from a user or a model.
            kb_ids: The tenant's visible knowledge bases; None for all.
            top_k: Number of records to return, at least 1.
            filters: Conditions on metadata for every hit; they can only narrow the scope.
            timeout_s: Time limit for the whole answer in seconds; None for no limit.

        Returns:
            Records: `Hit.to_dict`, in which ``node_id`` is ``chunk_id`` and ``kb_id`` is
            ``knowledge_base_id``, best first. The first also has
            ``fields``, and so has the attribute ``details``, even if nothing was found.

        Raises:
            ConfigurationError: ``top_k`` is below 1, or ``kb_ids`` is empty.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        if kb_ids is not None and not list(kb_ids):
            raise ConfigurationError(
                "kb_ids is empty, which would show no knowledge base; name at least one, or leave "
                "kb_ids out for all that the tenant has"
            )
        has_scope = tenant_id is not None or kb_ids is not None
        scope = Scope(tenant_id, kb_ids=kb_ids or ()) if has_scope else None
        bound = Query.of(query).but(
            filters=filters, scope=scope, top_k=check_top_k(top_k), timeout_s=timeout_s
        )
        result = await self._own.asearch(bound)
        details = {name: result.details.get(name, each) for name, each in self.fields.items()}
        records = Records((_record(hit.to_dict()) for hit in result.hits), details)
        if records:
            records[0] |= details
        return records

    @property
    def _own(self) -> Retriever:
        """The retriever; one of another package is wrapped to enforce scopes."""
        own = self.retriever
        return own if isinstance(own, Retriever) else Pipeline(own, name=self.name)


def _record(hit: Mapping[str, Any]) -> dict[str, Any]:
    """Return a hit under the names of the registry's records."""
    return {_RECORD_NAMES.get(name, name): value for name, value in hit.items()}


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
        return {name: each.default for name, each in self.definition.parameters.items()}
