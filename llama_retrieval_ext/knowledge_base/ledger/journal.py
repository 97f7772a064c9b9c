"""The journal: the claims of writers, in the records of a `Ledger`.

A writer claims a document by replacing the record version that it has read. Other writers of the
document wait. An old claim belongs to a dead writer, and the next writer takes it over. So
unfinished writes can be finished or undone at any time.

The nodes of a document that is being changed are ``fresh`` (of the new version only), ``doomed``
(of the old version only) or neither. During an update the journal keeps the whole new version:
after a crash it is unknown which nodes the engine has replaced already.
"""

import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self, TypeAlias

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import DuplicateNodeError
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    PackedNode,
    Prepared,
    Writable,
    key_of_node,
    unpacked,
)
from llama_retrieval_ext.knowledge_base.ledger.records import (
    Change,
    DocumentRecord,
    JournalState,
    Value,
    documents_in,
    temporary,
)

# The node ids of a document, and of its new version.
_Ids: TypeAlias = tuple[Sequence[str], Sequence[str]]
_NO_IDS: Final[_Ids] = ((), ())


class WriteOutcome(StrEnum):
    """The result of writing a document."""

    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    OUTDATED = "outdated"  # not written: the stored version is not the one that it was made from


@dataclass(frozen=True, slots=True)
class Claim:
    """A document that this writer is changing."""

    key: DocumentKey
    state: JournalState
    fresh: tuple[str, ...] = ()
    doomed: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, key: DocumentKey, state: JournalState, old: Sequence[str], new: Sequence[str]
    ) -> Self:
        """Return the claim of a document that has old nodes and will have new ones."""
        kept = set(old) & set(new)
        fresh = tuple(each for each in new if each not in kept)
        return cls(key, state, fresh, tuple(each for each in old if each not in kept))


@dataclass(frozen=True, slots=True)
class KeptVersion:
    """The new version of a document, which a journal keeps during its update."""

    parts: Callable[[], Iterator[Prepared]]  # documents with its key, each with some of its nodes


