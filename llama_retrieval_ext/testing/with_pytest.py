"""Import of pytest for the contract classes; fakes and corpus do not need it."""

from collections.abc import Iterator
from contextlib import contextmanager

from llama_retrieval_ext.errors import MissingDependencyError

try:
    import pytest as pytest  # noqa: PLC0414 - the other modules import it from here
except ModuleNotFoundError as error:
    raise MissingDependencyError("llama_retrieval_ext.testing", "test") from error


@contextmanager
def case(*what: object) -> Iterator[None]:
    """Add the name of the case to any failure inside the block."""
    try:
        yield
    except BaseException as error:  # pytest's own failures are not Exceptions
        error.add_note(f"case: {', '.join(map(repr, what))}")
        raise
