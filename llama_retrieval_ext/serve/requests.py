"""Request models for HTTP and MCP; an unknown field is an error."""

from typing import Annotated, Literal, TypeAlias, Union

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    StrictFloat,
    StrictInt,
    Tag,
    field_validator,
)

from llama_retrieval_ext.query import KB_KEY, TENANT_KEY, Scope

_MAX_TEXT = 10_000
_MAX_CONDITIONS = 100

Operator: TypeAlias = Literal[
    "==",
    "!=",
    ">",
    ">=",
    "<",
    "<=",
    "in",
    "nin",
    "any",
    "all",
    "contains",
    "text_match",
    "text_match_insensitive",
    "is_empty",
]
Value: TypeAlias = StrictInt | StrictFloat | str | list[str] | list[StrictInt] | list[StrictFloat]
# The last three need a graph.
Mode: TypeAlias = Literal["hybrid", "vector", "keyword", "graph", "kg_rule", "knowledge"]


class Sent(BaseModel):
    """Base class of the parts of a request."""

    model_config = ConfigDict(extra="forbid")


class Comparison(Sent):
    """A condition on a metadata field."""

    key: str = Field(description="The metadata field.")
    operator: Operator = "=="
    value: Value | None = Field(default=None, description="Nothing for is_empty.")

    def to_filter(self) -> MetadataFilter:
        """Return the condition as a LlamaIndex filter."""
        return MetadataFilter(
            key=self.key, operator=FilterOperator(self.operator), value=self.value
        )


def _kind(value: object) -> str:
    is_group = isinstance(value, Filters) or (isinstance(value, dict) and "filters" in value)
    return "group" if is_group else "comparison"


class Filters(Sent):
    """Conditions on metadata, in the form of LlamaIndex's ``MetadataFilters``."""

    filters: list["Condition"] = Field(min_length=1, max_length=_MAX_CONDITIONS)
    condition: Literal["and", "or", "not"] = "and"

    def to_filters(self) -> MetadataFilters:
        """Return the conditions as LlamaIndex filters."""
        return MetadataFilters(
            filters=[
                each.to_filter() if isinstance(each, Comparison) else each.to_filters()
                for each in self.filters
            ],
            condition=FilterCondition(self.condition),
        )


# Discriminated, so that an error names the field of the right alternative.
Condition: TypeAlias = Annotated[
    Union[  # noqa: UP007 - one part is a name that comes later
        Annotated[Comparison, Tag("comparison")], Annotated["Filters", Tag("group")]
    ],
    Discriminator(_kind),
]
Filters.model_rebuild()


class RequestedScope(Sent):
    """A narrower scope than that of the API key."""

    tenant_id: str | None = None
    kb_ids: list[str] = Field(default_factory=list)

    def to_scope(self) -> Scope | None:
        """Return the scope; None if no field is set."""
        if self.tenant_id is None and not self.kb_ids:
            return None
        return Scope(self.tenant_id, self.kb_ids)


class SearchRequest(Sent):
    """A search."""

    query: str = Field(min_length=1, max_length=_MAX_TEXT)
    mode: Mode = "hybrid"
    top_k: int = Field(default=10, ge=1, description="How many hits; the server has a limit.")
    per_source: int | None = Field(
        default=None, ge=1, description="How many hits of each source at most."
    )
    filters: Filters | None = None
    scope: RequestedScope | None = None

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "query": "How many days of annual leave?",
                    "mode": "hybrid",
                    "top_k": 5,
                    "filters": {"filters": [{"key": "year", "operator": ">=", "value": 2024}]},
                }
            ]
        },
    )


class SentDocument(Sent):
    """A document to add; one with the same id is replaced."""

    id: str = Field(min_length=1, max_length=_MAX_TEXT)
    text: str
    metadata: dict[str, JsonValue] = Field(default_factory=dict)

    @field_validator("metadata")
    @classmethod
    def _no_scope(cls, metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for key in (TENANT_KEY, KB_KEY):
            if key in metadata:
                raise ValueError(f"{key} is set by the scope; leave it out")
        return metadata


class AddRequest(Sent):
    """Documents to add."""

    documents: Annotated[list[SentDocument], Field(min_length=1)]
    scope: RequestedScope | None = None

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "documents": [
                        {
                            "id": "leave",
                            "text": "Annual leave is 25 days.",
                            "metadata": {"file_path": "handbook.md", "year": 2025},
                        }
                    ],
                    "scope": {"kb_ids": ["handbook"]},
                }
            ]
        },
    )