Version: TypeAlias = Writable | KeptVersion
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
        """Claim documents before they are written; see `Journal.begin`."""
        found = self._read(document.key for document in documents)
        ids = self._ledger.ids_of(found)
        replies: dict[DocumentKey, Reply] = {
            document.key: _unclaimed(found.get(document.key), document) for document in documents
        }
        free = [document for document in documents if _is_free(found.get(document.key), document)]
        errors = self._duplicates(free, ids)
        free = [each for each in free if each.key not in errors]
        claimed = self._claim(
            [self._changing(found.get(each.key), each, number) for number, each in enumerate(free)]
        )
        changes = [each.change for each in claimed.values()]
        self._values.write(value for change in changes for value in (change.nodes, *change.redo))
        for each in free:
            if each.key in claimed and claimed[each.key].change.n_redo > 1:
                self._keep(each)
        try:
            self._ledger.check_exists()
        except BaseException:  # the knowledge base was removed meanwhile
            self._end([], list(self._claimed.values()))
            raise
        for each in free:
            old, _ = ids.get(each.key, _NO_IDS)
            replies[each.key] = _claim_on(self._claimed.get(each.key), old, each.node_ids)
        replies |= errors
        return [replies[document.key] for document in documents]

    def begin_deleting(self, keys: Sequence[DocumentKey]) -> list[Reply]:
        """Claim documents before they are deleted; UNCHANGED for those that do not exist."""
        stored = self._read(keys)
        # Those of this writer are left of changes that could not be finished.
        free = [
            record for key, record in stored.items() if record.is_at_rest or key in self._claimed
        ]
        claimed = self._claim([record.deleting() for record in free])
        ids = self._ledger.ids_of(claimed)
        claims = {key: _claim_on(claimed.get(key), *ids.get(key, _NO_IDS)) for key in stored}
        return [claims.get(key, WriteOutcome.UNCHANGED) for key in keys]

    def unfinished(self) -> list[Claim]:
        """Claim the unfinished changes of this writer or of a dead one."""
        now_ms, patience_s = self._ledger.now_ms, self._ledger.patience_s
        if not self._must_look and now_ms < self._look_at_ms:
            return []
        self._look_at_ms = now_ms + round(patience_s * 500)
        self._claimed = {}
        until_ms = now_ms - round(patience_s * 1000)
        found = self._records.find(temporary(until_ms=until_ms, writer=self._writer))
        documents = documents_in(found).values()
        ours = {document.id for document in documents}
        self._records.delete([each.id for each in found if each.id not in ours])  # intents
        claimed = self._claim([document for document in documents if not document.is_at_rest])
        ids = self._ledger.ids_of(claimed)
        claims = [_claim_on(each, *ids[key]) for key, each in claimed.items()]
        return [claim for claim in claims if claim is not None]

    def new_version(self, claim: Claim) -> KeptVersion | None:
        """Return the new version of a document that is being updated; None if it was not kept."""
        change = self._claimed[claim.key].change
        # A part is listed after the one before it was written.
        needed = self._values.read([change.nodes, *change.redo[-1:]])
        if None in needed or not change.redo or len(change.redo) < change.n_redo:
            return None
        return KeptVersion(lambda: self._kept(claim.key, change))

    def _kept(self, key: DocumentKey, change: Change) -> Iterator[Prepared]:
        for value in change.redo:
            (redo,) = self._values.read([value])
            nodes = [
                PackedNode(text, b64decode(vector), rows)
                for text, vector, rows in json.loads(redo or "[]")
            ]
            yield unpacked(key, change.digest, nodes)

    def confirm(self, claims: Sequence[Claim]) -> list[Claim]:
        """Return the claims that no other writer has taken over; renew old ones."""
        old_ms = self._ledger.now_ms - round(self._ledger.patience_s * 500)
        held = [self._claimed[claim.key] for claim in claims if claim.key in self._claimed]
        if any(each.since <= old_ms for each in held):
            self._claim(held)
        return [claim for claim in claims if claim.key in self._claimed]

    def finish(self, claims: Sequence[Claim]) -> list[Claim]:
        """Record that claims are done; return those that no other writer had taken over."""
        held = [self._claimed[claim.key] for claim in claims]
        deleting = [each for each in held if each.change.state is JournalState.DELETING]
        others = [each.finished() for each in held if each not in deleting]
        finished = self._end(others, deleting)
        self._ledger.add_nodes(
            sum(each.change.n_nodes - each.n_nodes for each in held if each.key in finished)
        )
        self._must_look = self._meets_claims or bool(self._claimed)
        return [claim for claim in claims if claim.key in finished]

    def undo(self, claim: Claim) -> None:
        """Record that a document has its old version again; see `Journal.undo`."""
        record = self._claimed[claim.key]
        if record.change.state is JournalState.ADDING:
            self._end([], [record])
        else:
            self._end([record.undone()], [])

    def unowned(self, claims: Sequence[Claim]) -> list[str]:
        """Return the ids of nodes written under lost claims that no document has."""
        owned = self._owned_ids(claim.key for claim in claims)
        return [
            id_ for claim in claims for id_ in claim.fresh if id_ not in owned.get(claim.key, ())
        ]

    def _read(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, DocumentRecord]:
        """Return the records of documents to be claimed."""
        found = self._ledger.read_to_write(keys)
        self._must_look = True  # until all is finished
        self._meets_claims = any(not each.is_at_rest for each in found.values())
        return found

    def _keep(self, document: Writable) -> None:
        """Write the new version of a long document, part by part, while the claim is held."""
        for part in document.parts():
            record = self._claimed.get(document.key)
            if record is None:
                return
            value = self._redo(part)
            change = record.change._replace(redo=(*record.change.redo, value))
            claimed = self._claim([record._replace(change=change)])
            self._values.write([value] if claimed else [])

    def _changing(
        self, stored: DocumentRecord | None, document: Writable, number: int
    ) -> DocumentRecord:
        """Return a record with this version as an unfinished change."""
        change = Change(
            JournalState.ADDING,
            document.digest,
            document.source,
            len(document.node_ids),
            document.allowed,
            self._values.create(json.dumps(document.node_ids)),
        )
        if stored is not None:
            # Several parts are too large to be kept in memory; `_keep` writes them.
            redo = () if document.n_parts > 1 else tuple(map(self._redo, document.parts()))
            state = JournalState.UPDATING
            change = change._replace(state=state, redo=redo, n_redo=document.n_parts)
        created = self._ledger.now_ms * 1_000_000 + number
        return (stored or DocumentRecord(document.key, created))._replace(change=change)

    def _redo(self, part: Prepared) -> Value:
        packed = [
            [each.text, b64encode(each.embedding).decode(), each.rows] for each in part.packed()
        ]
        return self._values.create(json.dumps(packed))

    def _claim(self, records: Sequence[DocumentRecord]) -> dict[DocumentKey, DocumentRecord]:
        """Write records as claims of this writer; return those that no other has replaced."""
        if not records:
            return {}
        now_ms = self._ledger.now_ms
        self._values.delete(value for record in records for value in record.trash)
        new = [record._replace(trash=(), writer=self._writer, since=now_ms) for record in records]
        versions = self._records.replace([each.to_record() for each in new])
        for each in new:
            self._claimed.pop(each.key, None)
        claimed = {
            each.key: each._replace(version=versions[each.id])
            for each in new
            if each.id in versions
        }
        self._claimed |= claimed
        return claimed

    def _end(
        self, resting: Sequence[DocumentRecord], gone: Sequence[DocumentRecord]
    ) -> set[DocumentKey]:
        """Write records without a change and remove others; return those that were still claimed.

        The parts of a removed record are deleted before it, old parts of a written one after it.
        """
        ending = [*resting, *gone]
        stored = self._records.get([each.id for each in gone]) if gone else {}
        gone = [
            each for each in gone if each.id in stored and stored[each.id].version == each.version
        ]
        self._values.delete(value for each in gone for value in each.values)
        remove = [each.to_record() for each in gone]
        ended = self._records.replace(
            [each.to_record() for each in resting], remove=remove, held=True
        )
        self._values.delete(value for each in resting if each.id in ended for value in each.trash)
        for each in ending:
            self._claimed.pop(each.key, None)
        return {each.key for each in ending if each.id in ended}

    def _owned_ids(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, set[str]]:
        """Return the node ids of documents, including those of versions being written."""
        ids = self._ledger.ids_of(self._ledger.read(keys))
        return {key: {*old, *new} for key, (old, new) in ids.items()}

    def _duplicates(
        self, documents: Sequence[Writable], ids: Mapping[DocumentKey, _Ids]
    ) -> dict[DocumentKey, Reply]:
        """Return the errors of documents with a node id that another document has."""
        errors: dict[DocumentKey, Reply] = {}
        new: dict[str, Writable] = {}
        for document in documents:
            old = set(ids.get(document.key, _NO_IDS)[0])
            for id_ in (node_id for node_id in document.node_ids if node_id not in old):
                if id_ in new:
                    errors[document.key] = duplicate_error(document, id_, new[id_].key)
                new.setdefault(id_, document)
        nodes = {each.node_id: key_of_node(each) for each in self._stored(list(new))}
        others = {id_: owner for id_, owner in nodes.items() if owner != new[id_].key}
        if others:
            # Nodes without a document may be overwritten.
            owned = self._owned_ids(others.values())
            for id_, owner in others.items():
                if id_ in owned.get(owner, ()):
                    errors[new[id_].key] = duplicate_error(new[id_], id_, owner)
        return errors


def _is_free(stored: DocumentRecord | None, document: Writable) -> bool:
    """Return whether a document can be claimed and must be written."""
    if stored is None:
        return document.replaces is None
    is_new = stored.is_at_rest and stored.digest != document.digest
    return is_new and document.replaces in (None, stored.digest)


def _unclaimed(stored: DocumentRecord | None, document: Writable) -> WriteOutcome | None:
    """Return the reply to a document that is not free; None if another writer has it."""
    if stored is not None and not stored.is_at_rest:
        return None
    is_stored = stored is not None and stored.digest == document.digest
    return WriteOutcome.UNCHANGED if is_stored else WriteOutcome.OUTDATED


def _claim_on(
    record: DocumentRecord | None, old: Sequence[str], new: Sequence[str]
) -> Claim | None:
    """Return the claim on a record; None if another writer has it."""
    if record is None or record.change.state is None:
        return None
    if record.change.state is JournalState.DELETING:
        return Claim(record.key, JournalState.DELETING, doomed=tuple({*old, *new}))
    return Claim.of(record.key, record.change.state, old, new)


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
