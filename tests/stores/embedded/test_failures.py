"""The engine's errors, which differ by their text only, become ours."""

from pathlib import Path

import pytest

from llama_retrieval_ext.errors import StoreClosedError, StoreError, StoreUnavailableError
from llama_retrieval_ext.stores.embedded.files import translate_error


@pytest.mark.parametrize(
    ("told", "kind", "says"),
    [
        ("failed to open WAL: Kind(WouldBlock)", StoreUnavailableError, "another process has"),
        ("Shard is not initialized", StoreClosedError, "was closed"),
        ("No space left on device (os error 28)", StoreUnavailableError, "no room is left"),
        ("something else", StoreUnavailableError, "the engine failed in dir: something else"),
    ],
)
def test_an_engine_error_becomes_ours(told: str, kind: type[StoreError], says: str) -> None:
    error = translate_error(Exception(told), Path("dir"))
    assert type(error) is kind
    assert says in str(error)
