"""`RemoteJournal`: the claims of writers, in the records of a `RemoteLedger`.

A writer claims a document by replacing its record in the version that it has read; another one that
wants to write it waits. An old claim belongs to a dead writer, and the next one takes it over.
"""

import json
import secrets
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.ingest.documents import DocumentKey, Prepared, key_of_node
from llama_retrieval_ext.ingest.ledger.journal import (
    Claim,
    JournalState,
    Reply,
    WriteOutcome,
    claim_of,
    duplicate_error,
)
from llama_retrieval_ext.ingest.ledger.records import (
    Change,
    DocumentRecord,
    Value,
    documents_in,
    record_id,
    temporary,
)
from llama_retrieval_ext.ingest.ledger.remote_ledger import RemoteLedger
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_to_text


class RemoteJournal:
    """The journal of a `RemoteLedger`: claims in the records of documents.

    Args:
        ledger: Has the records.
        stored: Returns the nodes with these ids that the store holds.
    """

    def __init__(
        self, ledger: RemoteLedger, stored: Callable[[Sequence[str]], Iterable[BaseNode]]
    ) -> None:
        self._ledger = ledger
        self._records = ledger.records
        self._values = ledger.values
        self._stored = stored
        self._writer = secrets.token_hex(8)
        self._claimed: dict[DocumentKey, DocumentRecord] = {}
        # Dead writers are looked for after an error, when a claim is met, and now and then.
        self._must_look = True
        self._meets_claims = False
        self._look_at_ms = 0

    def begin(self, documents: Sequence[Prepared]) -> list[Reply]:
        """Claim documents that are about to be written; see `Journal.begin`."""
        found = self._ledger.read_to_write(each.key for each in documents)
        old_ids = self._node_ids(found.values())
        self._note_claims(found.values())
        replies: dict[DocumentKey, Reply] = {}
        free = [each for each in documents if _is_free(found.get(each.key), each, replies)]
        replies |= self._duplicates(free, old_ids)
        free = [each for each in free if each.key not in replies]
        claimed = self._claim(
            [self._changing(found.get(each.key), each, number) for number, each in enumerate(free)]
        )
        changes = [_change_of(each) for each in claimed.values()]
        self._values.write(value for each in changes for value in (each.nodes, each.redo))
        self._check_still_there()
        for document in free:
            key, new_ids = document.key, [node.node_id for node in document.nodes]
            replies[key] = _claim(claimed.get(key), old_ids.get(key, []), new_ids)
        return [replies[each.key] for each in documents]

    def begin_deleting(self, keys: Sequence[DocumentKey]) -> list[Reply]:
        """Claim documents that are about to be deleted; UNCHANGED for those that do not exist."""
        found = self._ledger.read_to_write(keys)
        self._note_claims(found.values())
        free = [each for each in found.values() if each.change is None]
        change = Change(JournalState.DELETING, nodes=Value("[]"))
        claimed = self._claim([replace(each, change=change) for each in free])
        old_ids = self._node_ids(claimed.values())
        return [
            _claim(claimed.get(key), old_ids.get(key, []), [])
            if key in found
            else WriteOutcome.UNCHANGED
            for key in keys
        ]

    def unfinished(self) -> list[Claim]:
        """Claim what this writer, or one that died, has begun and not finished."""
        if not self._must_look and self._ledger.now_ms < self._look_at_ms:
            return []
        self._look_at_ms = self._ledger.now_ms + round(self._ledger.patience_s * 500)
        self._claimed = {}
        until_ms = self._ledger.now_ms - round(self._ledger.patience_s * 1000)
        found = self._records.find(temporary(until_ms=until_ms, writer=self._writer))
        documents = documents_in({each.id: each for each in found})
        ours = {record_id(key) for key in documents}
        self._records.delete([each.id for each in found if each.id not in ours])  # intents
        claimed = self._claim(documents.values())
        self._empty_trash([each for each in claimed.values() if each.change is None])
        changing = [each for each in claimed.values() if each.change is not None]
        ids = self._ledger.ids_of([[each.nodes, _change_of(each).nodes] for each in changing])
        return [
            claim_of(each.key, _change_of(each).state, old, new)
            for each, (old, new) in zip(changing, ids, strict=True)
        ]

    def new_version(self, claim: Claim) -> Prepared | None:
        """Return the new version of a document that is being updated; None if it was not kept."""
        change = _change_of(self._claimed[claim.key])
        ids, redo = self._values.read([change.nodes, change.redo])
        if ids is None or not redo:
            return None
        nodes = tuple(_restore(text, vector) for text, vector in json.loads(redo))
        return Prepared(claim.key, change.digest, nodes)

    def confirm(self, claims: Sequence[Claim]) -> list[Claim]:
        """Return the claims that no other writer has taken over; renew those that grow old."""
        old_ms = self._ledger.now_ms - round(self._ledger.patience_s * 500)
        held = [self._claimed[each.key] for each in claims if each.key in self._claimed]
        if any(each.since <= old_ms for each in held):
            self._claim(held)
        return [each for each in claims if each.key in self._claimed]

    def finish(self, claims: Sequence[Claim]) -> list[Claim]:
        """Record that claims are done; return those that no other writer had taken over."""
        held = [self._claimed[each.key] for each in claims]
        deleting = [each for each in held if _change_of(each).state is JournalState.DELETING]
        others = [each.finished() for each in held if each not in deleting]
        finished = {*self._rest(others), *self._remove(deleting)}
        self._ledger.add_nodes(
            sum(_change_of(each).n_nodes - each.n_nodes for each in held if each.key in finished)
        )
        self._must_look = self._meets_claims or bool(self._claimed)
        return [each for each in claims if each.key in finished]

    def undo(self, claim: Claim) -> None:
        """Record that a document is as it was before; see `Journal.undo`."""
        record = self._claimed.get(claim.key)
        if record is None:
            return
        if _change_of(record).state is JournalState.ADDING:
            self._remove([record])
        else:
            self._rest([record.undone()])

    def unowned(self, claims: Sequence[Claim]) -> list[str]:
        """Return the ids of nodes written under lost claims that no document has."""
        found = self._ledger.read([each.key for each in claims])
        owned = self._node_ids(found.values(), changed=True)
        return [
            node_id
            for each in claims
            for node_id in each.fresh
            if node_id not in owned.get(each.key, ())
        ]

    def _note_claims(self, records: Iterable[DocumentRecord]) -> None:
        self._must_look = True  # until all is finished
        self._meets_claims = any(each.change is not None for each in records)

    def _changing(
        self, stored: DocumentRecord | None, document: Prepared, number: int
    ) -> DocumentRecord:
        """Return the record that says that this version is being written."""
        redo = [[node_to_text(each), _vector_text(each)] for each in document.nodes]
        change = Change(
            JournalState.UPDATING if stored else JournalState.ADDING,
            document.digest,
            document.source,
            len(document.nodes),
            self._values.create(json.dumps([node.node_id for node in document.nodes])),
            self._values.create(json.dumps(redo)) if stored else Value(),
        )
        created = self._ledger.now_ms * 1_000_000 + number
        return replace(stored or DocumentRecord(document.key, created), change=change)

    def _claim(self, records: Iterable[DocumentRecord]) -> dict[DocumentKey, DocumentRecord]:
        """Write records in the name of this writer; return those that no other has replaced."""
        now_ms = self._ledger.now_ms
        changed = [replace(each, writer=self._writer, since=now_ms) for each in records]
        claimed = self._replace(changed)
        for each in changed:
            self._claimed.pop(each.key, None)
        self._claimed |= {each.key: each for each in claimed}
        return {each.key: each for each in claimed}

    def _replace(
        self, records: Sequence[DocumentRecord], *, held: bool = False
    ) -> list[DocumentRecord]:
        """Write records; return those that no other writer has replaced, in their new version."""
        if not records:
            return []
        versions = self._records.replace([each.to_record() for each in records], held=held)
        return [
            replace(each, version=versions[record_id(each.key)])
            for each in records
            if record_id(each.key) in versions
        ]

    def _rest(self, records: Sequence[DocumentRecord]) -> list[DocumentKey]:
        """Write records whose change is over, and delete their old parts."""
        written = self._replace(records, held=True)
        self._empty_trash([each for each in written if each.trash])
        for each in records:
            self._claimed.pop(each.key, None)
        return [each.key for each in written]

    def _empty_trash(self, records: Sequence[DocumentRecord]) -> None:
        self._values.delete(value for each in records for value in each.trash)
        self._replace([replace(each, trash=()) for each in records], held=True)

    def _remove(self, records: Sequence[DocumentRecord]) -> list[DocumentKey]:
        """Remove records with their parts."""
        if not records:
            return []
        confirmed = self._records.get([record_id(each.key) for each in records])
        held = [
            each
            for each in records
            if (found := confirmed.get(record_id(each.key))) and found.version == each.version
        ]
        self._values.delete(
            value
            for each in held
            for value in (each.nodes, _change_of(each).nodes, _change_of(each).redo, *each.trash)
        )
        removed = self._records.replace([], remove=[each.to_record() for each in held], held=True)
        for each in records:
            self._claimed.pop(each.key, None)
        return [each.key for each in held if record_id(each.key) in removed]

    def _check_still_there(self) -> None:
        """Undo the claims if the knowledge base was removed in this moment."""
        try:
            self._ledger.check_exists()
        except BaseException:
            self._remove(list(self._claimed.values()))
            raise

    def _node_ids(
        self, records: Iterable[DocumentRecord], *, changed: bool = False
    ) -> dict[DocumentKey, list[str]]:
        found = list(records)
        values = [
            [each.nodes, *([each.change.nodes] if changed and each.change else [])]
            for each in found
        ]
        ids = self._ledger.ids_of(values)
        return {
            each.key: list(chain.from_iterable(own)) for each, own in zip(found, ids, strict=True)
        }

    def _duplicates(
        self, documents: Sequence[Prepared], old_ids: Mapping[DocumentKey, Sequence[str]]
    ) -> dict[DocumentKey, Reply]:
        """Return the errors of documents with a node id that another document has."""
        errors: dict[DocumentKey, Reply] = {}
        new: dict[str, Prepared] = {}
        for document in documents:
            old = set(old_ids.get(document.key, ()))
            for id_ in (node.node_id for node in document.nodes if node.node_id not in old):
                if id_ in new:
                    errors[document.key] = duplicate_error(document, id_, new[id_].key)
                new.setdefault(id_, document)
        nodes = {each.node_id: key_of_node(each) for each in self._stored(list(new))}
        others = {id_: owner for id_, owner in nodes.items() if owner != new[id_].key}
        if others:
            # Nodes that no document has may be overwritten.
            owned = self._node_ids(self._ledger.read(others.values()).values(), changed=True)
            for id_, owner in others.items():
                if id_ in owned.get(owner, ()):
                    errors[new[id_].key] = duplicate_error(new[id_], id_, owner)
        return errors


def _is_free(
    stored: DocumentRecord | None, document: Prepared, replies: dict[DocumentKey, Reply]
) -> bool:
    """Whether the document can be claimed; otherwise note the reply."""
    if stored is not None and stored.change is not None:
        replies[document.key] = None
    elif stored is not None and stored.digest == document.digest:
        replies[document.key] = WriteOutcome.UNCHANGED
    return document.key not in replies


def _claim(record: DocumentRecord | None, old: Sequence[str], new: Sequence[str]) -> Claim | None:
    return None if record is None else claim_of(record.key, _change_of(record).state, old, new)


def _change_of(record: DocumentRecord) -> Change:
    return record.change or Change(JournalState.DELETING)


def _vector_text(node: BaseNode) -> str:
    return b64encode(array("d", node.get_embedding()).tobytes()).decode()


def _restore(text: str, embedding: str) -> BaseNode:
    vector = array("d")
    vector.frombytes(b64decode(embedding))
    update: dict[str, Any] = {"embedding": vector.tolist()}
    return node_from_text(text).model_copy(update=update)
