"""Where a knowledge base lives: what its URL says about its store, its ledger and its lock."""

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.ingest.write_lock import WriteLock, lock_of
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.text.tokenizer import Tokenizer

_LEDGER = "ledger.sqlite3"
_MEMORY = ":memory:"


@dataclass(frozen=True, slots=True)
class Place:
    """The parts of a knowledge base that its engine decides on.

    Attributes:
        store: The vector store, open.
        close: Closes the store; whoever opened the place calls it.
        flush: Brings what the store was given to disk.
        count: How many nodes the store holds.
        tokenizer: Settings of the store's tokenizer as JSON; empty where the engine has its own.
        ledger: The ledger's file; None to keep it in memory.
        lock: The same for everyone in this process who writes here.
    """

    store: BasePydanticVectorStore
    close: Callable[[], None]
    flush: Callable[[], None]
    count: Callable[[], int]
    tokenizer: str
    ledger: Path | None
    lock: WriteLock


def open_place(url: str, *, tokenizer: Tokenizer | None) -> Place:
    """The place that a URL names, opened or created.

    Args:
        url: ``embedded:DIRECTORY``, or ``embedded::memory:``.
        tokenizer: For keyword search; None for what the store has recorded, or the default.

    Raises:
        ConfigurationError: The URL names no engine.
        StoreFormatError: The directory holds something else.
        StoreUnavailableError: The engine cannot be reached, or another process has the directory.
    """
    engine, _, name = url.partition(":")
    if engine in _ENGINES and name:
        return _ENGINES[engine](name, tokenizer)
    near = difflib.get_close_matches(engine, _ENGINES, n=1)
    advice = f"; did you mean {near[0]}:...?" if near else "."
    raise ConfigurationError(
        f"{url!r} names no knowledge base{advice} Write embedded:./directory or embedded::memory:"
    )


def _embedded(name: str, tokenizer: Tokenizer | None) -> Place:
    store = EmbeddedVectorStore(name, tokenizer=tokenizer)
    directory = None if name == _MEMORY else Path(name).expanduser().resolve()
    return Place(
        store=store,
        close=store.close,
        flush=store.persist,
        count=store.count,
        tokenizer=json.dumps(store.tokenizer.to_dict(), sort_keys=True),
        ledger=None if directory is None else directory / _LEDGER,
        lock=WriteLock() if directory is None else lock_of(directory),
    )


_ENGINES: Mapping[str, Callable[[str, Tokenizer | None], Place]] = {"embedded": _embedded}
