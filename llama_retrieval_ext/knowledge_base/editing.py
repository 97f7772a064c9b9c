"""`Editable`: the methods of a knowledge base that add, sync, share and delete documents."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext.checks import checked_methods, of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.filter_syntax import as_metadata_filters
from llama_retrieval_ext.filters import parse_filters
from llama_retrieval_ext.knowledge_base.adding import Addition, IngestionParts
from llama_retrieval_ext.knowledge_base.documents import (
    AS_IT_IS,
    Allowed,
    Dating,
    Valid,
    allowed_names,
)
from llama_retrieval_ext.knowledge_base.ledger.journal import WriteOutcome
from llama_retrieval_ext.knowledge_base.ledger.prepared import key_of_node
from llama_retrieval_ext.knowledge_base.ledger.records import Entry
from llama_retrieval_ext.knowledge_base.rankings import scope_key
from llama_retrieval_ext.knowledge_base.report import IngestionReport, SyncReport
from llama_retrieval_ext.knowledge_base.sharing import share_documents
from llama_retrieval_ext.knowledge_base.storage import Access, documents_named
from llama_retrieval_ext.knowledge_base.sync import Sync, SyncOptions
from llama_retrieval_ext.knowledge_base.sync_sources import FilePatterns, find_source
from llama_retrieval_ext.scope import KNOWN_NOW, Scope
from llama_retrieval_ext.stages.ranking import Ranking
from llama_retrieval_ext.urls import Location
from llama_retrieval_ext.wording import quoted

P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(method: Callable[P, T]) -> Callable[P, Coroutine[object, object, T]]:
    """Return the async twin of a method, which runs it in a thread.

    It is one of the event loop, not of `drivers.pool`: the interpreter waits for it at its exit.
    """

    @wraps(method)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, *args, **kwargs)

    return run


@checked_methods
class Editable:
    """The methods of a knowledge base that add, sync, share and delete documents.

    One thread writes at a time.
    """

    def __init__(self, access: Access, parts: IngestionParts) -> None:
        self._access = access
        self._storage = parts.storage
        self._parts = parts

    def add(  # noqa: PLR0913 - for whom, and for which time
        self,
        documents: Iterable[BaseNode],
        *,
        scope: Scope | None = None,
        allowed: Allowed = None,
        valid: Valid | None = None,
        validity: Literal["text"] | None = None,
        time_zone: str | None = None,
        show_progress: bool = True,
    ) -> IngestionReport:
        """Add new documents, replace changed ones and skip unchanged ones.

        A document that fails is reported, and the others are stored. Each document is stored
        atomically, also after a crash: its old version stays until the new one is stored.

        Args:
            documents: LlamaIndex documents, which are split; nodes, which are stored unchanged,
                with their embedding if they have one; or both, from a list or an iterator. An
                iterator is read in batches, and must yield the nodes of a document consecutively. A
                document is identified by its id, which LlamaIndex generates at random: to add the
                same document again, set its id, or read files with `read_documents`. Documents with
                random ids and a ``file_path`` in their metadata, as from ``SimpleDirectoryReader``,
                are identified by file and page, or their number within the file; parts that a file
                no longer has stay until `delete`. Nodes belong to the document in their
                ``ref_doc_id``, and replace all its earlier nodes.
            scope: The tenant or knowledge base, or both, that the documents belong to. It is stored
                in the metadata of the nodes. The same id in another scope is another document. A
                scope with principals cannot add.
            allowed: Who may see the documents, as principals of scopes: a list, or a function of a
                document; None for the list in its metadata under ``allowed``. Without any, a new
                document is visible to everyone in its scope, and a stored one keeps whom it names
                (see `share`). If only this changes, nothing is embedded.
            valid: From when until when the documents hold: the metadata keys of both ends, such as
                ``("effective", None)``, or a function of a document that returns both; None for
                ``valid_from`` and ``valid_to`` in the metadata. The end is the first instant at
                which they no longer hold.
            validity: ``"text"`` to read it from the text of the documents that do not say it
                otherwise ("effective 1 May 2026", 自2021年9月1日起施行); ``validity_text`` in the
                metadata has the words.
            time_zone: Zone of dates without one, such as ``Asia/Shanghai``; None for UTC.
            show_progress: Whether to show a progress bar on standard error.

        Returns:
            The outcome of each document; call ``raise_for_failures()`` for an error instead.

        Warns:
            UnstableIdWarning: Raised once if an id is random and the metadata has no file and part
                to identify the document.

        Raises:
            ConfigurationError: An item is neither a document nor a node.
            ScopeRequiredError: The knowledge base requires a scope.
            ModelMismatchError: The embedding model gives vectors of another dimension.
            StoreUnavailableError: There is no disk space or write permission, or another process
                keeps writing the same documents; documents added before stay.
        """
        addition = self._addition(scope, allowed, Dating(valid, validity, time_zone))
        return addition.run(documents, show_progress=show_progress)

    aadd = _in_thread(add)

    def index_fields(self) -> int:
        """Index the searched fields of the schema that are not indexed, from what is stored.

        No file is read, and nothing is embedded. Milvus copies the nodes, and so needs room for
        them twice. Other processes should not add documents meanwhile, as these may not get the new
        fields; searches continue.

        Returns:
            Number of nodes that were indexed; 0 if all fields are.

        Raises:
            StoreUnavailableError: There is no space for the new files, or the engine failed.
        """
        with self._storage.lock:
            self._access.check_open()
            try:
                return self._storage.store.index_fields()
            finally:
                self._storage.words.forget()

    aindex_fields = _in_thread(index_fields)

    def sync(  # noqa: PLR0913 - which files, and what may be done
        self,
        source: str | Path | Iterable[BaseNode],
        *,
        name: str = "",
        scope: Scope | None = None,
        prune: bool = True,
        dry_run: bool = False,
        max_deletions: float = 0.2,
        checksum: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        encoding: str = "",
        follow_symlinks: bool = False,
        allowed: Allowed = None,
        valid: Valid | None = None,
        validity: Literal["text"] | None = None,
        time_zone: str | None = None,
        show_progress: bool = True,
    ) -> SyncReport:
        """Make it equal to a folder, or to a complete list of documents.

        Sources that are new or have changed are added, others are deleted if an earlier sync of the
        same name and scope added them. Text that is stored already is not embedded again: of a file
        that was moved, or a document whose metadata changed, unless they are part of the text that
        is embedded, as the name of a file is. A restricted document that changes, or comes back
        where it was, is visible to whom it was. One that has moved fails until its metadata or
        ``allowed`` name who may see it. The whole source is compared before anything is written.
        After an interruption the same call goes on.

        Args:
            source: A folder, which is read recursively, a glob pattern such as ``"docs/**/*.md"``,
                or documents or nodes from any iterable that has all of them, as for `add`.
            name: The name under which sources are recorded; empty for the absolute path of the
                folder or pattern. Documents need one.
            scope: The tenant or knowledge base, or both, that the documents belong to.
            prune: Whether to delete sources that are gone.
            dry_run: Whether to write nothing and only report what would be done, and in ``refusal``
                why it would be refused.
            max_deletions: Share of the recorded sources that may be gone, in ``[0, 1]``; above 0,
                one may always be gone, unless it is the last. Content that was moved is not gone.
            checksum: Whether to read each file. Otherwise a file with the same size and times
                (mtime, or ctime if it is later) is unchanged.
            include: Patterns of files to read, as for `read_documents`.
            exclude: Patterns of files to skip; if they were added earlier, they are deleted.
            encoding: Encoding of texts that are not in UTF-8, as for `read_documents`.
            follow_symlinks: Whether links may lead out of the folder, as for `read_documents`.
            allowed: Who may see the documents, as for `add`; a function reads all files. For
                unchanged sources, what `share` changed later stays.
            valid: As for `add`.
            validity: As for `add`.
            time_zone: As for `add`.
            show_progress: Whether to show a progress bar on standard error.

        Returns:
            The sources by what was done.

        Raises:
            SyncRefusedError: The folder is missing, a folder in it cannot be listed, the iterable
                failed, or more than ``max_deletions`` is gone; nothing was changed.
            ConfigurationError: An argument is invalid.
            ScopeRequiredError: The knowledge base requires a scope.
            StoreUnavailableError: As for `add`.
        """
        if not isinstance(max_deletions, int | float) or not 0 <= max_deletions <= 1:
            raise ConfigurationError(
                f"max_deletions is a share between 0 and 1, got {max_deletions!r}; to delete "
                "nothing pass prune=False"
            )
        addition = self._addition(scope, allowed, Dating(valid, validity, time_zone))
        files = FilePatterns(include, exclude, encoding, follow_symlinks)
        place = Location.of(self._access.url).path
        sources = find_source(source, name, addition.scope, files, place)
        options = SyncOptions(prune, dry_run, max_deletions, checksum)
        return Sync(addition, scope, sources, options).run(show_progress=show_progress)

    # Its name would be `async`, which is a keyword.
    async_sync = _in_thread(sync)

    def share(
        self, source_or_id: str, *, allowed: Iterable[str] | None, scope: Scope | None = None
    ) -> int:
        """Change who may see a document or a source, from the next query on; embed nothing.

        Args:
            source_or_id: The path of the file, its end, or the id of a document, as for `delete`.
            allowed: The principals who may see them; None for everyone in their scope.
            scope: As for `delete`.

        Returns:
            The number of documents.

        Raises:
            ConfigurationError: ``allowed`` is empty, or not a list of names; or the scope has no
                such document or source, or several.
            StoreError: A document is incomplete in the store.
        """
        names = () if allowed is None else allowed_names(allowed)
        ledger, writer = self._storage.ledger, self._parts.writer
        with self._writing(scope):
            writer.settle()
            entries = pending = documents_named(ledger, source_or_id, scope)
            if not entries:
                raise ConfigurationError(
                    f"there is no document or source {quoted(source_or_id)} in this scope, so "
                    "nothing was shared; kb.sources() has those that there are"
                )
            if writer.history is not None:
                history = ledger.history_of(entry.key for entry in entries)
                share_documents(
                    self._storage, writer, history, {entry.key: names for entry in history}
                )
            while pending:
                principals = {entry.key: names for entry in pending}
                outcomes = share_documents(self._storage, writer, pending, principals)
                for outcome in outcomes.values():
                    if isinstance(outcome, Exception):
                        raise outcome
                # Another process has changed these: they are read again.
                outdated = [key for key, o in outcomes.items() if o is WriteOutcome.OUTDATED]
                named = documents_named(ledger, source_or_id, scope) if outdated else []
                pending = [entry for entry in named if entry.key in outdated]
            return len(entries)

    ashare = _in_thread(share)

    def set_ranking(
        self, ranking: Ranking | str | Path | None, *, scope: Scope | None = None
    ) -> Ranking:
        """Record rules for the order of hits, from the next query on; they replace earlier ones.

        They are for the nodes of the scope, and hold for each query that may see these; those
        without a scope hold for all. They hold on every engine in every mode, after all stages, and
        obey the filters and the scope of the query. Other processes on a server follow within ten
        seconds.

        Args:
            ranking: The rules; the path of a YAML file with them; or None for no rules.
            scope: Tenant or knowledge bases, or both, that they are for; without principals.

        Returns:
            The rules.

        Raises:
            ConfigFileError: The file cannot be read, or a rule in it is invalid.
            ConfigurationError: The scope has principals.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        if isinstance(ranking, str | Path):
            ranking = Ranking.load(ranking)
        rules = of_type(ranking or Ranking(), Ranking, "ranking")
        key, shown = scope_key(scope), rules.to_dict()
        with self._writing(scope):
            self._storage.ledger.record_ranking(key, json.dumps(shown) if shown else "")
            self._storage.words.rankings.forget()
        return rules

    aset_ranking = _in_thread(set_ranking)

    def delete(self, source_or_id: str, *, scope: Scope | None = None) -> int:
        """Delete a document, or all documents of a source, such as the pages of a PDF.

        Args:
            source_or_id: The path of the file, as in ``file_path`` of its nodes or relative to the
                working directory; the end of the path of one file, as searches print it; or the id
                of a document.
            scope: Delete all documents of this name that are visible to it; None for only those in
                no scope.

        Returns:
            The number of deleted documents; 0 if there is no such source or document.

        Raises:
            ConfigurationError: The name is empty, or the end of several paths, which are listed.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        with self._writing(scope):
            self._parts.writer.settle()
            return self._delete(documents_named(self._storage.ledger, source_or_id, scope))

    adelete = _in_thread(delete)

    def delete_where(self, filters: MetadataFilters, *, scope: Scope | None = None) -> int:
        """Delete the documents with a node that satisfies the filters.

        Args:
            filters: Conditions on metadata, as for a search.
            scope: Delete only documents visible to it; None for all.

        Returns:
            The number of deleted documents, each with all its nodes.

        Raises:
            InvalidFilterError: The filters are empty or malformed.
            UnsupportedFilterError: The engine cannot evaluate them.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        with self._writing(scope):
            parse_filters(filters)
            narrowed: list[MetadataFilter | MetadataFilters] = [filters, KNOWN_NOW]
            if scope is not None:
                narrowed.append(as_metadata_filters(scope.condition))
            filters = MetadataFilters(filters=narrowed)
            owners = set(map(key_of_node, self._storage.store.get_nodes(filters=filters)))
            return self._delete(self._storage.ledger.visible_of(owners, scope))

    def clear(self, *, scope: Scope | None = None) -> int:
        """Delete all documents visible to a scope; without a scope, all documents.

        Settings and collections stay; `remove` deletes them, too. If it is interrupted, some
        documents are deleted, and the others are intact.

        Returns:
            The number of deleted documents.

        Raises:
            ScopeRequiredError: The knowledge base requires a scope.
        """
        with self._writing(scope):
            gone = self._delete(self._storage.ledger.visible(scope))
            if gone and not self._storage.ledger.count()[1]:
                self.compact()
        return gone

    def compact(self) -> int:
        """Free the disk space of deleted and replaced nodes, on the embedded engine and graph.

        It copies all nodes: this needs disk space for both copies and about 0.2 ms per node. BM25
        gets the mean text length of these nodes, so call it when the texts have changed much.
        Searches continue meanwhile, and writers wait. Servers compact automatically; for the files
        of Qdrant's local mode and Milvus Lite it is a no-op.

        Returns:
            The number of bytes freed.

        Raises:
            StoreUnavailableError: There is no disk space for the copy; nothing has changed.
        """
        self._access.check_writable()
        self._access.check_open()
        self._storage.ledger.compact()
        return self._storage.compact()

    def _addition(
        self, scope: Scope | None, allowed: Allowed = None, dating: Dating = AS_IT_IS
    ) -> Addition:
        """Return a new call of `add` in a scope."""
        self._access.check(scope, to_write=True)
        return Addition(self._parts, {} if scope is None else scope.metadata(), allowed, dating)

    def _delete(self, entries: Sequence[Entry]) -> int:
        if not entries:
            self._storage.ledger.check_exists()
        self._parts.delete(entries)
        return len(entries)

    @contextmanager
    def _writing(self, scope: Scope | None) -> Generator[None]:
        """Check the scope and hold the write lock."""
        self._access.check(scope, to_write=True)
        with self._storage.lock:
            yield
