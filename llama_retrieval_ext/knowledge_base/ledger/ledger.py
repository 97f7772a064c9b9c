"""The ledger: the configuration of a knowledge base, and its documents, which `Journal` changes.

Both are records beside the store: in a SQLite file, or in a companion collection on a server.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from random import uniform
from time import sleep, time
from typing import Final

from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError, StoreClosedError, StoreUnavailableError
from llama_retrieval_ext.knowledge_base.ledger.config import (
    KnowledgeBaseConfig,
    config_from,
    unknown_nodes_error,
)
from llama_retrieval_ext.knowledge_base.ledger.prepared import HISTORY, DocumentKey
from llama_retrieval_ext.knowledge_base.ledger.records import (
    DocumentRecord,
    Entry,
    SourceKey,
    StoredSource,
    SyncedSource,
    Value,
    Values,
    WriteState,
    all_documents,
    all_of,
    begun_after,
    documents_in,
    named_documents,
    principals_json,
    record_id,
    sources_of,
    synced_by,
    synced_from,
    synced_record,
    where,
)
from llama_retrieval_ext.knowledge_base.ledger.sqlite_records import SqliteRecords
from llama_retrieval_ext.scope import ALLOWED_KEY, Scope
from llama_retrieval_ext.stores.engine.records import Record, Records
from llama_retrieval_ext.text.normalization import spellings

CONFIG: Final = "config"
TOTALS: Final = "totals"
_RANKING: Final = "ranking"
_DELETING: Final = WriteState.DELETING
_COPY: Final = json.dumps(HISTORY).strip('"')  # in the records of copies
_TRIES: Final = 20
_PAUSE_S: Final = (0.005, 0.05)


class Ledger:
    """The configuration of a knowledge base and its documents, in records beside its store.

    Args:
        records: The records.
        count_stored: Returns the number of nodes in the store.
        clock: Returns the seconds since 1970.
        patience_s: Seconds after which a claim belongs to a dead writer; 0 where no other process
            writes.
    """

    def __init__(
        self,
        records: Records,
        *,
        count_stored: Callable[[], int],
        clock: Callable[[], float] = time,
        patience_s: float = 0.0,
    ) -> None:
        self.records = records
        self.values = Values(records)
        self.patience_s = patience_s
        self._count_stored = count_stored
        self._clock = clock
        self._config: KnowledgeBaseConfig | None = None  # of the last `read`
        self._parsed: tuple[str, KnowledgeBaseConfig | None] = "", None  # by record version
        self._admitted: tuple[KnowledgeBaseConfig, str] | None = None

    @property
    def now_ms(self) -> int:
        """The time in milliseconds since 1970."""
        return round(self._clock() * 1000)

    def config(self) -> KnowledgeBaseConfig | None:
        """Return the configuration; None if the knowledge base is not set up yet."""
        return self._config_in(self.records.get([CONFIG]))

    def update_config(
        self, change: Callable[[KnowledgeBaseConfig | None], KnowledgeBaseConfig | None]
    ) -> KnowledgeBaseConfig | None:
        """Replace the configuration by the result of `change`; return the new one.

        `change` is called again if another writer has changed the configuration meanwhile.
        """
        for _ in range(_TRIES):
            stored = self.records.get([CONFIG])
            recorded = self._config_in(stored)
            config = change(recorded)
            if config is None or config == recorded:
                return config
            value = self.values.create(json.dumps(asdict(config)))
            self.values.write([value])
            text = json.dumps(value)
            version = stored[CONFIG].version if CONFIG in stored else ""
            if self.records.replace([Record(CONFIG, text, {"kind": CONFIG}, version)]):
                self.values.delete(_values_in(stored.get(CONFIG)))
                return config
            self.values.delete([value])
            sleep(uniform(*_PAUSE_S))  # noqa: S311 - so that two do not keep in step
        raise StoreUnavailableError(
            "other processes keep changing how this knowledge base is set up; do this again"
        )

    def admit(self, requested: KnowledgeBaseConfig, where: str) -> bool:
        """Check the caller's configuration; return False if there is no knowledge base yet."""
        recorded = self.config()
        if requested.require_scope is None:
            # Fixed now: if another process sets it up with True, this one must fail.
            requires = recorded is not None and recorded.require_scope
            requested = replace(requested, require_scope=requires)
        self._admitted = requested, where
        if recorded is None:
            return False
        if recorded.opened(requested, where) != recorded:
            self.update_config(lambda config: config and config.opened(requested, where))
        return True

    @property
    def requires_scope(self) -> bool:
        """Whether every operation of the admitted caller needs a scope."""
        return self._admitted is not None and bool(self._admitted[0].require_scope)

    def dimension(self) -> int | None:
        """Return the dimension of the vectors; None until the first is stored."""
        config = self._config
        if config is None or config.dimension is None:  # constant once recorded
            config = self.config()
        return None if config is None else config.dimension

    def record_dimension(self, dimension: int) -> None:
        """Record the dimension of the vectors before the first is stored.

        The first writer sets the tokenizer and whether all callers need a scope. Raise if another
        process has set it up with other settings since it was opened.
        """
        if self.config() is None:
            count = self._count_stored()
            raise unknown_nodes_error("the store", count) if count else _removed_error()

        def decided(recorded: KnowledgeBaseConfig | None) -> KnowledgeBaseConfig | None:
            if recorded is None or self._admitted is None:
                return recorded
            requested, where = self._admitted
            recorded.opened(replace(requested, dimension=dimension), where)
            kept = recorded.opened(requested, where)
            required = kept.require_scope or requested.require_scope
            return replace(kept, dimension=dimension, require_scope=required)

        self.update_config(decided)

    def forget_dimension(self) -> None:
        """Forget the dimension if there are no nodes: the next ones may have another."""
        is_empty = self.n_nodes_at_rest() is not None and not self._count_stored()
        if is_empty and self.dimension() is not None:
            self._config = self.update_config(
                lambda config: config and replace(config, dimension=None)
            )

    def record_splitting(self, splitting: str) -> None:
        """Record how documents are split from now on."""
        config = self._config or self.config()
        if config is not None and config.splitting != splitting:
            self.update_config(lambda config: config and replace(config, splitting=splitting))

    def read(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, DocumentRecord]:
        """Return the records of documents; check that the configuration is unchanged."""
        stored = self.records.get([CONFIG, *map(record_id, keys)])
        config = self._config_in(stored)
        if config is not None and config is not self._config and self._admitted is not None:
            config.opened(*self._admitted)
        self._config = config
        return documents_in(stored.values())

    def read_to_write(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, DocumentRecord]:
        """Return the result of `read`; raise StoreClosedError if the knowledge base was removed."""
        stored = self.read(keys)
        if self._config is None:
            raise _removed_error()
        return stored

    def check_exists(self) -> None:
        """Raise StoreClosedError if the knowledge base was removed since it was opened."""
        self.read_to_write([])

    def check_unwritten(self, where: str) -> None:
        """Raise StoreUnavailableError if another process is writing."""
        if self.records.count(begun_after(self.now_ms - round(self.patience_s * 1000))):
            raise StoreUnavailableError(
                f"{where} is being written to by another process; do this again when it is done. A "
                f"process that died counts as writing for {self.patience_s:g} seconds"
            )

    def n_nodes_at_rest(self, *, exact: bool = False) -> int | None:
        """Return the expected number of nodes in the store; None during writes.

        The recorded number is an estimate: a crash or concurrent writers may make it wrong.
        """
        if self.records.count(begun_after(0)):
            return None
        totals = self.records.get([TOTALS]).get(TOTALS)
        recorded = 0 if totals is None else int(totals.text)
        if not exact:
            return recorded
        n_nodes = sum(document.stored.n_nodes for document in self._find(all_documents()))
        if n_nodes != recorded:
            self.add_nodes(n_nodes - recorded)
        return n_nodes

    def add_nodes(self, difference: int) -> None:
        """Change the recorded number of nodes."""
        for _ in range(_TRIES if difference else 0):
            totals = self.records.get([TOTALS]).get(TOTALS, Record(TOTALS, "0", {"kind": TOTALS}))
            text = str(int(totals.text) + difference)
            if self.records.replace([replace(totals, text=text)], held=True):
                return

    def digests(self, keys: Iterable[DocumentKey]) -> list[str | None]:
        """Return the digest of each document, in order; None for one that is not stored."""
        keys = list(keys)
        records = map(self.read(keys).get, keys)
        return [r.stored.digest if r is not None and r.state is None else None for r in records]

    def allowed(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, tuple[str, ...]]:
        """Return the principals of the documents that are stored and visible to some only."""
        stored = self.read(keys).items()
        return {key: record.entry.allowed for key, record in stored if record.entry.allowed}

    def node_ids(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, list[str]]:
        """Return the ids of each document's nodes, in ascending order."""
        return {key: sorted(ids) for key, (ids, _) in self.ids_of(self.read(keys)).items()}

    def ids_of(
        self, records: Mapping[DocumentKey, DocumentRecord]
    ) -> dict[DocumentKey, tuple[list[str], list[str]]]:
        """Return the node ids of both versions of each document; [] if a part is missing."""
        if not records:
            return {}
        values = [
            value
            for record in records.values()
            for value in (record.stored.nodes, record.other.nodes)
        ]
        ids = [json.loads(text or "[]") for text in self.values.read(values)]
        return dict(zip(records, zip(ids[::2], ids[1::2], strict=True), strict=True))

    def visible_ids(self, scope: Scope | None, limit: int | None = None) -> list[str]:
        """Return node ids visible to a scope, in ascending order; without one, of any.

        With a limit, those of the first documents by the digests of their keys: a sample of all.
        """
        of_all = scope is None or scope.principals is None
        stored = documents_in(self.records.find(all_documents(scope), limit if of_all else None))
        seen = {entry.key for entry in _visible(stored.values(), scope)}
        ids = self.ids_of({key: stored[key] for key in stored if key in seen})
        sample = [node_id for node_ids, _ in ids.values() for node_id in sorted(node_ids)]
        return sorted(sample[:limit])

    def doubt_all(self) -> None:
        """Mark every document as changed, so that adding it again writes it again."""
        doubted = [
            record._replace(stored=record.stored._replace(digest="")).to_record()
            for record in self._find(all_documents())
            if record.state is None
        ]
        self.records.replace(doubted)

    def entries(self) -> list[Entry]:
        """Return all documents that are not being written, in insertion order."""
        return [record.entry for record in self._find(all_documents()) if record.state is None]

    def find(self, name: str, scope: Scope | None, *, in_any: bool = False) -> list[Entry]:
        """Return the documents with this id or source, which may be a relative path.

        Without a scope, they are in none, or ``in_any``. An id may come from elsewhere and look
        like any path, so ``~`` is not expanded. An empty name is an error: it would be the source
        of all documents that have none.
        """
        if not isinstance(name, str) or not name:
            raise ConfigurationError(
                f"name the path of a file or the id of a document, got {name!r}"
            )
        paths = [] if "\0" in name else [os.path.realpath(name)]  # no path has a NUL
        names = dict.fromkeys(s for path in (name, *paths) for s in spellings(path))
        for spelling in names:
            entries = _visible(self._find(named_documents(spelling, scope, in_any=in_any)), scope)
            if entries:
                return entries
        return []

    def ids_named(self, name: str, scope: Scope | None) -> list[str]:
        """Return the node ids of the documents with this id or source; without a scope, in any."""
        ids = self.node_ids(entry.key for entry in self.find(name, scope, in_any=True))
        return [node_id for document in ids.values() for node_id in document]

    def visible(self, scope: Scope | None) -> list[Entry]:
        """Return the documents visible to a scope in insertion order; without a scope, all."""
        return _visible(self._find(all_documents(scope)), scope)

    def visible_of(self, keys: Iterable[DocumentKey], scope: Scope | None) -> list[Entry]:
        """Return which of the documents in a scope are visible to its principals."""
        return _visible(_in_order(self.read(keys)), scope)

    def history_of(self, keys: Iterable[DocumentKey]) -> list[Entry]:
        """Return the copies of documents as they were known before."""
        current = set(keys)
        entries = [record.entry for record in self._find(all_documents())]
        old = [entry for entry in entries if HISTORY in entry.key.ref]
        return [e for e in old if e.key._replace(ref=e.key.ref.partition(HISTORY)[0]) in current]

    def sources(self, scope: Scope | None) -> list[StoredSource]:
        """Return the sources visible to a scope, by name; without a scope, all."""
        return sources_of(self.visible(scope))

    def count(self) -> tuple[int, int]:
        """Return the number of documents, and of nodes in the store."""
        return self.records.count(all_documents()), self._count_stored()

    def count_sources(self) -> int:
        """Return the number of sources, from the fields of records alone."""
        current = (r.fields for r in self.records.find(all_documents()) if _COPY not in r.text)
        return len({(f["tenant"], f["kb"], f["source"]) for f in current if f})

    def synced(self, owner: str | None = None) -> list[SyncedSource]:
        """Return the sources that a sync has recorded; None for those of all."""
        return [synced_from(record) for record in self.records.find(synced_by(owner))]

    def record_synced(
        self, sources: Sequence[SyncedSource], *, forget: Sequence[SyncedSource] = ()
    ) -> None:
        """Record sources of a sync, replacing earlier records, and forget others."""
        self.records.delete(synced_record(source).id for source in forget)
        self.records.put([synced_record(source) for source in sources])

    def remember_principals(self, entries: Iterable[Entry]) -> None:
        """Record who sees documents that will be deleted, for when a sync finds them again."""
        seen_by: dict[SourceKey, list[tuple[str, ...]]] = {}
        for (tenant, kb, _), _, source, _, allowed in entries:
            if allowed:
                seen_by.setdefault(SourceKey(tenant, kb, source), []).append(allowed)
        synced = [source for source in self.synced() if source.key in seen_by] if seen_by else []
        self.record_synced([s._replace(allowed=principals_json(seen_by[s.key])) for s in synced])

    def rankings(self) -> dict[str, str]:
        """Return the recorded ranking rules of each scope; both are JSON."""
        stored = self.records.find(all_of(where("kind", _RANKING)))
        values = {scope: Value(*value) for scope, value in (json.loads(r.text) for r in stored)}
        texts = zip(values, self.values.read(values.values()), strict=True)
        return {scope: text for scope, text in texts if text}

    def record_ranking(self, scope: str, text: str) -> None:
        """Record the ranking rules of a scope, replacing earlier ones; empty for none."""
        id_ = f"{_RANKING}/{record_id(DocumentKey(scope, '', ''))}"
        before = self.records.get([id_])
        value = self.values.create(text)
        self.values.write([value])
        if text:
            self.records.put([Record(id_, json.dumps([scope, value]), {"kind": _RANKING})])
        else:
            self.records.delete([id_])
        self.values.delete(Value(*json.loads(record.text)[1]) for record in before.values())

    @property
    def file(self) -> SqliteRecords | None:
        """The records in a file or in memory, to which no other process writes; None elsewhere."""
        return self.records if isinstance(self.records, SqliteRecords) else None

    def settled_node_ids(self) -> list[str]:
        """Return the ids of nodes that are not being added or deleted, which the store has."""
        documents = documents_in(self.records.find(all_documents())).items()
        kept = {key: record for key, record in documents if record.state != _DELETING}
        return [node_id for ids, _ in self.ids_of(kept).values() for node_id in ids]

    def compact(self) -> None:
        """Remove what is left of deleted records; servers do it themselves."""
        if self.file is not None:
            self.file.compact()

    def close(self) -> None:
        """Close the file; what is on a server stays open with the store."""
        if self.file is not None:
            self.file.close()

    def _find(self, filters: MetadataFilters) -> list[DocumentRecord]:
        """Return documents in insertion order."""
        return _in_order(documents_in(self.records.find(filters)))

    def _config_in(self, stored: Mapping[str, Record]) -> KnowledgeBaseConfig | None:
        if CONFIG not in stored:
            return None
        version = stored[CONFIG].version
        if version != self._parsed[0]:
            (text,) = self.values.read(_values_in(stored[CONFIG]))
            self._parsed = version, None if text is None else config_from(json.loads(text))
        return self._parsed[1]


def _in_order(documents: Mapping[DocumentKey, DocumentRecord]) -> list[DocumentRecord]:
    return sorted(documents.values(), key=lambda record: (record.created, record.key))


def _visible(records: Iterable[DocumentRecord], scope: Scope | None) -> list[Entry]:
    entries = (record.entry for record in records)
    return [
        entry
        for entry in entries
        if HISTORY not in entry.key.ref
        and (scope is None or scope.has_principal_of({ALLOWED_KEY: entry.allowed}))
    ]


def _values_in(record: Record | None) -> list[Value]:
    return [] if record is None else [Value(*json.loads(record.text))]


def _removed_error() -> StoreClosedError:
    return StoreClosedError(
        "the knowledge base was removed since it was opened; open it again to make a new one"
    )
