"""Answers as server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final, TypeAlias

from fastapi import Response
from fastapi.responses import StreamingResponse
from pydantic_core import to_json

from llama_retrieval_ext.serve.guard import RequestContext
from llama_retrieval_ext.serve.http_errors import http_error_of

# Event names and their JSON.
Events: TypeAlias = AsyncGenerator[tuple[str, object], None]

_MEDIA_TYPE: Final = "text/event-stream"


def event_stream(events: Events, context: RequestContext) -> Response:
    """Return a response of server-sent events; an error becomes the last event.

    Args:
        events: The events; closed when the client disconnects.
        context: The request; the status of an error is added to its notes.
    """
    return StreamingResponse(_encoded(events, context), media_type=_MEDIA_TYPE)


def events_example(description: str, example: str) -> dict[str, object]:
    """Return the OpenAPI documentation of a response of events."""
    return {"description": description, "content": {_MEDIA_TYPE: {"example": example}}}


async def _encoded(events: Events, context: RequestContext) -> AsyncIterator[bytes]:
    try:
        async with aclosing(events):
            async for name, value in events:
                yield _event(name, value)
    except Exception as error:  # noqa: BLE001 - the status is sent: the error is an event
        failure = http_error_of(error)
        context.notes |= {"stream_status": failure.status, "error": type(error).__name__}
        yield _event("error", failure.to_dict())


def _event(name: str, value: object) -> bytes:
    data = to_json(value, inf_nan_mode="null", fallback=str)
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
