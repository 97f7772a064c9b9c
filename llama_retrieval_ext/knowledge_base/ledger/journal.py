"""The journal: the claims of writers, in the records of a `Ledger`.

A writer claims a document by replacing the record version that it has read, writes the rows of the
new version beside those of the stored one, commits by naming the new version in the record, and
sweeps the rows of the old one. Other writers of the document wait. A claim that is old belongs to a
dead writer; the next writer sweeps what the record does not name, which undoes a change before its
commit and finishes it after.
"""

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import DuplicateNodeError
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, Writable, key_of_node
from llama_retrieval_ext.knowledge_base.ledger.records import (
    DocumentRecord,
    Value,
    Version,
    WriteState,
    documents_in,
    temporary,
)

# The node ids of the stored version of a document, and of the other.
_Ids: TypeAlias = tuple[Sequence[str], Sequence[str]]
_NO_IDS: Final[_Ids] = ((), ())


class WriteOutcome(StrEnum):
    """The result of writing a document."""

    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    OUTDATED = "outdated"  # not written: the stored version is not the one that it was made from


class Claim(NamedTuple):
    """A document that this writer is changing; see `DocumentRecord`."""

    key: DocumentKey
    state: WriteState
    slot: int  # of the rows of the stored version
    stored: Sequence[str]  # its node ids
    other: Sequence[str]  # those of the other version

    @classmethod
    def of(cls, record: DocumentRecord, ids: _Ids) -> "Claim":
        """Return the claim on a record with these node ids."""
        return cls(record.key, record.state or WriteState.SWEEPING, record.slot, *ids)

    @property
    def committed(self) -> "Claim":
        """The claim after the commit: on the rows of the version before, if there is one."""
        if self.state is WriteState.ADDING:
            return self
        return Claim(self.key, WriteState.SWEEPING, 1 - self.slot, self.other, self.stored)

    def doomed(self, slot: int) -> Sequence[str]:
        """Return the node ids of the rows in a slot that are deleted when it is swept."""
        if slot != self.slot:
            return self.other
        return self.stored if self.state is WriteState.DELETING else ()


# UNCHANGED if this version is stored already; None if another writer has claimed the document.
Reply: TypeAlias = Claim | WriteOutcome | Exception | None


