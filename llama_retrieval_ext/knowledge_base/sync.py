"""`Sync`: one call of ``KnowledgeBase.sync``, which makes the documents equal to their source.

What is to be done is decided before anything is written. New sources are recorded before their
documents are stored, and sources that are gone are forgotten after theirs are deleted: after a
crash the same call goes on.
"""

import json
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, repeat
from pathlib import Path
from typing import NamedTuple, TypeAlias

from llama_retrieval_ext.errors import ConfigurationError, SyncRefusedError
from llama_retrieval_ext.knowledge_base.adding import Addition, Predecessor
from llama_retrieval_ext.knowledge_base.documents import SourceDocument, batched, name_of
from llama_retrieval_ext.knowledge_base.groups import BATCH_WEIGHT, grouped, progress, weight_of
from llama_retrieval_ext.knowledge_base.ledger.ledger import (
    Entry,
    SourceKey,
    SyncedSource,
    principals_json,
)
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, content_of
from llama_retrieval_ext.knowledge_base.preparation import is_searchable
from llama_retrieval_ext.knowledge_base.readers.document_list import NO_TEXT
from llama_retrieval_ext.knowledge_base.report import IngestionReport, SyncReport
from llama_retrieval_ext.knowledge_base.storage import batches
from llama_retrieval_ext.knowledge_base.sync_sources import Found, Source, State
from llama_retrieval_ext.query import Scope

# The reason why a source without text is left out.
# The documents of a source.
_Digests: TypeAlias = Mapping[DocumentKey, str]
# The content of a source, and the last parts of its path.
_End: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """The arguments of a call."""

    prune: bool = True
    dry_run: bool = False
    max_deletions: float = 0.2
    checksum: bool = False


