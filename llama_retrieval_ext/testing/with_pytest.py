"""pytest, for the contract classes; the fakes and the corpus do without it."""

from llama_retrieval_ext.errors import MissingDependencyError

try:
    import pytest as pytest  # noqa: PLC0414 - the other modules import it from here
except ModuleNotFoundError as error:
    raise MissingDependencyError("llama_retrieval_ext.testing", "test") from error