class Journal:
    """Records the changes of a writer; the caller holds the lock of the knowledge base.

    Args:
        ledger: The ledger whose documents are changed.
        stored: Returns the stored nodes with some ids.

    Attributes:
        is_shared: Whether other processes may write, and wait for the claims of this writer.
    """

    def __init__(
        self, ledger: Ledger, stored: Callable[[Sequence[str]], Iterable[BaseNode]]
    ) -> None:
        self.is_shared = ledger.file is None
        self._ledger = ledger
        self._records = ledger.records
        self._values = ledger.values
        self._stored = stored
        self._writer = secrets.token_hex(8)
        self._claimed: dict[DocumentKey, DocumentRecord] = {}
        # Search for claims of dead writers after an error, after meeting a claim, and at
        # intervals.
        self._must_look = True
        self._meets_claims = False
        self._look_at_ms = 0

    def begin(self, documents: Sequence[Writable]) -> list[Reply]:
        """Claim documents before they are written; an error, as of a duplicate id, is a reply."""
        stored = self._read(map(attrgetter("key"), documents))
        stored_ids = self._ledger.ids_of(stored)
        replies: dict[DocumentKey, Reply] = {}
        free = []
        for document in documents:
            record = stored.get(document.key)
            digest = None if record is None else record.stored.digest
            if record is not None and record.state is not None:
                continue  # another writer has claimed it
            is_stored = digest == document.digest
            if not is_stored and document.replaces in (None, digest):
                free.append(document)
            else:
                outcome = WriteOutcome.UNCHANGED if is_stored else WriteOutcome.OUTDATED
                replies[document.key] = outcome
        errors = self._duplicates(free, stored_ids)
        free = [document for document in free if document.key not in errors]
        claimed = self._claim(self._next_versions(free, stored))
        self._values.write(record.other.nodes for record in claimed.values())
        try:
            if self.is_shared:
                self._ledger.check_exists()
        except BaseException:  # the knowledge base was removed meanwhile
            self._end([], list(self._claimed.values()))
            raise
        for document in free:
            record = claimed.get(document.key)
            old, _ = stored_ids.get(document.key, _NO_IDS)
            if record is not None:
                replies[document.key] = Claim.of(record, (old, document.node_ids))
        replies |= errors
        return [replies.get(document.key) for document in documents]

    def _next_versions(
        self, documents: Sequence[Writable], stored: Mapping[DocumentKey, DocumentRecord]
    ) -> list[DocumentRecord]:
        """Return the records of documents with their next versions, before they are claimed."""
        now_ms = self._ledger.now_ms
        records = []
        for number, document in enumerate(documents):
            record = stored.get(document.key)
            state = WriteState.ADDING if record is None else WriteState.UPDATING
            record = record or DocumentRecord(document.key, now_ms * 1_000_000 + number)
            ids = document.node_ids
            nodes = self._values.create(json.dumps(ids))
            new = Version(document.digest, document.source, len(ids), document.allowed, nodes)
            records.append(record._replace(state=state, other=new))
        return records

    def begin_deleting(self, keys: Sequence[DocumentKey]) -> list[Reply]:
        """Claim documents before they are deleted; UNCHANGED for those that do not exist."""
        stored = self._read(keys)
        claimed = self._claim(
            [
                record._replace(state=WriteState.DELETING)
                for record in stored.values()
                if record.state is None
            ]
        )
        ids = self._ledger.ids_of(claimed)
        claims = {key: Claim.of(record, ids[key]) for key, record in claimed.items()}
        return [claims.get(key) if key in stored else WriteOutcome.UNCHANGED for key in keys]

    def unfinished(self) -> list[Claim]:
        """Claim the unfinished changes of this writer or of a dead one."""
        now_ms, patience_s = self._ledger.now_ms, self._ledger.patience_s
        if not self._must_look and now_ms < self._look_at_ms:
            return []
        self._look_at_ms = now_ms + round(patience_s * 500)
        self._claimed = {}
        until_ms = now_ms - round(patience_s * 1000)
        left = self._records.find(temporary(until_ms=until_ms, writer=self._writer))
        if not left:
            return []
        documents = documents_in(left).values()
        ours = {record.id for record in documents}
        self._records.delete([record.id for record in left if record.id not in ours])  # intents
        claimed = self._claim([record for record in documents if record.state is not None])
        ids = self._ledger.ids_of(claimed)
        return [Claim.of(record, ids[key]) for key, record in claimed.items()]

    def confirm(self, claims: Sequence[Claim]) -> list[Claim]:
        """Return the claims that no other writer has taken over; renew old ones."""
        if self.is_shared:
            old_ms = self._ledger.now_ms - round(self._ledger.patience_s * 500)
            held = [self._claimed[claim.key] for claim in claims if claim.key in self._claimed]
            if any(record.since <= old_ms for record in held):
                self._claim(held)
        return [claim for claim in claims if claim.key in self._claimed]

    def commit(self, claims: Sequence[Claim]) -> list[Claim]:
        """Record that the rows of new versions are written; return the claims that were held."""
        held = [(c, self._claimed[c.key].committed()) for c in claims if c.key in self._claimed]
        versions = self._records.replace([record.to_record() for _, record in held], held=True)
        committed: list[Claim] = []
        added = 0
        for claim, record in held:
            self._claimed.pop(record.key, None)
            if record.id in versions:
                committed.append(claim.committed)
                added += record.stored.n_nodes - record.other.n_nodes
                if record.state is not None:
                    self._claimed[record.key] = record._replace(version=versions[record.id])
        self._ledger.add_nodes(added)
        self._must_look = self._meets_claims or bool(self._claimed)
        return committed

    def finish(self, claims: Sequence[Claim]) -> list[Claim]:
        """Record that claims are swept; return those that no other writer had taken over."""
        held = [self._claimed[claim.key] for claim in claims if claim.key in self._claimed]
        gone = [
            record for record in held if record.state in (WriteState.ADDING, WriteState.DELETING)
        ]
        ended = self._end([record.swept() for record in held if record not in gone], gone)
        self._ledger.add_nodes(
            -sum(record.stored.n_nodes for record in gone if record.key in ended)
        )
        self._must_look = self._meets_claims or bool(self._claimed)
        return [claim for claim in claims if claim.key in ended]

    def unowned(self, claims: Sequence[Claim]) -> dict[int, list[str]]:
        """Return the ids of nodes written under lost claims that no document has, by slot."""
        stored = self._ledger.read(claim.key for claim in claims)
        ids = self._ledger.ids_of(stored)
        left: dict[int, list[str]] = {0: [], 1: []}
        for key, _, slot, _, written in claims:
            in_slots = ids.get(key, _NO_IDS)
            is_stored = key in stored and stored[key].slot != slot
            owned = set(in_slots[0 if is_stored else 1])
            left[1 - slot] += [node_id for node_id in written if node_id not in owned]
        return left

    def _read(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, DocumentRecord]:
        """Return the records of documents to be claimed."""
        stored = self._ledger.read_to_write(keys)
        self._must_look = True  # until all is finished
        self._meets_claims = any(record.state is not None for record in stored.values())
        return stored

    def _claim(self, records: Sequence[DocumentRecord]) -> dict[DocumentKey, DocumentRecord]:
        """Write records as claims of this writer; return those that no other has replaced."""
        if not records:
            return {}
        now_ms = self._ledger.now_ms
        trash: list[Value] = []
        new = []
        for record in records:
            trash += record.trash
            new.append(record._replace(trash=(), writer=self._writer, since=now_ms))
        if trash:
            self._values.delete(trash)
        versions = self._records.replace([record.to_record() for record in new])
        claimed = {}
        for record in new:
            self._claimed.pop(record.key, None)
            if record.id in versions:
                claimed[record.key] = record._replace(version=versions[record.id])
        self._claimed |= claimed
        return claimed

    def _end(
        self, resting: Sequence[DocumentRecord], gone: Sequence[DocumentRecord]
    ) -> set[DocumentKey]:
        """Write records without a change and remove others; return those that were still claimed.

        The parts of a removed record are deleted before it, old parts of a written one after it.
        """
        stored = self._records.get([record.id for record in gone]) if gone else {}
        gone = [
            record
            for record in gone
            if record.id in stored and stored[record.id].version == record.version
        ]
        self._values.delete(value for record in gone for value in record.values)
        ended = self._records.replace(
            [record.to_record() for record in resting],
            remove=[record.to_record() for record in gone],
            held=True,
        )
        self._values.delete(
            value for record in resting if record.id in ended for value in record.trash
        )
        for record in (*resting, *gone):
            self._claimed.pop(record.key, None)
        return {record.key for record in (*resting, *gone) if record.id in ended}

    def _duplicates(
        self, documents: Sequence[Writable], ids: Mapping[DocumentKey, _Ids]
    ) -> dict[DocumentKey, Reply]:
        """Return the errors of documents with a node id that another document has."""
        errors: dict[DocumentKey, Reply] = {}
        new: dict[str, Writable] = {}
        for document in documents:
            old = set(ids.get(document.key, _NO_IDS)[0])
            for id_ in document.node_ids:
                if id_ in new and id_ not in old:
                    errors[document.key] = duplicate_error(document, id_, new[id_].key)
                if id_ not in old:
                    new.setdefault(id_, document)
        others = {
            node.node_id: owner
            for node in self._stored(list(new))
            if (owner := key_of_node(node)) != new[node.node_id].key
        }
        if others:
            # Nodes without a document may be overwritten.
            owned = self._ledger.ids_of(self._ledger.read(others.values()))
            for id_, owner in others.items():
                if any(id_ in version for version in owned.get(owner, ())):
                    errors[new[id_].key] = duplicate_error(new[id_], id_, owner)
        return errors


def duplicate_error(document: Writable, node_id: str, owner: DocumentKey) -> DuplicateNodeError:
    """Return the error for a document with a node id that another document has."""
    # The message does not name documents outside the caller's scope.
    same_scope = owner[:2] == document.key[:2]
    whose = f"document {owner.ref!r}" if same_scope else "another scope"
    return DuplicateNodeError(
        f"the node id {node_id!r} of document {document.key.ref!r} is in use by "
        f"{whose}; nothing was overwritten: give the node another id",
        node_id,
    )
