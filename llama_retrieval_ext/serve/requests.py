"""Request models for HTTP and MCP; an unknown field is an error."""

from datetime import date
from typing import Annotated, Literal, Self, TypeAlias, Union

from llama_index.core.vector_stores.types import FilterCondition, MetadataFilters
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    field_validator,
    model_validator,
)

from llama_retrieval_ext.capabilities.memory_storage import MEMORY_KEYS
from llama_retrieval_ext.capabilities.tools import FieldCondition
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.filters import SCOPE_KEYS
from llama_retrieval_ext.knowledge_base.documents import check_keys
from llama_retrieval_ext.knowledge_base.kinds import SearchKind
from llama_retrieval_ext.scope import Scope

MAX_TEXT = 10_000
_MAX_CURSOR = 100_000
_MAX_CONDITIONS = 100
_MAX_HOPS = 5
_MAX_ID = 100

# Arguments of HTTP and MCP.
Weights: TypeAlias = dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]
Sort: TypeAlias = Annotated[
    str | None, Field(description="A number or date to sort by, descending after a minus.")
]
Cursor: TypeAlias = Annotated[
    str | None, Field(max_length=_MAX_CURSOR, description="Of the page before, for the next one.")
]


class Sent(BaseModel):
    """Base class of the parts of a request."""

    model_config = ConfigDict(extra="forbid")


def _example(**fields: JsonValue) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [fields]})


def _kind(value: object) -> str:
    is_group = isinstance(value, Filters) or (isinstance(value, dict) and "filters" in value)
    return "group" if is_group else "comparison"


class Filters(Sent):
    """Conditions on metadata, in the form of LlamaIndex's ``MetadataFilters``."""

    filters: list["SentCondition"] = Field(min_length=1, max_length=_MAX_CONDITIONS)
    condition: Literal["and", "or", "not"] = "and"

    def to_filters(self) -> MetadataFilters:
        """Return the conditions as LlamaIndex filters."""
        return MetadataFilters(
            filters=[
                part.to_filter() if isinstance(part, FieldCondition) else part.to_filters()
                for part in self.filters
            ],
            condition=FilterCondition(self.condition),
        )

    @property
    def n_conditions(self) -> int:
        """Number of comparisons, also in groups."""
        return sum(part.n_conditions if isinstance(part, Filters) else 1 for part in self.filters)

    @model_validator(mode="after")
    def _limited(self) -> Self:
        if self.n_conditions > _MAX_CONDITIONS:
            raise ValueError(f"there are more than {_MAX_CONDITIONS} conditions")
        return self


# Discriminated, so that an error names the field of the right alternative.
SentCondition: TypeAlias = Annotated[
    Union[  # noqa: UP007 - one part is a name that comes later
        Annotated[FieldCondition, Tag("comparison")], Annotated["Filters", Tag("group")]
    ],
    Discriminator(_kind),
]
Filters.model_rebuild()


class RequestedScope(Sent):
    """A narrower scope than that of the API key."""

    tenant_id: str | None = None
    kb_ids: list[str] | None = Field(default=None, min_length=1)
    principals: list[str] | None = Field(
        default=None, description="The user and the user's groups, if the key may name them."
    )

    def to_scope(self) -> Scope | None:
        """Return the scope; None if no field is set."""
        if self.tenant_id is None and self.kb_ids is None and self.principals is None:
            return None
        return Scope(self.tenant_id, self.kb_ids, self.principals)


class Timed(Sent):
    """The time for which something is asked."""

    as_of: str | None = Field(
        default=None, description="What held at this date or instant, such as 2021-09-01."
    )
    known_at: str | None = Field(default=None, description="What was known then, likewise.")


class Asked(Timed):
    """The options of every question."""

    filters: Filters | None = None
    scope: RequestedScope | None = None
    correct: bool = Field(
        default=True, description="Whether typing errors are corrected; the answer says so."
    )
    interpret: bool = Field(
        default=False,
        description="Whether words that state filters, such as 'after 2010', become filters.",
    )
    fields: Weights | None = Field(
        default=None, description='The fields of keyword search, with weights: {"title": 1}.'
    )


class SearchFields(Asked):
    """The options of a search."""

    mode: SearchKind = "hybrid"
    top_k: int = Field(default=10, ge=1, description="How many hits; the server has a limit.")
    per_source: int | None = Field(
        default=None, ge=1, description="How many hits of each source at most."
    )


class SearchRequest(SearchFields):
    """A search."""

    query: str = Field(min_length=1, max_length=MAX_TEXT)
    sort: Sort = None
    cursor: Cursor = None

    model_config = _example(
        query="How many days of annual leave?",
        mode="hybrid",
        top_k=5,
        filters={"filters": [{"key": "year", "operator": ">=", "value": 2024}]},
    )


class FacetsRequest(Timed):
    """Fields whose values are counted."""

    fields: Annotated[
        list[str] | dict[str, int | list[float] | list[str] | None],
        Field(min_length=1, max_length=_MAX_CONDITIONS),
    ] = Field(description="Their names; or each with ranges: their number, or bounds.")
    query: str | None = Field(default=None, min_length=1, max_length=MAX_TEXT)
    mode: SearchKind = "keyword"
    first: int | None = Field(default=None, ge=1, description="Count among so many best hits.")
    top: int = Field(default=10, ge=1, le=1000, description="How many values of each field.")
    nodes: bool = Field(default=False, description="Whether to count passages, not documents.")
    filters: Filters | None = None
    scope: RequestedScope | None = None

    model_config = _example(fields=["law", "year"], top=5)


