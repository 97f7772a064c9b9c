"""pytest, for the contract classes; the fakes and the corpus do without it."""

from collections.abc import Iterator
from contextlib import contextmanager

from llama_retrieval_ext.errors import MissingDependencyError

try:
    import pytest as pytest  # noqa: PLC0414 - the other modules import it from here
except ModuleNotFoundError as error:
    raise MissingDependencyError("llama_retrieval_ext.testing", "test") from error


@contextmanager
def case(*what: object) -> Iterator[None]:
    """Name the case, in a test of several, in whatever fails inside."""
    try:
        yield
    except BaseException as error:  # pytest's own failures are no Exceptions
        error.add_note(f"case: {', '.join(map(repr, what))}")
        raise
