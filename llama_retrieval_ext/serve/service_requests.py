"""Request models of the services."""

from datetime import date

from pydantic import AwareDatetime, ConfigDict, Field
from pydantic.config import JsonValue

from llama_retrieval_ext.serve.requests import Filters, RequestedScope, Sent

_MAX_TEXT = 10_000
_MAX_HOPS = 5


def _example(**fields: JsonValue) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [fields]})


class AskRequest(Sent):
    """A question, topic or task, and conditions on the documents."""

    query: str = Field(min_length=1, max_length=_MAX_TEXT)
    filters: Filters | None = None
    scope: RequestedScope | None = None

    model_config = _example(query="How many days of annual leave?")


class DocumentsRequest(AskRequest):
    """A search for whole documents."""

    top_k: int = Field(default=10, ge=1, description="How many; the server has a limit.")

    model_config = _example(query="annual leave", top_k=3)


class MimicRequest(AskRequest):
    """A task for a reply in a person's style."""

    temperature: float | None = Field(
        default=0.8, ge=0, le=2, description="Of the model; null for its own."
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


class WorkLogRequest(Sent):
    """A work log to store."""

    user_id: str = Field(min_length=1)
    text: str = Field(min_length=1, max_length=_MAX_TEXT)
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