class _Read(NamedTuple):
    """A source that was read."""

    found: Found
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
        self._owner = json.dumps(
            [unicodedata.normalize("NFC", source.name), *sorted(addition.scope.items())]
        )
        cut = self._parts.preparation.fingerprint(is_whole=True, has_code=True)
        allowed = addition.allowed
        names = "" if allowed is None or callable(allowed) else sorted(allowed)
        self._fingerprint = _digest(f"{cut} {source.settings} {names}")  # short, for each stamp
        self._parts.writer.settle()
        with ThreadPoolExecutor(1) as pool:  # a server answers both at the same time
            synced = pool.submit(self._parts.ledger.synced, self._owner)
            entries = self._parts.ledger.visible(scope)
        self._known = {each.key: each for each in synced.result()}
        self._stored: dict[SourceKey, list[Entry]] = {}
        for entry in entries:
            key = SourceKey(entry.key.tenant, entry.key.kb, entry.source)
            self._stored.setdefault(key, []).append(entry)
        self._known |= self._recalled()
        self._source = source = source.confirmed(self._known.keys() & self._stored.keys())
        self._done: dict[str, list[str]] = {"added": [], "changed": [], "unchanged": []}
        self._moved: dict[str, str] = {}
        self._left_out = dict(source.left_out)
        self._there: set[str] = set()  # content of sources that had it before
        self._owned: set[DocumentKey] = set()  # documents of sources that are there
        self._kept: set[SourceKey] = set()  # sources that are gone, whose successor failed
        self._before: dict[SourceKey, SyncedSource] = {}  # sources by where their content is now
        self._origins: dict[DocumentKey, Predecessor] = {}  # of the documents of a batch

    def run(self, *, show_progress: bool) -> SyncReport:
        """Write and delete what differs from the source, unless it is a dry run."""
        unread, touched = self._unread()
        missing = [each for key, each in self._known.items() if key not in self._source.found]
        gone = [each for each in missing if self._options.prune and each.key in self._stored]
        moved = self._moves(unread, missing, {each.key for each in gone})
        refusal = self._refusal(gone, moved)
        if refusal and not self._options.dry_run:
            raise SyncRefusedError(refusal)
        touched += self._begun(unread)
        lost = [each for each in missing if each.key not in self._stored]
        touched += [self._emptied(each) for each in lost if each.stamp and each.allowed]
        self._record(touched, forget=[each for each in lost if not each.allowed])
        with progress(unread, show=show_progress, title="Syncing") as advance:
            for batch in batched(map(self._read, unread), _weight, BATCH_WEIGHT):
                self._apply(batch, moved)
                advance(len(batch))
        gone = [each for each in gone if each.key not in self._kept]
        self._prune(gone, moved)
        return self._report([each.key.source for each in gone], refusal)

    # What is to be done

    def _recalled(self) -> dict[SourceKey, SyncedSource]:
        """Return records of sources whose documents are lost, with the principals of any record."""
        lost = [each for key, each in self._known.items() if each.stamp and key not in self._stored]
        if all(each.allowed for each in lost):
            return {}
        # Another sync may have deleted them.
        seen_by = {each.key: each.allowed for each in self._parts.ledger.synced() if each.allowed}
        return {e.key: e._replace(allowed=seen_by.get(e.key, e.allowed)) for e in lost}

    def _unread(self) -> tuple[list[Found], list[SyncedSource]]:
        """Return the sources to read, and records of others whose time or principals differ."""
        unread: list[Found] = []
        touched: list[SyncedSource] = []
        for found in self._source.found.values():
            recorded = self._known.get(found.key)
            if recorded is None or not self._is_unchanged(found, recorded):
                unread.append(found)
                continue
            self._done["unchanged"].append(found.key.source)
            self._there.add(recorded.content)
            self._owned.update(each.key for each in self._stored[found.key])
            now = recorded._replace(
                allowed=principals_json(each.allowed for each in self._stored[found.key])
            )
            if not found.looks_like(recorded):
                now = now._replace(**found.state._asdict())
            if now != recorded:
                touched.append(now)
        return unread, touched

    def _is_unchanged(self, found: Found, recorded: SyncedSource) -> bool:
        """Return whether a source and its stored documents are the recorded ones."""
        if callable(self._addition.allowed):
            return False  # it decides by the documents
        stored = self._stored.get(found.key, ())
        if not stored or recorded.stamp != self._stamp(_digests(stored)):
            return False
        if found.looks_like(recorded) and not self._options.checksum:
            return True
        return found.has_content_of(recorded)

    def _stamp(self, digests: _Digests) -> str:
        """Return a digest of documents as they are stored, and of what they depend on."""
        return _digest(json.dumps([self._fingerprint, sorted(digests.items())]))

    def _begun(self, unread: Sequence[Found]) -> list[SyncedSource]:
        """Return records of new sources, and of those that have what was restricted elsewhere."""
        names = {key: self._emptied(each).allowed for key, each in self._before.items()}
        new = {each.key: State() for each in unread if each.key not in self._known}
        restricted = {each.key: each.state for each in unread if names.get(each.key)}
        return [
            SyncedSource(self._owner, key, *state, allowed=names.get(key, ""))
            for key, state in (new | restricted).items()
        ]

    def _moves(
        self, unread: Sequence[Found], missing: Sequence[SyncedSource], gone: AbstractSet[SourceKey]
    ) -> dict[SourceKey, SyncedSource]:
        """Return the sources that are gone by those that have their content now."""
        left = self._left(unread, missing, gone)
        rest = {end: iter(some) for end, some in left.items()}
        mixed = {  # it may be any of these
            end: names
            for end, some in left.items()
            if len(some) > 1 and len(names := set(self._principals(some))) > 1
        }
        sizes = {each.size for some in left.values() for each in some}
        taken = {each.key for some in left.values() for each in some} - gone
        moved: dict[SourceKey, SyncedSource] = {}
        for found in unread:
            content = found.state.content if found.size in sizes else ""
            ends = [each for each in _ends(content, found.key) if each in left]
            own = self._known.get(found.key)
            if not ends:
                continue
            if own is not None and own.stamp and own.content == content:
                self._there.add(content)  # it had this content before, too
                continue
            free = ((end, each) for end in ends for each in rest[end] if each.key not in taken)
            end, best = next(free, (ends[0], None))
            if best is not None:
                moved[found.key] = best
                taken.add(best.key)
            before = best or left[end][0]
            if end in mixed:
                before = before._replace(stamp="", allowed=principals_json(mixed[end]))
            self._before[found.key] = before
        return moved

    def _left(
        self, unread: Sequence[Found], missing: Sequence[SyncedSource], gone: Container[SourceKey]
    ) -> dict[_End, list[SyncedSource]]:
        """Return the sources that are gone or restricted, and whose content may be elsewhere now.

        Those of equal content are also under each end of their paths.
        """
        rewritten = [self._known[each.key] for each in unread if each.key in self._known]
        same: dict[str, list[SyncedSource]] = {}
        for each in sorted([*missing, *rewritten]):
            record = each if each.key in gone else self._emptied(each)
            is_left = each.key in gone or (record.allowed and not self._is_there(each))
            if each.content and is_left:
                same.setdefault(each.content, []).append(record)
        left: dict[_End, list[SyncedSource]] = {}
        for content, some in same.items():
            for each in some:
                for end in _ends(content, each.key) if len(some) > 1 else [(content,)]:
                    left.setdefault(end, []).append(each)
        return left

    def _principals(self, sources: Iterable[SyncedSource]) -> Iterable[tuple[str, ...]]:
        return (each.allowed for source in sources for each in self._documents(source))

    def _is_there(self, recorded: SyncedSource) -> bool:
        found = self._source.found.get(recorded.key)
        return found is not None and found.state.content == recorded.content

    def _documents(self, source: SyncedSource) -> list[Entry]:
        """Return the stored documents of a source, or one for each of its recorded principals."""
        stored = self._stored.get(source.key, [])
        if not source.allowed or (stored and source.stamp):
            return stored
        key = DocumentKey(source.key.tenant, source.key.kb, "")
        recorded = json.loads(source.allowed)
        return [Entry(key, "", source.key.source, 0, tuple(names)) for names in recorded]

    def _emptied(self, source: SyncedSource) -> SyncedSource:
        """Return a record of whom a source was visible to, for when its documents come back."""
        return source._replace(stamp="", allowed=principals_json(self._principals([source])))

    def _refusal(
        self, gone: Sequence[SyncedSource], moved: Mapping[SourceKey, SyncedSource]
    ) -> str:
        """Return why too much is lost, or ""; content elsewhere, as after a crash, is not lost."""
        there = {*self._there, *(each.content for each in moved.values())} - {""}
        lost = [each.key.source for each in gone if each.content not in there]
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

    def _read(self, found: Found) -> _Read:
        nodes = found.read()
        if isinstance(nodes, str):
            return _Read(found, [], reason=nodes)
        groups = grouped([node for node in nodes if is_searchable(node)])
        names = [name_of(group[0]) for group in groups]
        documents = self._addition.identified(groups)
        return _Read(found, documents, {*names, *(each.key.ref for each in documents)})

    def _apply(self, batch: Sequence[_Read], moved: Mapping[SourceKey, SyncedSource]) -> None:
        """Store documents that are new or changed, and delete those that their sources lack."""
        self._origins = {}
        batch = [self._traced(read, moved.get(read.found.key)) for read in batch]
        documents = [each for read in batch for each in read.documents]
        self._owned.update(each.key for each in documents)
        if not self._options.dry_run:
            changed = self._addition.changed(documents)
            for some in batched(changed, lambda each: weight_of(each.nodes), BATCH_WEIGHT):
                self._addition.write(some, self._origins)
        report = self._addition.tally.report()
        records = [self._finish(read, moved.get(read.found.key), report) for read in batch]
        done = [each for each in records if each is not None]
        self._record([each for each in done if each.stamp or each.allowed])
        self._delete(entry for each in done for entry in self._stored.get(each.key, ()))

    def _traced(self, read: _Read, moved: SyncedSource | None) -> _Read:
        """Return the source, without its documents if it is unknown who may see them."""
        now = read.found.key
        source = self._before.get(now) or self._known.get(now) or SyncedSource(self._owner, now)
        before = self._documents(source)
        if moved is None and not any(each.allowed for each in before):
            return read
        is_current = moved is not None and moved.stamp == self._stamp(_digests(before))
        origins = {
            key: Predecessor(entry.key, is_current, entry.allowed)
            for key, entry in _predecessors(read, before).items()
        }
        stored = _digests(self._stored.get(now, ())).items()
        new = [(each.key, each.digest) for each in read.documents if each.key not in origins]
        is_partly_public = source.key == now and any(not e.allowed for e in before if e.digest)
        if is_partly_public or stored >= {*new}:
            self._origins |= origins
            return read
        error = ConfigurationError(
            f"the documents of {source.key.source} are visible to different principals, and the "
            f"ids in {now.source} do not say which of them these are; pass allowed=, or name the "
            "principals in the documents' metadata"
        )
        for each in read.documents:
            self._addition.tally.failed(each.key.ref, error)
        return read._replace(documents=[])

    def _finish(
        self, read: _Read, origin: SyncedSource | None, report: IngestionReport
    ) -> SyncedSource | None:
        """Note the outcome of a source; return it as it is now, None if it failed."""
        key = read.found.key
        if read.reason or not read.refs.isdisjoint(report.failures):
            if read.reason:
                self._left_out[key.source] = read.reason
            self._kept.update([] if origin is None else [origin.key])
            self._owned.update(each.key for each in self._stored.get(key, ()))
            return None
        if read.found.left_out:
            self._left_out[key.source] = read.found.left_out
        new = {
            each.key: each.digest for each in read.documents if each.key.ref not in report.skipped
        }
        record = SyncedSource(self._owner, key, *read.found.state)
        if not new:
            self._left_out[key.source] = read.found.left_out or NO_TEXT
            return self._emptied(self._known.get(key, record))
        self._classify(key, new, origin)
        origins = [self._origins.get(each.key) for each in read.documents]
        kept = [() if each is None else each.allowed for each in origins]
        allowed = [each.allowed or own for each, own in zip(read.documents, kept, strict=True)]
        return record._replace(stamp=self._stamp(new), allowed=principals_json(allowed))

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
        if self._options.dry_run:
            return
        for batch in batches(each for each in entries if each.key not in self._owned):
            self._parts.writer.delete([each.key for each in batch])
            self._parts.ledger.forget_dimension()

    def _prune(self, gone: Sequence[SyncedSource], moved: Mapping[SourceKey, SyncedSource]) -> None:
        """Delete what is gone; keep on record who saw it, since it may come back."""
        elsewhere = {each.key for each in moved.values()}
        emptied = [self._emptied(each) for each in gone if each.key not in elsewhere]
        kept = {each.key for each in emptied if each.allowed and self._addition.allowed is None}
        self._record([each for each in emptied if each.key in kept])
        self._delete(entry for each in gone for entry in self._stored[each.key])
        self._record([], forget=[each for each in gone if each.key not in kept])

    def _record(
        self, sources: Sequence[SyncedSource], *, forget: Sequence[SyncedSource] = ()
    ) -> None:
        if (sources or forget) and not self._options.dry_run:
            self._parts.ledger.record_synced(sources, forget=forget)

    def _report(self, gone: Iterable[str], refusal: str) -> SyncReport:
        stored = self._addition.tally.report()
        return SyncReport(
            **{name: tuple(paths) for name, paths in self._done.items()},
            moved=self._moved,
            deleted=tuple(each for each in gone if each not in self._moved),
            left_out=self._left_out,
            failures=stored.failures,
            n_nodes=stored.n_nodes,
            seconds=stored.seconds,
            is_dry_run=self._options.dry_run,
            refusal=refusal,
        )


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _weight(read: _Read) -> int:
    return sum(weight_of(each.nodes) for each in read.documents)


def _digests(stored: Iterable[Entry]) -> dict[DocumentKey, str]:
    return {each.key: content_of(each.digest) for each in stored}


def _ends(content: str, source: SourceKey) -> list[_End]:
    parts = Path(source.source).parts
    return [(content, *parts[start:]) for start in range(len(parts) + 1)]


def _predecessors(read: _Read, before: Sequence[Entry]) -> dict[DocumentKey, Entry]:
    """Return the earlier documents of a source by those that they are now; not for unknown ones.

    Ids are the same, or contain the path of a file. Others may be of any of the documents, if all
    of these are visible to the same principals, or are named by the new ones.
    """
    stored = {each.key: each for each in before}
    is_same = len({each.allowed for each in before}) == 1
    found: dict[DocumentKey, Entry] = {}
    for each, other in zip(read.documents, chain(before, repeat(before[-1])), strict=False):
        path = other.source + each.key.ref.removeprefix(read.found.key.source)
        known = stored.get(each.key) or stored.get(other.key._replace(ref=path))
        if known is not None or is_same or each.allowed is not None:
            found[each.key] = known or other
    return found
