"""`retrieval_tool`: a retriever as a LlamaIndex tool, for agents."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from llama_index.core.tools import FunctionTool, ToolMetadata
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    ValidationError,
    field_validator,
)

from llama_retrieval_ext.capabilities.memory_storage import MEMORY_KEYS
from llama_retrieval_ext.capabilities.query_engine import fitted
from llama_retrieval_ext.checks import check_count, check_seconds, checked_call, of_type, problems
from llama_retrieval_ext.errors import InvalidFilterError, UnsupportedFilterError
from llama_retrieval_ext.execution.drivers import asynchronous, blocking, called
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.execution.retrieval import embed
from llama_retrieval_ext.filters import SCOPE_KEYS
from llama_retrieval_ext.llm.model import count_tokens, shortened
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.tree import children_of
from llama_retrieval_ext.query import Query, narrowed_filters
from llama_retrieval_ext.results import Hit, SearchResult
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.single_search import VectorRetriever
from llama_retrieval_ext.retrievers.store_retriever import StoreRetriever
from llama_retrieval_ext.scope import ALLOWED_KEY, Scope, check_scope
from llama_retrieval_ext.wording import as_data, is_field_name, on_one_line

# Hidden from the model: scopes belong to the application, memories are not documents.
_HIDDEN: Final = frozenset({*SCOPE_KEYS, *MEMORY_KEYS})
_MOST_FIELDS: Final = 12
_MOST_VALUES: Final = 8
# LlamaIndex refuses longer descriptions.
_LONGEST_DESCRIPTION: Final = 1024

_MOST_COMPARED: Final = 100
V = TypeVar("V")
_Values: TypeAlias = Annotated[list[V], Field(max_length=_MOST_COMPARED)]
_Compared: TypeAlias = (
    StrictInt | StrictFloat | str | _Values[str] | _Values[StrictInt] | _Values[StrictFloat]
)


class FieldCondition(BaseModel):
    """A condition on a metadata field, in a request or an argument of a tool."""

    model_config = ConfigDict(extra="forbid")

    key: str = Field(description="The metadata field.")
    operator: FilterOperator = FilterOperator.EQ
    value: _Compared | None = Field(default=None, description="Nothing for is_empty.")

    @field_validator("key")
    @classmethod
    def _no_principals(cls, key: str) -> str:
        if key == ALLOWED_KEY:
            raise ValueError(f"{key} is no field to filter by")
        return key

    def to_filter(self) -> MetadataFilter:
        """Return the condition as a LlamaIndex filter."""
        return MetadataFilter(key=self.key, operator=self.operator, value=self.value)


FieldConditions: TypeAlias = Annotated[list[FieldCondition], Field(max_length=_MOST_COMPARED)]


def all_of(conditions: Sequence[FieldCondition] | None) -> MetadataFilters | None:
    """Return LlamaIndex filters for conditions that must all hold; None for none."""
    return MetadataFilters(filters=[c.to_filter() for c in conditions]) if conditions else None


class _Arguments(BaseModel):
    query: str = Field(description="what to search for, in words")
    filters: FieldConditions | None = Field(
        default=None, description="conditions on metadata fields, all of which must hold"
    )
    top_k: int | None = Field(default=None, ge=1, le=50, description="how many passages")


@dataclass(frozen=True, slots=True)
class _Search:
    """Search of the tool; the model only sets the arguments of `run`."""

    retriever: Retriever
    scope: Scope | None
    filters: MetadataFilters | None
    top_k: int | None
    max_tokens: int
    timeout_s: float | None
    fields: "FilterFields"

    @blocking
    def run(
        self, query: str, filters: Sequence[Any] | None = None, top_k: int | None = None
    ) -> Plan[str]:
        try:
            # Agents pass parsed arguments, or plain JSON without validation.
            arguments = _Arguments.model_validate(
                {"query": query, "filters": filters, "top_k": top_k}
            )
            bound = Query(
                arguments.query,
                filters=narrowed_filters(self.filters, all_of(arguments.filters)),
                scope=self.scope,
                top_k=arguments.top_k or self.top_k,
                timeout_s=self.timeout_s,
            )
            answer = yield from called(self.retriever.search, self.retriever.asearch, bound)
        except (InvalidFilterError, UnsupportedFilterError, ValidationError) as error:
            # The model can retry with this message.
            reason = problems(error.errors()) if isinstance(error, ValidationError) else str(error)
            fields = yield from self.fields.plan()
            return shortened(f"Error: {reason}. {fields}", self.max_tokens)
        if answer.hits:
            return shortened(self._answer(answer), self.max_tokens)
        nothing = "Nothing was found. Try other words or fewer filters."
        fields = yield from self.fields.plan()
        advice = [nothing, *(f"{hint}." for hint in answer.hints), fields]
        return shortened(" ".join(filter(None, advice)), self.max_tokens)

    arun = asynchronous(run)

    def _answer(self, answer: SearchResult) -> str:
        hits = [_shown(hit) for hit in answer.hits]
        note = (
            "\n\nThe answer is incomplete: a part of the search failed." if answer.degraded else ""
        )
        room = self.max_tokens - count_tokens(note) - 1
        return fitted(hits, room=room).text + note


@checked_call
def retrieval_tool(  # noqa: PLR0913 - what an application decides, and the model must not
    retriever: Retriever,
    name: str,
    description: str,
    *,
    scope: Scope | None = None,
    filters: MetadataFilters | None = None,
    top_k: int | None = None,
    max_tokens: int = 2000,
    sample: int = 200,
    timeout_s: float | None = None,
) -> FunctionTool:
    r"""Return a LlamaIndex tool that searches with a retriever.

    The model chooses a query, further filters and the number of passages. It cannot choose the
    scope, and its filters only narrow the search. For an invalid filter the tool returns the error
    message, so that the model can retry.

    The description lists the metadata fields and values of a sample from the scope: the nodes
    nearest to the description. They are read whenever the description is, since who may see a
    document can change. They are data that documents bring: JSON, on one line, cut to 30
    characters; a key that is longer or no identifier is left out.

    Args:
        retriever: The retriever to search with.
        name: Name of the tool.
        description: Description of the content, for the model.
        scope: The scope of every search; narrows the retriever's own.
        filters: Conditions of every search.
        top_k: Number of passages if the model sets none; None for the retriever's default.
        max_tokens: Maximum length of an answer, in tokens.
        sample: Number of nodes to take fields and values from; 0 to list none.
        timeout_s: Time limit of a search, in seconds.

    Raises:
        ConfigurationError: An argument is out of range.
        ScopeRequiredError: The retriever requires a scope.

    Examples:
        >>> from llama_retrieval_ext.testing import FixedRetriever
        >>> leave = FixedRetriever([("n1", 0.9, "Annual leave: 25 days.", {"year": 2025})])
        >>> tool = retrieval_tool(leave, "handbook", "Rules of the company")
        >>> tool.metadata.description
        'Rules of the company\nFields to filter by: "year" (2025).'
        >>> print(tool.call(query="leave").content)
        [1]
        year: 2025
        Annual leave: 25 days.

    """
    of_type(retriever, Retriever, "retriever", instead="pass a retriever of this package")
    check_count(max_tokens, "max_tokens")
    check_count(sample, "sample", least=0)
    if timeout_s is not None:
        check_seconds(timeout_s, "timeout_s")
    bound = retriever if scope is None else retriever.for_scope(check_scope(scope))
    fields = FilterFields(bound, description, filters, sample=sample, timeout_s=timeout_s)
    search = _Search(bound, bound.scope, filters, top_k, max_tokens, timeout_s, fields)
    metadata = _Described(fields, name)
    _ = metadata.description  # raises what would be raised when it is read
    return FunctionTool(fn=search.run, async_fn=search.arun, metadata=metadata)


class FilterFields:
    """The metadata fields of a sample and their values, as text for a model, read when needed."""

    def __init__(
        self,
        retriever: Retriever,
        about: str,
        filters: MetadataFilters | None = None,
        *,
        sample: int = 200,
        timeout_s: float | None = None,
    ) -> None:
        self.about = about
        self._retriever = _searched(retriever)
        self._sample = sample
        bound = narrowed_filters(retriever.filters, filters)
        self._query = Query(
            about, filters=bound, scope=retriever.scope, top_k=sample or 1, timeout_s=timeout_s
        )

    def plan(self) -> Plan[str]:
        """Return the plan for the fields that there are now, which the scope may see."""
        if not self._sample:
            return ""
        retriever = self._retriever
        if isinstance(retriever, VectorRetriever | HybridRetriever) and retriever.embed_model:
            # Embedded once.
            self._query.embedding = yield from embed(self._query, retriever.embed_model)
        answer = yield from called(retriever.search, retriever.asearch, self._query)
        return self._text(answer.hits)

    @blocking
    def described(self) -> Plan[str]:
        """Return the description of a tool: what it is about, and the fields."""
        fields = yield from self.plan()
        return f"{self.about}\n{fields}".strip()

    adescribed = asynchronous(described)

    def _text(self, hits: Sequence[Hit]) -> str:
        values: dict[str, list[object]] = {}
        for hit in hits:
            for key, value in hit.node.metadata.items():
                if key not in _HIDDEN and is_field_name(key) and value not in (None, "", []):
                    values.setdefault(key, []).extend(value if isinstance(value, list) else [value])
        text = ""
        for key in sorted(values)[:_MOST_FIELDS]:
            field = f"{as_data(key)} ({_described(values[key])})"
            longer = f"{text}; {field}" if text else f"Fields to filter by: {field}"
            if len(self.about) + len(longer) + 2 <= _LONGEST_DESCRIPTION:
                text = longer
        return f"{text}." if text else ""


class _Described(ToolMetadata):
    """Metadata of a tool whose description has the fields that there are when it is read."""

    def __init__(self, fields: FilterFields, name: str) -> None:
        self._fields = fields
        super().__init__(description=fields.about, name=name, fn_schema=_Arguments)

    @property
    def description(self) -> str:
        return self._fields.described()

    @description.setter
    def description(self, text: str) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._fields.about = text


def _searched(retriever: Retriever) -> Retriever:
    """Return the first inner store retriever; one of vectors, which finds hits for any text."""
    retrievers: list[object] = [retriever]
    for inner in retrievers:  # grows
        retrievers += children_of(inner)
    stores = [retriever for retriever in retrievers if isinstance(retriever, StoreRetriever)]
    vectors = [store for store in stores if isinstance(store, VectorRetriever)]
    return next(iter([*vectors, *stores, retriever]))


def _described(values: Sequence[object]) -> str:
    numbers = [
        value for value in values if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    distinct = sorted({as_data(value) for value in values})
    if len(numbers) == len(values) and len(distinct) > _MOST_VALUES:
        return f"{min(numbers)} to {max(numbers)}"
    more = ", ..." if len(distinct) > _MOST_VALUES else ""
    return ", ".join(distinct[:_MOST_VALUES]) + more


def _shown(hit: Hit) -> Hit:
    """Return a hit as text for the model: its fields, then its text."""
    shown = {key: value for key, value in hit.node.metadata.items() if key not in _HIDDEN}
    lines = [f"{on_one_line(key)}: {on_one_line(value)}" for key, value in shown.items()]
    node = hit.node.model_copy(update={"metadata": {}})
    node.set_content("\n".join([*lines, hit.node.get_content()]))
    return Hit(node=node, score=hit.score, source=hit.source)
