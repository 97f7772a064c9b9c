"""Translation of errors to a status, a kind, and a message without content or secrets."""

from typing import Final

from llama_retrieval_ext.errors import (
    CircuitOpenError,
    ConfigurationError,
    DeadlineExceededError,
    DuplicateNodeError,
    GenerationError,
    MissingDependencyError,
    RetrievalExtError,
    ScopeError,
    ScopeRequiredError,
    ScopeViolationError,
    StoreClosedError,
    StoreUnavailableError,
    TooFewLegsError,
    UnsupportedFilterError,
    UnsupportedModeError,
)

_RETRY: Final = 503


class HttpError(RetrievalExtError):
    """An error response.

    Args:
        status: HTTP status.
        kind: Error type, one word, for programs.
        message: A sentence for people, without content or secrets.
    """

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message

    def to_dict(self) -> dict[str, object]:
        """Return the body of the response."""
        return {"error": {"type": self.kind, "message": self.message}}

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that belong to the status."""
        if self.status == 401:  # noqa: PLR2004 - HTTP
            return [(b"www-authenticate", b"Bearer")]
        return [(b"retry-after", b"1")] if self.status == _RETRY else []


# The first class that matches applies. None: use the error's own message, which only describes the
# request. Messages of other errors may name the store, its files or other tenants.
_KINDS: Final[tuple[tuple[type[Exception], int, str, str | None], ...]] = (
    (ScopeViolationError, 500, "internal", "the answer was withheld"),
    (
        ScopeRequiredError,
        403,
        "scope_required",
        "this knowledge base requires a scope: name a tenant_id or kb_ids",
    ),
    (ScopeError, 403, "out_of_scope", "this API key does not reach the scope that was named"),
    (DeadlineExceededError, 504, "deadline_exceeded", "the deadline ran out"),
    (StoreUnavailableError, _RETRY, "unavailable", "the store does not answer"),
    (StoreClosedError, _RETRY, "unavailable", "the server is stopping"),
    (CircuitOpenError, _RETRY, "unavailable", "a part that failed often is paused"),
    (TooFewLegsError, _RETRY, "unavailable", "too many parts of the search failed"),
    (GenerationError, 502, "generation_failed", "the language model gave no usable answer"),
    (UnsupportedFilterError, 422, "unsupported_filter", None),
    (UnsupportedModeError, 422, "unsupported_mode", None),
    (ConfigurationError, 422, "bad_request", None),
    (MissingDependencyError, 501, "not_installed", None),
    (DuplicateNodeError, 422, "bad_request", None),  # names no document of another scope
    (TimeoutError, 504, "deadline_exceeded", "the deadline ran out"),
)


def http_error_of(error: Exception) -> HttpError:
    """Return the HTTP error for an exception.

    Examples:
        >>> http_error_of(ScopeError("Scope('acme') and Scope('globex') have nothing in common"))
        HttpError('this API key does not reach the scope that was named')

    """
    if isinstance(error, HttpError):
        return error
    for kind, status, name, message in _KINDS:
        if isinstance(error, kind):
            return HttpError(status, name, str(error) if message is None else message)
    return HttpError(500, "internal", "the request failed; the log has its id")


def kind_of(reason: str) -> str:
    """Return the first part of a reason, a kind or name, as the rest may name servers.

    Examples:
        >>> kind_of("APIConnectionError: http://10.0.0.7:8000 does not answer")
        'APIConnectionError'

    """
    return reason.partition(":")[0]


def raised_at(error: Exception) -> str:
    """Return the file and line that raised an error, as its message may quote content."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
