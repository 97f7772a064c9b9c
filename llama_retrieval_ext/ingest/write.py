"""Writes documents into the store and the ledger, in an order that survives a crash anywhere.

Noted in the journal → new nodes into the store → old nodes out of it → flushed to disk → done. What
a crash of the process or the machine leaves half done is settled before the next write and at the
next opening: a document that was being added is taken out again, one that was being updated or
deleted is finished.
"""

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from threading import Lock, RLock
from weakref import WeakValueDictionary

from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import (
    ModelMismatchError,
    StoreClosedError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.ingest.documents import DocumentKey, Prepared
from llama_retrieval_ext.ingest.journal import Journal, JournalState, WriteOutcome
from llama_retrieval_ext.ingest.transform import each_or_error


class WriteLock:
    """Held while something is written; the thread that holds it may take it again."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def lock_of(place: Hashable) -> WriteLock:
    """The lock of a place, the same for everyone in this process.

    Args:
        place: What tells it from all others, such as the real path of a directory.
    """
    with _making:
        return _locks.setdefault(place, WriteLock())


# Module state, because the place is shared by whoever opens it.
_making = Lock()
_locks: WeakValueDictionary[Hashable, WriteLock] = WeakValueDictionary()


# Not the fault of any document.
_FATAL = (StoreUnavailableError, StoreClosedError, StoreFormatError, ModelMismatchError, OSError)


class Writer:
    """Keeps a store and its ledger in step.

    Args:
        store: The vector store; it upserts by node id.
        journal: Where what is begun is noted.
        lock: Held while something is written. Everyone who writes to this store has the same.
        flush: Brings what the store was given to disk.
    """

    def __init__(
        self,
        store: BasePydanticVectorStore,
        journal: Journal,
        *,
        lock: WriteLock,
        flush: Callable[[], None],
    ) -> None:
        self._store = store
        self._journal = journal
        self._flush = flush
        self.lock = lock

    def write(self, documents: Sequence[Prepared]) -> list[WriteOutcome | Exception]:
        """What came of each document: at the end it is in the store as a whole, or as before.

        Raises:
            StoreUnavailableError: The store or the ledger takes no more; as are other errors that
                are no document's fault.
        """
        with self.lock:
            self.settle()
            begun: list[Prepared] = []
            try:
                outcomes = self._journal.begin(documents)
                begun += [
                    each
                    for each, outcome in zip(documents, outcomes, strict=True)
                    if outcome in (WriteOutcome.ADDED, WriteOutcome.UPDATED)
                ]
                written = dict(zip((each.key for each in begun), self._put(begun), strict=True))
                self._complete()
            except BaseException:
                with suppress(Exception):  # if it cannot be settled now, it is later
                    self.settle()
                    self._delete_nodes(self._journal.ownerless(begun))
                raise
        return [
            written.get(each.key) or outcome
            for each, outcome in zip(documents, outcomes, strict=True)
        ]

    def delete(self, keys: Sequence[DocumentKey]) -> int:
        """How many nodes went with these documents."""
        with self.lock:
            self.settle()
            self._journal.begin_deleting(keys)
            count = len(self._journal.doomed())
            self._complete()
        return count

    def settle(self) -> None:
        """Finish or undo what was begun and left."""
        with self.lock:
            unfinished = self._journal.unfinished()
            for key, motion in unfinished:
                if motion is JournalState.ADDING:
                    self._undo(key)
            updating = [key for key, motion in unfinished if motion is JournalState.UPDATING]
            self._put([self._journal.new_version(key) for key in updating])
            if unfinished:
                self._complete()

    def _put(self, documents: Sequence[Prepared]) -> list[Exception | None]:
        """What kept each document out of the store, if anything did; it is undone then."""
        results = each_or_error(documents, self._upsert, fatal=_FATAL)
        for document, result in zip(documents, results, strict=True):
            if isinstance(result, Exception):
                self._undo(document.key)
        return results

    def _upsert(self, documents: Sequence[Prepared]) -> list[None]:
        self._store.add([node for document in documents for node in document.nodes])
        return [None] * len(documents)

    def _undo(self, key: DocumentKey) -> None:
        self._delete_nodes(self._journal.fresh(key))
        self._flush()
        self._journal.undo(key)

    def _complete(self) -> None:
        self._delete_nodes(self._journal.doomed())
        # The journal may forget only what the store cannot lose any more.
        self._flush()
        self._journal.finish()

    def _delete_nodes(self, node_ids: list[str]) -> None:
        if node_ids:
            self._store.delete_nodes(node_ids=node_ids)