class FeedbackRequest(Sent):
    """What somebody did with the answer to a search: opened a hit, or judged it."""

    query_id: str = Field(min_length=1, max_length=_MAX_ID, description="As in the answer.")
    hit: str | None = Field(
        default=None, max_length=MAX_TEXT, description="The `node_id` or `document_id` of a hit."
    )
    good: bool | None = Field(default=None, description="Whether the answer was good.")
    scope: RequestedScope | None = None

    model_config = _example(query_id="9f86d081884c7d65", hit="leave")

    @model_validator(mode="after")
    def _says(self) -> Self:
        if self.hit is None and self.good is None:
            raise ValueError("feedback has a hit, or good, or both")
        return self


class SearchManyRequest(SearchFields):
    """Several searches with the same options."""

    queries: list[Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]] = Field(
        min_length=1, description="The server has a limit of their number."
    )

    model_config = _example(queries=["annual leave", "sick leave"], top_k=3)

    def searches(self) -> list[SearchRequest]:
        """Return the searches, which are valid like this request."""
        options = {name: getattr(self, name) for name in SearchFields.model_fields}
        return [
            SearchRequest.model_construct(self.model_fields_set, query=text, **options)
            for text in self.queries
        ]


class SentDocument(Sent):
    """A document to add; one with the same id is replaced."""

    id: str = Field(min_length=1, max_length=MAX_TEXT)
    text: str
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    allowed: list[str] | None = Field(
        default=None, description="Who may see it; null for everyone, or for whom it named before."
    )

    @field_validator("metadata", mode="before")
    @classmethod
    def _few_keys(cls, metadata: object) -> object:
        try:
            check_keys(metadata)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return metadata

    @field_validator("metadata")
    @classmethod
    def _no_reserved(cls, metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for key in (*SCOPE_KEYS, *MEMORY_KEYS):
            if key in metadata:
                raise ValueError(f"{key} is set by this server; leave it out")
        return metadata


class ShareRequest(Sent):
    """Who may see a document."""

    allowed: list[str] | None = Field(description="Users and groups; null for everyone.")
    scope: RequestedScope | None = None

    model_config = _example(allowed=["group:hr"])


class AddRequest(Sent):
    """Documents to add."""

    documents: Annotated[list[SentDocument], Field(min_length=1)]
    scope: RequestedScope | None = None
    validity: Literal["text"] | None = Field(
        default=None, description="text: read from when until when it holds from its text."
    )

    model_config = _example(
        documents=[
            {
                "id": "leave",
                "text": "Annual leave is 25 days.",
                "metadata": {"file_path": "handbook.md", "year": 2025},
            }
        ],
        scope={"kb_ids": ["handbook"]},
    )


class AskRequest(Asked):
    """A question, topic or task, and conditions on the documents."""

    query: str = Field(min_length=1, max_length=MAX_TEXT)

    model_config = _example(query="How many days of annual leave?")


class DocumentsRequest(AskRequest):
    """A search for whole documents."""

    top_k: int = Field(default=10, ge=1, description="How many; the server has a limit.")

    model_config = _example(query="annual leave", top_k=3)


class MimicRequest(AskRequest):
    """A task for a reply in a person's style."""

    temperature: float | None = Field(
        default=None, ge=0, le=2, description="Of the model; null for 0.8."
    )
    use_history: bool = Field(default=True, description="False for the model's own style.")
    user_id: str | None = Field(default=None, description="Imitate what this person wrote.")
    conversation_id: str | None = Field(default=None, description="Only this conversation.")

    model_config = _example(query="Confirm the meeting at ten.", user_id="anna")


class InsightsRequest(AskRequest):
    """A topic for insights."""

    top_k: int = Field(default=20, ge=1, description="How many passages are read.")

    model_config = _example(query="delays of deliveries", top_k=20)


class RelatedRequest(AskRequest):
    """A subject to find related entities for."""

    top_k: int = Field(default=10, ge=1, description="How many; the server has a limit.")
    max_hops: int = Field(default=2, ge=1, le=_MAX_HOPS, description="Greatest distance.")

    model_config = _example(query="Tower Crane", top_k=5)


class TimelineRequest(AskRequest):
    """A topic over time."""

    start: date | None = Field(default=None, description="The first day.")
    end: date | None = Field(default=None, description="The last day, inclusive.")
    top_k: int = Field(default=20, ge=1, description="How many passages, and how many memories.")

    model_config = _example(query="crane", start="2026-05-01", end="2026-05-31")


LimitedRequest: TypeAlias = (
    SearchFields | DocumentsRequest | InsightsRequest | RelatedRequest | TimelineRequest
)


class WorkLogRequest(Sent):
    """A work log to store."""

    user_id: str = Field(min_length=1)
    text: str = Field(min_length=1, max_length=MAX_TEXT)
    timestamp: AwareDatetime | None = Field(default=None, description="None for now.")
    scope: RequestedScope | None = None

    model_config = _example(
        user_id="anna", text="The crane came two days late.", timestamp="2026-05-06T09:00:00Z"
    )


class WeeklyReportRequest(Sent):
    """The user and the days of a weekly report."""

    user_id: str = Field(min_length=1)
    start_date: date
    end_date: date = Field(description="Inclusive.")
    style: str = Field(default="professional", min_length=1, max_length=100)
    scope: RequestedScope | None = None

    model_config = _example(user_id="anna", start_date="2026-05-04", end_date="2026-05-10")
