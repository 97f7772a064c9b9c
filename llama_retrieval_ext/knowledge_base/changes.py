"""`Changes`: adds and deletes documents."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.filters import as_metadata_filters, parse_filters
from llama_retrieval_ext.knowledge_base.access import Access
from llama_retrieval_ext.knowledge_base.add import Addition, IngestionParts
from llama_retrieval_ext.knowledge_base.documents import key_of_node
from llama_retrieval_ext.knowledge_base.ledger.ledger import Entry
from llama_retrieval_ext.knowledge_base.storage import Storage, batches
from llama_retrieval_ext.query import Scope


class Changes:
    """The changes to the documents of a knowledge base; one thread writes at a time."""

    def __init__(self, access: Access, storage: Storage, parts: IngestionParts) -> None:
        self._access = access
        self._storage = storage
        self._parts = parts

    def addition(self, scope: Scope | None) -> Addition:
        """Return a new call of ``add`` in a scope."""
        self._access.check_writable()
        self._access.check(scope)
        return Addition(self._parts, {} if scope is None else scope.metadata())

    def delete(self, name: str, scope: Scope | None) -> int:
        """Delete a document or all documents of a source; return their number."""
        if not isinstance(name, str) or not name:
            raise ConfigurationError(
                f"delete needs the path of a file or the id of a document, got {name!r}"
            )
        with self._writing(scope):
            self._parts.writer.settle()
            return self._delete(self._parts.ledger.find(name, scope))

    def delete_where(self, filters: MetadataFilters, scope: Scope | None) -> int:
        """Delete the documents with a node that satisfies the filters; return their number."""
        with self._writing(scope):
            parse_filters(filters)
            if scope is not None:
                within = as_metadata_filters(scope.condition)
                filters = MetadataFilters(filters=[filters, within])
            owners = set(map(key_of_node, self._storage.store.get_nodes(filters=filters)))
            visible = self._parts.ledger.visible(scope)
            return self._delete([each for each in visible if each.key in owners])

    def clear(self, scope: Scope | None) -> int:
        """Delete all documents visible to a scope; return their number."""
        with self._writing(scope):
            gone = self._delete(self._parts.ledger.visible(scope))
            if gone and not self._parts.ledger.count()[1]:
                self._storage.compact()
        return gone

    def compact(self) -> int:
        """Free the disk space of deleted nodes; return the number of bytes."""
        self._access.check_writable()
        self._access.check_open()
        return self._storage.compact()

    def _delete(self, entries: Sequence[Entry]) -> int:
        if not entries:
            self._parts.ledger.check_exists()
        for batch in batches(entries):
            self._parts.writer.delete([each.key for each in batch])
        return len(entries)

    @contextmanager
    def _writing(self, scope: Scope | None) -> Generator[None]:
        """Check the scope and hold the write lock."""
        self._access.check_writable()
        self._access.check(scope)
        with self._storage.lock:
            yield
