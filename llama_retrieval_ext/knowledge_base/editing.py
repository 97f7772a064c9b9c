"""`Editable`: the methods of a knowledge base that add, share and delete documents."""

import asyncio
from collections.abc import Iterable

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.knowledge_base.changes import Changes
from llama_retrieval_ext.knowledge_base.documents import Allowed
from llama_retrieval_ext.knowledge_base.report import IngestionReport
from llama_retrieval_ext.query import Scope


class Editable:
    """The methods of a knowledge base that add, share and delete documents."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def add(
        self,
        documents: Iterable[BaseNode],
        *,
        scope: Scope | None = None,
        allowed: Allowed = None,
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
        addition = self._changes.addition(scope, allowed)
        return addition.run(documents, show_progress=show_progress)

    async def aadd(
        self,
        documents: Iterable[BaseNode],
        *,
        scope: Scope | None = None,
        allowed: Allowed = None,
        show_progress: bool = True,
    ) -> IngestionReport:
        """Run `add` in a thread."""
        return await asyncio.to_thread(
            self.add, documents, scope=scope, allowed=allowed, show_progress=show_progress
        )

    def share(
        self, source_or_id: str, *, allowed: Iterable[str] | None, scope: Scope | None = None
    ) -> int:
        """Change who may see a document or a source, from the next query on; embed nothing.

        Args:
            source_or_id: The path of the file or the id of a document, as for `delete`.
            allowed: The principals who may see them; None for everyone in their scope.
            scope: As for `delete`.

        Returns:
            The number of documents.

        Raises:
            ConfigurationError: ``allowed`` is empty, or not a list of names.
            StoreError: A document is incomplete in the store.
        """
        return self._changes.share(source_or_id, allowed, scope)

    async def ashare(
        self, source_or_id: str, *, allowed: Iterable[str] | None, scope: Scope | None = None
    ) -> int:
        """Run `share` in a thread."""
        return await asyncio.to_thread(self.share, source_or_id, allowed=allowed, scope=scope)

    def delete(self, source_or_id: str, *, scope: Scope | None = None) -> int:
        """Delete a document, or all documents of a source, such as the pages of a PDF.

        Args:
            source_or_id: The path of the file, as in ``file_path`` of its nodes or relative to the
                working directory, or the id of a document.
            scope: Delete all documents of this name that are visible to it; None for only those in
                no scope.

        Returns:
            The number of deleted documents; 0 if there is no such source or document.

        Raises:
            ConfigurationError: The name is empty.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        return self._changes.delete(source_or_id, scope)

    async def adelete(self, source_or_id: str, *, scope: Scope | None = None) -> int:
        """Run `delete` in a thread."""
        return await asyncio.to_thread(self.delete, source_or_id, scope=scope)

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
        return self._changes.delete_where(filters, scope)

    def clear(self, *, scope: Scope | None = None) -> int:
        """Delete all documents visible to a scope; without a scope, all documents.

        Settings and collections stay; `remove` deletes them, too. If it is interrupted, some
        documents are deleted, and the others are intact.

        Returns:
            The number of deleted documents.

        Raises:
            ScopeRequiredError: The knowledge base requires a scope.
        """
        return self._changes.clear(scope)
