"""`RemoteLedger`: the ledger of a knowledge base on a server, in shared records."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from random import uniform
from time import sleep, time
from typing import Final

from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.errors import StoreClosedError, StoreUnavailableError
from llama_retrieval_ext.knowledge_base.ledger.ledger import (
    Entry,
    KnowledgeBaseConfig,
    Ledger,
    SyncedSource,
    config_from,
    unknown_nodes_error,
)
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey
from llama_retrieval_ext.knowledge_base.ledger.records import (
    DocumentRecord,
    Value,
    Values,
    all_documents,
    begun_after,
    documents_in,
    named_documents,
    record_id,
    synced_by,
    synced_from,
    synced_record,
)
from llama_retrieval_ext.query import ALLOWED_KEY, Scope
from llama_retrieval_ext.stores.engine.records import Record, RecordStore

CONFIG: Final = "config"
TOTALS: Final = "totals"
_TRIES: Final = 20
_PAUSE_S: Final = (0.005, 0.05)


class RemoteLedger(Ledger):
    """A ledger in records beside the store; a claim older than `patience_s` is a dead writer's."""

    def __init__(
        self,
        records: RecordStore,
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
        self._config: KnowledgeBaseConfig | None = None

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
        """Replace the configuration by the result of `change`; return the new one."""
        for _ in range(_TRIES):
            found = self.records.get([CONFIG])
            recorded = self._config_in(found)
            config = change(recorded)
            if config is None or config == recorded:
                return config
            old = _values_in(found.get(CONFIG))
            value = self.values.create(json.dumps(asdict(config)))
            self.values.write([value])
            text = json.dumps(value)
            version = found[CONFIG].version if CONFIG in found else ""
            if self.records.replace([Record(CONFIG, text, {"kind": CONFIG}, version)]):
                self.values.delete(old)
                return config
            self.values.delete([value])
            sleep(uniform(*_PAUSE_S))  # noqa: S311 - so that two do not keep in step
        raise StoreUnavailableError(
            "other processes keep changing how this knowledge base is set up; do this again"
        )

    def dimension(self) -> int | None:
        """Return the dimension of the vectors, which is constant once recorded."""
        known = None if self._config is None else self._config.dimension
        return super().dimension() if known is None else known

    def record_dimension(self, dimension: int) -> None:
        """Record the dimension of the vectors before the first is stored; see `Ledger`."""
        if self.config() is None:
            held = self._count_stored()
            raise unknown_nodes_error("the store", held) if held else _removed_error()
        super().record_dimension(dimension)

    def read(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, DocumentRecord]:
        """Return the records of documents; check that the configuration is unchanged."""
        found = self.records.get([CONFIG, *map(record_id, keys)])
        self._config = self._config_in(found)
        if self._config is not None and self._admitted is not None:
            self._config.opened(*self._admitted)
        return documents_in(found.values())

    def read_to_write(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, DocumentRecord]:
        """Return the result of `read`; raise StoreClosedError if the knowledge base was removed."""
        found = self.read(keys)
        if self._config is None:
            raise _removed_error()
        return found

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
        n_kept = 0 if totals is None else int(totals.text)
        if not exact:
            return n_kept
        n_nodes = sum(each.n_nodes for each in self._find(all_documents()))
        if n_nodes != n_kept:
            self.add_nodes(n_nodes - n_kept)
        return n_nodes

    def add_nodes(self, difference: int) -> None:
        """Change the recorded number of nodes."""
        for _ in range(_TRIES if difference else 0):
            found = self.records.get([TOTALS]).get(TOTALS, Record(TOTALS, "0", {"kind": TOTALS}))
            text = str(int(found.text) + difference)
            if self.records.replace([replace(found, text=text)], held=True):
                return

    def digests(self, keys: Iterable[DocumentKey]) -> list[str | None]:
        """Return the digest of each document, in order; None for one that is not stored."""
        keys = list(keys)
        at_rest = {key: each.digest for key, each in self.read(keys).items() if each.is_at_rest}
        return [at_rest.get(key) for key in keys]

    def allowed(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, tuple[str, ...]]:
        """Return the principals of the documents that are stored and visible to some only."""
        entries = {key: each.entry for key, each in self.read(keys).items()}
        return {key: each.allowed for key, each in entries.items() if each.allowed}

    def node_ids(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, list[str]]:
        """Return the ids of each document's nodes, in ascending order."""
        return {key: sorted(ids) for key, (ids, _) in self.ids_of(self.read(keys)).items()}

    def ids_of(
        self, records: Mapping[DocumentKey, DocumentRecord]
    ) -> dict[DocumentKey, tuple[list[str], list[str]]]:
        """Return the node ids of each document, and of its new version; [] if a part is missing."""
        values = [
            each for record in records.values() for each in (record.nodes, record.change.nodes)
        ]
        ids = [json.loads(text or "[]") for text in self.values.read(values)]
        return dict(zip(records, zip(ids[::2], ids[1::2], strict=True), strict=True))

    def doubt_all(self) -> None:
        """Mark every document as changed, so that adding it again writes it again."""
        doubted = [each._replace(digest="") for each in self._at_rest()]
        self.records.replace([each.to_record() for each in doubted])

    def entries(self) -> list[Entry]:
        """Return all documents that are not being written, in insertion order."""
        return [each.entry for each in self._at_rest()]

    def named(self, name: str, scope: Scope | None) -> list[Entry]:
        """Return the documents with this id or source in a scope; None means in no scope."""
        return _visible(self._find(named_documents(name, scope)), scope)

    def visible(self, scope: Scope | None) -> list[Entry]:
        """Return the documents visible to a scope in insertion order; without a scope, all."""
        return _visible(self._find(all_documents(scope)), scope)

    def synced(self, owner: str | None = None) -> list[SyncedSource]:
        """Return the sources that a sync has recorded; None for those of all."""
        return [synced_from(each) for each in self.records.find(synced_by(owner))]

    def record_synced(
        self, sources: Sequence[SyncedSource], *, forget: Sequence[SyncedSource] = ()
    ) -> None:
        """Record sources of a sync, replacing earlier records, and forget others."""
        self.records.delete(synced_record(each).id for each in forget)
        self.records.put([synced_record(source) for source in sources])

    def count(self) -> tuple[int, int]:
        """Return the number of documents, and of nodes in the store."""
        return self.records.count(all_documents()), self._count_stored()

    def close(self) -> None:
        """No-op: the store owns the connection."""

    def _find(self, filters: MetadataFilters) -> list[DocumentRecord]:
        """Return documents in insertion order."""
        found = documents_in(self.records.find(filters)).values()
        return sorted(found, key=lambda each: (each.created, each.key))

    def _at_rest(self) -> list[DocumentRecord]:
        return [each for each in self._find(all_documents()) if each.is_at_rest]

    def _config_in(self, found: Mapping[str, Record]) -> KnowledgeBaseConfig | None:
        if CONFIG not in found:
            return None
        (text,) = self.values.read(_values_in(found[CONFIG]))
        return None if text is None else config_from(json.loads(text))


def _visible(records: Iterable[DocumentRecord], scope: Scope | None) -> list[Entry]:
    entries = (record.entry for record in records)
    return [
        entry
        for entry in entries
        if scope is None or scope.has_principal_of({ALLOWED_KEY: entry.allowed})
    ]


def _values_in(record: Record | None) -> list[Value]:
    return [] if record is None else [Value(*json.loads(record.text))]


def _removed_error() -> StoreClosedError:
    return StoreClosedError(
        "the knowledge base was removed since it was opened; open it again to make a new one"
    )
