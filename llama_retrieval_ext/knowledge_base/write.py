"""Writes documents to the store and the ledger, in an order that survives a crash at any point.

Claim in the journal → write the rows of the new version → flush to disk → commit in the journal →
sweep, which deletes the rows of the old version. After a crash of the process or the machine, the
next write or opening sweeps what the ledger does not name: the new rows before the commit, the old
ones after it. So nothing is written twice, and it needs no room.

On a server several processes may write. Each claims the documents of a batch one by one. If another
process has claimed a document, the writer waits until that process finishes it or counts as dead.
"""

import logging
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from random import uniform
from threading import Lock, RLock, Thread
from time import monotonic, sleep
from typing import Final, Protocol, TypeAlias, TypeVar
from weakref import ReferenceType, WeakValueDictionary, ref

from llama_retrieval_ext.errors import (
    ModelMismatchError,
    StoreClosedError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.knowledge_base.documents import each_or_error
from llama_retrieval_ext.knowledge_base.ledger.journal import Claim, Journal, WriteOutcome
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, Prepared, Writable
from llama_retrieval_ext.knowledge_base.ledger.records import WriteState

T = TypeVar("T")


def lock_of(identity: Hashable | None) -> RLock:
    """Return the lock that all writers of this process share; without an identity, a new one."""
    if identity is None:
        return RLock()
    with _creating:
        return _locks.setdefault(identity, RLock())


# Module state, because all objects of one knowledge base share its lock.
_creating = Lock()
_locks: WeakValueDictionary[Hashable, RLock] = WeakValueDictionary()


# Yields copies of stored documents as they are known until now, ready to be written.
History: TypeAlias = Callable[[Sequence[DocumentKey]], AbstractContextManager[Sequence[Writable]]]


class WriteTarget(Protocol):
    """A target of writes: the vector store, or the graph beside it.

    After a crash the same nodes are upserted or deleted again.
    """

    def check(self, documents: Sequence[Writable]) -> None:
        """Raise if it is not writable now, or has no room for new versions of documents.

        Called before they are claimed: a refused write leaves nothing in the journal.
        """
        ...

    def upsert(self, documents: Sequence[Prepared], slot: int) -> None:
        """Write the nodes of documents to their rows in a slot; see `row_id`."""
        ...

    def delete(self, node_ids: Sequence[str], slot: int) -> None:
        """Delete the rows of nodes in a slot; missing ones are ignored."""
        ...

    def flush(self) -> None:
        """Write pending changes to disk."""
        ...


# Ids of nodes that are deleted in one call.
_MANY_NODES: Final = 4096
# Errors that concern no single document.
_FATAL = (StoreUnavailableError, StoreClosedError, StoreFormatError, ModelMismatchError, OSError)
# Interval between checks of documents that another process has claimed.
_PAUSE_S: Final = (0.02, 0.1)
_WARN_AFTER_S: Final = 2.0
# Interval between attempts to give back claims after an outage.
_RETRY_S: Final = 0.5
# Longer than the lifetime of a dead writer's claims.
_WAIT_S: Final = 120.0
# Consecutive times that a writer may lose its claims to others that consider it dead.
_MAX_LOSSES: Final = 3
_logger = logging.getLogger(__name__)


class Writer:
    """Writes to a store, its graph and the ledger consistently; the targets are in write order."""

    def __init__(self, targets: Sequence[WriteTarget], journal: Journal, *, lock: RLock) -> None:
        self._targets = targets
        self._journal = journal
        self.lock = lock
        self.history: History | None = None  # copies what is replaced or deleted
        self._losses = 0
        self._is_retrying = False

    def write(self, documents: Sequence[Writable]) -> list[WriteOutcome | Exception]:
        """Store each document atomically; return the outcome of each.

        Errors that concern no single document are raised.
        """
        outcomes: dict[DocumentKey, WriteOutcome | Exception] = {}
        with self.lock:
            for target in self._targets:
                target.check(documents)
            if self.history is not None:
                self._keep([d.key for d in documents if d.replaces is None], self.history)
            self._repeat(documents, partial(self._write, outcomes))
        return [outcomes[document.key] for document in documents]

    def delete(self, keys: Sequence[DocumentKey]) -> None:
        """Delete documents with all their nodes; missing ones are ignored."""
        with self.lock:
            for target in self._targets:
                target.check(())
            if self.history is not None:
                self._keep(keys, self.history)
            self._repeat(keys, self._delete)

    def settle(self) -> None:
        """Sweep unfinished changes: undo those without a commit, and finish the others."""
        with self.lock:
            self._sweep(self._journal.unfinished())

    def _keep(self, keys: Sequence[DocumentKey], history: History) -> None:
        """Write copies of stored documents that are about to be replaced or deleted."""
        if not keys:
            return
        outcomes: dict[DocumentKey, WriteOutcome | Exception] = {}
        with history(keys) as copies:
            self._repeat(copies, partial(self._write, outcomes))
        for outcome in outcomes.values():
            if isinstance(outcome, Exception):
                raise outcome

    def _repeat(self, items: Sequence[T], work: Callable[[list[T]], list[T]]) -> None:
        """Settle unfinished changes and call `work` until no document is left."""
        started = monotonic()
        self._losses = 0
        warned = False
        pending = list(items)
        while pending:
            self._sweep(self._journal.unfinished())
            pending = work(pending)
            if not pending:
                return
            waited_s = monotonic() - started
            if waited_s > _WAIT_S or self._losses > _MAX_LOSSES:
                raise StoreUnavailableError(
                    f"another process keeps writing {len(pending)} of these documents; let one "
                    "process write a document at a time, and do this again"
                )
            if waited_s > _WARN_AFTER_S and not warned:
                warned = True
                _logger.warning(
                    "waiting for another process that is writing %d of the same documents, or died "
                    "while it was",
                    len(pending),
                )
            sleep(uniform(*_PAUSE_S))  # noqa: S311 - so that two do not keep in step

    def _write(
        self, outcomes: dict[DocumentKey, WriteOutcome | Exception], documents: list[Writable]
    ) -> list[Writable]:
        """Write the documents that no other writer has claimed; return the others."""
        claims: list[Claim] = []
        with self._roll_back(claims):
            replies = self._journal.begin(documents)
            begun = [
                (reply, document)
                for document, reply in zip(documents, replies, strict=True)
                if isinstance(reply, Claim)
            ]
            claims += [claim for claim, _ in begun]
            results = each_or_error(begun, self._upsert, fatal=_FATAL)
            failures: dict[DocumentKey, Exception] = {}
            failed, written = list[Claim](), list[Claim]()
            for claim, result in zip(claims, results, strict=True):
                if isinstance(result, Exception):
                    failures[claim.key] = result
                    failed.append(claim)
                else:
                    written.append(claim)
            self._sweep(failed)
            lost = self._commit(written)
        left: list[Writable] = []
        for document, reply in zip(documents, replies, strict=True):
            outcome = failures.get(document.key) or reply
            if isinstance(outcome, Claim):
                is_new = outcome.state is WriteState.ADDING
                outcome = WriteOutcome.ADDED if is_new else WriteOutcome.UPDATED
            if outcome is None or document.key in lost:
                left.append(document)
            else:
                outcomes[document.key] = outcome
        return left

    def _delete(self, keys: list[DocumentKey]) -> list[DocumentKey]:
        """Delete the documents that no other writer has claimed; return the others."""
        claims: list[Claim] = []
        with self._roll_back(claims):
            replies = self._journal.begin_deleting(keys)
            claims += [reply for reply in replies if isinstance(reply, Claim)]
            lost = self._sweep(claims)
        return [
            key for key, reply in zip(keys, replies, strict=True) if reply is None or key in lost
        ]

    @contextmanager
    def _roll_back(self, claims: Sequence[Claim]) -> Generator[None]:
        """Settle unfinished changes on an error; if that fails, a later call settles them."""
        try:
            yield
        except BaseException:
            try:
                self.settle()
                self._discard_lost(claims)
            except Exception:  # noqa: BLE001 - the error of the block is raised
                if self._journal.is_shared and not self._is_retrying:
                    self._is_retrying = True
                    Thread(target=_retry_settling, args=(ref(self),), daemon=True).start()
            raise

    def _upsert(self, begun: Sequence[tuple[Claim, Writable]]) -> list[None]:
        """Write the rows of new versions: whole documents together, then the parts of others."""
        for slot in (0, 1):
            documents = [
                document
                for claim, document in begun
                if isinstance(document, Prepared) and claim.slot != slot
            ]
            for target in self._targets if documents else ():
                target.upsert(documents, slot)
        for claim, document in begun:
            for part in () if isinstance(document, Prepared) else document.parts():
                # It takes longer than others consider claims alive.
                if claim in self._journal.confirm([claim for claim, _ in begun]):
                    for target in self._targets:
                        target.upsert([part], 1 - claim.slot)
        return [None] * len(begun)

    def _commit(self, claims: Sequence[Claim]) -> set[DocumentKey]:
        """Make written versions the stored ones; return the documents whose claim was lost."""
        if not claims:
            return set()
        self._flush()  # the rows must be durable before the ledger names them
        committed = self._journal.commit(self._journal.confirm(claims))
        lost = self._sweep([claim for claim in committed if claim.state is WriteState.SWEEPING])
        if len(committed) == len(claims):
            return lost
        keys = {claim.key for claim in committed}
        return lost | self._discard_lost([claim for claim in claims if claim.key not in keys])

    def _sweep(self, claims: Sequence[Claim]) -> set[DocumentKey]:
        """Delete the rows that documents do not keep; return those whose claim was lost."""
        if not claims:
            return set()
        held = self._journal.confirm(claims)
        for slot in (0, 1):
            self._discard([node_id for claim in held for node_id in claim.doomed(slot)], slot)
        self._flush()
        finished = {claim.key for claim in self._journal.finish(held)}
        return self._discard_lost([claim for claim in claims if claim.key not in finished])

    def _discard_lost(self, claims: Sequence[Claim]) -> set[DocumentKey]:
        """Delete the rows written under claims that another writer has taken over."""
        if claims:
            self._losses += 1
            for slot, node_ids in self._journal.unowned(claims).items():
                self._discard(node_ids, slot)
        return {claim.key for claim in claims}

    def _discard(self, node_ids: Sequence[str], slot: int) -> None:
        for start in range(0, len(node_ids), _MANY_NODES):
            for target in self._targets:
                target.delete(node_ids[start : start + _MANY_NODES], slot)

    def _flush(self) -> None:
        for target in self._targets:
            target.flush()


def _retry_settling(writer: "ReferenceType[Writer]") -> None:
    """Give back the claims of a writer once its server answers again; others wait for them."""
    until = monotonic() + _WAIT_S
    while monotonic() < until:
        sleep(_RETRY_S)
        living = writer()
        if living is None:
            return
        try:
            living.settle()
        except StoreClosedError:
            break
        except Exception:  # noqa: BLE001 - the next attempt may succeed
            del living
            continue
        break
    if (living := writer()) is not None:
        living._is_retrying = False  # noqa: SLF001 - of this module
