"""`Sync`: one call of ``KnowledgeBase.sync``, which makes the documents equal to their source.

What is to be done is decided before anything is written. New sources are recorded before their
documents are stored, and sources that are gone are forgotten after theirs are deleted: after a
crash the same call goes on.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from llama_retrieval_ext.errors import ConfigurationError, SyncRefusedError
from llama_retrieval_ext.knowledge_base.adding import Addition, Predecessor
from llama_retrieval_ext.knowledge_base.documents import SourceDocument, batched, name_of
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, content_of
from llama_retrieval_ext.knowledge_base.ledger.records import (
    Entry,
    SourceKey,
    SyncedSource,
    principals_json,
)
from llama_retrieval_ext.knowledge_base.preparation import (
    BATCH_WEIGHT,
    grouped,
    is_searchable,
    progress,
    weight_of,
)
from llama_retrieval_ext.knowledge_base.readers.texts import NO_TEXT
from llama_retrieval_ext.knowledge_base.report import IngestionReport, SyncReport
from llama_retrieval_ext.knowledge_base.sync_sources import Item, Source
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.text.normalization import composed

# The documents of a source.
_Digests: TypeAlias = Mapping[DocumentKey, str]


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """The arguments of a call."""

    prune: bool = True
    dry_run: bool = False
    max_deletions: float = 0.2
    checksum: bool = False


class _Read(NamedTuple):
    """A source that was read."""

    item: Item
    documents: Sequence[SourceDocument]
    refs: AbstractSet[str] = frozenset()  # of these documents, and of those that failed
    reason: str = ""  # why it is left out


class Sync:
    """One call; `run` may be called once."""

    def __init__(
        self, addition: Addition, scope: Scope | None, source: Source, options: SyncOptions
    ) -> None:
        self._addition = addition
        self._parts = addition.parts
        self._options = options
        self._owner = json.dumps([composed(source.name), *sorted(addition.scope.items())])
        cut = self._parts.preparation.fingerprint(is_whole=True, has_code=True)
        allowed = addition.allowed
        names = "" if allowed is None or callable(allowed) else sorted(allowed)
        self._fingerprint = _digest(f"{cut} {source.settings} {names}")  # short, for each stamp
        self._parts.writer.settle()
        with ThreadPoolExecutor(1) as pool:  # a server answers both at the same time
            synced = pool.submit(self._parts.storage.ledger.synced, self._owner)
            entries = self._parts.storage.ledger.visible(scope)
        self._known = {source.key: source for source in synced.result()}
        self._stored: dict[SourceKey, list[Entry]] = {}
        for entry in entries:
            key = SourceKey(entry.key.tenant, entry.key.kb, entry.source)
            self._stored.setdefault(key, []).append(entry)
        self._source = source = source.confirmed(self._known.keys() & self._stored.keys())
        self._done: dict[str, list[str]] = {"added": [], "changed": [], "unchanged": []}
        self._moved: dict[str, str] = {}
        self._left_out = dict(source.left_out)
        self._there: set[str] = set()  # content of sources that had it before
        self._owned: set[DocumentKey] = set()  # documents of sources that are there
        self._kept: set[SourceKey] = set()  # sources that are gone, whose successor failed
        self._restricted: dict[SourceKey, str] = {}  # the restricted sources of their content

    def run(self, *, show_progress: bool) -> SyncReport:
        """Write and delete what differs from the source, unless it is a dry run."""
        unread, touched = self._unread()
        missing = [
            recorded for key, recorded in self._known.items() if key not in self._source.items
        ]
        is_pruned = self._options.prune
        gone = [source for source in missing if is_pruned and source.key in self._stored]
        moved = self._moves(unread, missing, {source.key for source in gone})
        refusal = self._refusal(gone, moved)
        if refusal and not self._options.dry_run:
            raise SyncRefusedError(refusal)
        touched += self._begun(unread)
        lost = [source for source in missing if source.key not in self._stored]
        self._record(touched, forget=[s for s in lost if not (s.allowed or s.earlier)])
        with progress(unread, show=show_progress, title="Syncing") as advance:
            for batch in batched(
                map(self._read, unread),
                lambda read: sum(weight_of(document.nodes) for document in read.documents),
                BATCH_WEIGHT,
            ):
                self._apply(batch, moved)
                advance(len(batch))
        gone = [source for source in gone if source.key not in self._kept]
        self._prune(gone, moved)
        return self._report([source.key.source for source in gone], refusal)

    # What is to be done

    def _unread(self) -> tuple[list[Item], list[SyncedSource]]:
        """Return the sources to read, and records of others whose time or principals differ."""
        unread: list[Item] = []
        touched: list[SyncedSource] = []
        for item in self._source.items.values():
            recorded = self._known.get(item.key)
            if recorded is None or not self._is_unchanged(item, recorded):
                unread.append(item)
                continue
            self._done["unchanged"].append(item.key.source)
            self._there.add(recorded.content)
            self._owned.update(node.key for node in self._stored[item.key])
            now = recorded._replace(
                allowed=principals_json(node.allowed for node in self._stored[item.key])
            )
            if not item.looks_like(recorded):
                now = now._replace(**item.state._asdict())
            if now != recorded:
                touched.append(now)
        return unread, touched

    def _is_unchanged(self, item: Item, recorded: SyncedSource) -> bool:
        """Return whether a source and its stored documents are the recorded ones."""
        if callable(self._addition.allowed):
            return False  # it decides by the documents
        stored = self._stored.get(item.key, ())
        if not stored or recorded.stamp != self._stamp(_digests(stored)):
            return False
        if item.looks_like(recorded) and not self._options.checksum:
            return True
        return item.has_content_of(recorded)

    def _stamp(self, digests: _Digests) -> str:
        """Return a digest of documents as they are stored, and of what they depend on."""
        return _digest(json.dumps([self._fingerprint, sorted(digests.items())]))

    def _begun(self, unread: Sequence[Item]) -> list[SyncedSource]:
        """Return records of new sources, and of those that have what was restricted elsewhere."""
        new = [item.key for item in unread if item.key not in self._known]
        records = {key: SyncedSource(self._owner, key) for key in new}
        for key, earlier in self._restricted.items():
            state = self._source.items[key].state
            records[key] = SyncedSource(self._owner, key, *state, earlier=earlier)
        return [*records.values()]

    def _moves(
        self, unread: Sequence[Item], missing: Sequence[SyncedSource], gone: AbstractSet[SourceKey]
    ) -> dict[SourceKey, SyncedSource]:
        """Return the sources that are gone by those that have their content now.

        Note those whose content was restricted elsewhere, also if an earlier sync found it: until
        somebody is named they are not added, although they may change.
        """
        rewritten = [self._known[item.key] for item in unread if item.key in self._known]
        left = [s for s in sorted([*missing, *rewritten]) if s.content and not self._is_there(s)]
        movable: dict[str, deque[SyncedSource]] = {}
        restricted: dict[str, str] = {}
        for source in left:
            if source.key in gone and not source.earlier:
                movable.setdefault(source.content, deque()).append(source)
            if source.earlier or any(self._seen_by(source.key)):
                restricted.setdefault(source.content, source.earlier or source.key.source)
        moved: dict[SourceKey, SyncedSource] = {}
        for item in unread:
            content = item.state.content if left else ""
            before = self._known.get(item.key, SyncedSource(self._owner, item.key))
            if before.content == content and not before.earlier:
                self._there.add(content)  # it had this content before, too
                continue
            if earlier := before.earlier or restricted.get(content):
                self._restricted[item.key] = earlier
            if movable.get(content):
                moved[item.key] = movable[content].popleft()
        return moved

    def _is_there(self, recorded: SyncedSource) -> bool:
        item = self._source.items.get(recorded.key)
        return item is not None and item.state.content == recorded.content

    def _seen_by(self, key: SourceKey) -> set[tuple[str, ...]]:
        """Return the principals of the stored documents of a source, or the recorded ones."""
        if key in self._stored:
            return {entry.allowed for entry in self._stored[key]}
        recorded = self._known[key].allowed if key in self._known else ""
        return {tuple(names) for names in json.loads(recorded or "[]")}

    def _refusal(
        self, gone: Sequence[SyncedSource], moved: Mapping[SourceKey, SyncedSource]
    ) -> str:
        """Return why too much is lost, or ""; content elsewhere, as after a crash, is not lost."""
        there = {*self._there, *(source.content for source in moved.values())} - {""}
        lost = [source.key.source for source in gone if source.content not in there]
        n_known = sum(key in self._stored for key in self._known)
        share = self._options.max_deletions
        n_allowed = int(share * n_known) or int(share > 0 and n_known > 1)
        if len(lost) <= n_allowed:
            return ""
        return (
            f"{len(lost)} of {n_known} sources of {self._source.name} are gone, such as "
            f"{lost[0]}; max_deletions={share:g} allows {n_allowed}. Nothing was changed. If they "
            "are to be deleted pass max_deletions=1; to keep all, prune=False"
        )

    # Doing it

    def _read(self, item: Item) -> _Read:
        nodes = item.read()
        if isinstance(nodes, str):
            return _Read(item, [], reason=nodes)
        groups = grouped([node for node in nodes if is_searchable(node)])
        names = [name_of(group[0]) for group in groups]
        documents = self._addition.identified(groups)
        return _Read(item, documents, {*names, *(document.key.ref for document in documents)})

    def _apply(self, batch: Sequence[_Read], moved: Mapping[SourceKey, SyncedSource]) -> None:
        """Store documents that are new or changed, and delete those that their sources lack."""
        documents: list[SourceDocument] = []
        origins: dict[DocumentKey, Predecessor] = {}
        for read in batch:
            refusal = self._unknown(read)
            for document in read.documents if refusal else ():
                self._addition.tally.failed(document.key.ref, ConfigurationError(refusal))
            if not refusal:
                documents += read.documents
                origins |= self._origins(read, moved.get(read.item.key))
        self._owned.update(document.key for document in documents)
        if not self._options.dry_run:
            changed = self._addition.changed(documents)
            parts = batched(changed, lambda document: weight_of(document.nodes), BATCH_WEIGHT)
            for part in parts:
                self._addition.write(part, origins)
        report = self._addition.tally.report()
        records = [self._finish(read, moved.get(read.item.key), report) for read in batch]
        done = [record for record in records if record is not None]
        self._record([record for record in done if record.stamp])
        self._delete(entry for record in done for entry in self._stored.get(record.key, ()))

    def _unknown(self, read: _Read) -> str:
        """Return why it is unknown who may see documents of a source, or "".

        One that names nobody keeps whom its stored version names. A new one is visible to those who
        see all others of its source, or to everyone if one of these is.
        """
        key = read.item.key
        stored = {entry.key: entry.allowed for entry in self._stored.get(key, ())}
        digests = _digests(self._stored.get(key, ()))
        unnamed = [document for document in read.documents if document.allowed is None]
        if key in self._restricted and any(d.digest != digests.get(d.key) for d in unnamed):
            return (
                f"its content is that of {self._restricted[key]}, which only some may see, and "
                "nothing says who may see it here; pass allowed=[...] to sync, or name the "
                "principals under 'allowed' in the documents' metadata. To open it to everyone, "
                "call kb.share after that"
            )
        seen_by = self._seen_by(key)
        common = () if () in seen_by else min(seen_by, default=())
        if common and len(seen_by) > 1 and any(d.key not in stored for d in unnamed):
            return (
                f"the documents of {key.source} are visible to different principals, so that it is "
                "unknown who may see new ones; pass allowed=, or name the principals in the "
                "documents' metadata"
            )
        self._addition.principals |= {d.key: stored.get(d.key, common) for d in unnamed}
        return ""

    def _origins(self, read: _Read, moved: SyncedSource | None) -> dict[DocumentKey, Predecessor]:
        """Return the stored documents of a moved source by the new ones, in their order."""
        before = [] if moved is None else self._stored[moved.key]
        is_current = moved is not None and moved.stamp == self._stamp(_digests(before))
        pairs = zip(read.documents, before, strict=False)
        return {document.key: Predecessor(entry.key, is_current) for document, entry in pairs}

    def _finish(
        self, read: _Read, origin: SyncedSource | None, report: IngestionReport
    ) -> SyncedSource | None:
        """Note the outcome of a source; return it as it is now, None if it failed."""
        key = read.item.key
        if read.reason or not read.refs.isdisjoint(report.failures):
            if read.reason:
                self._left_out[key.source] = read.reason
            self._kept.update([] if origin is None else [origin.key])
            self._owned.update(entry.key for entry in self._stored.get(key, ()))
            return None
        if read.item.left_out:
            self._left_out[key.source] = read.item.left_out
        new = {
            document.key: document.digest
            for document in read.documents
            if document.key.ref not in report.skipped
        }
        record = SyncedSource(self._owner, key, *read.item.state)
        if not new:
            self._left_out[key.source] = read.item.left_out or NO_TEXT
            return record
        self._classify(key, new, origin)
        allowed = principals_json(
            document.allowed or self._addition.principals.get(document.key, ())
            for document in read.documents
        )
        return record._replace(stamp=self._stamp(new), allowed=allowed)

    def _classify(self, key: SourceKey, new: _Digests, origin: SyncedSource | None) -> None:
        if origin is not None:
            self._moved[origin.key.source] = key.source
        elif key not in self._stored:
            self._done["added"].append(key.source)
        elif _digests(self._stored[key]) == new:
            self._done["unchanged"].append(key.source)
        else:
            self._done["changed"].append(key.source)

    def _delete(self, entries: Iterable[Entry]) -> None:
        """Delete documents, except those that a source has now."""
        if not self._options.dry_run:
            self._parts.delete([entry for entry in entries if entry.key not in self._owned])

    def _prune(self, gone: Sequence[SyncedSource], moved: Mapping[SourceKey, SyncedSource]) -> None:
        """Delete what is gone; forget it, unless it was restricted and may come back."""
        self._delete(entry for source in gone for entry in self._stored[source.key])
        kept = {s.key for s in gone if s.earlier or any(self._seen_by(s.key))}
        kept -= {source.key for source in moved.values()}
        if isinstance(self._addition.allowed, tuple):
            kept = set()  # whoever may see it is named
        self._record([], forget=[source for source in gone if source.key not in kept])

    def _record(
        self, sources: Sequence[SyncedSource], *, forget: Sequence[SyncedSource] = ()
    ) -> None:
        if (sources or forget) and not self._options.dry_run:
            self._parts.storage.ledger.record_synced(sources, forget=forget)

    def _report(self, gone: Iterable[str], refusal: str) -> SyncReport:
        stored = self._addition.tally.report()
        return SyncReport(
            **{name: tuple(paths) for name, paths in self._done.items()},
            moved=self._moved,
            deleted=tuple(path for path in gone if path not in self._moved),
            left_out=self._left_out,
            failures=stored.failures,
            n_nodes=stored.n_nodes,
            seconds=stored.seconds,
            is_dry_run=self._options.dry_run,
            refusal=refusal,
        )


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _digests(stored: Iterable[Entry]) -> dict[DocumentKey, str]:
    return {entry.key: content_of(entry.digest) for entry in stored}
