"""`Syncable`: the method of a knowledge base that makes it equal to a source."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.changes import Changes
from llama_retrieval_ext.knowledge_base.documents import Allowed
from llama_retrieval_ext.knowledge_base.report import SyncReport
from llama_retrieval_ext.knowledge_base.sync import Sync, SyncOptions
from llama_retrieval_ext.knowledge_base.sync_sources import FileOptions, find_source
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.urls import Location

P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(method: Callable[P, T]) -> Callable[P, Coroutine[object, object, T]]:
    """Return the async twin of a method."""

    @wraps(method)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, *args, **kwargs)

    return run


class Syncable:
    """The method of a knowledge base that makes it equal to a source."""

    def __init__(self, url: str, changes: Changes) -> None:
        self._folder = Location.of(url).path
        self._changes = changes

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
        show_progress: bool = True,
    ) -> SyncReport:
        """Make it equal to a folder, or to a complete list of documents.

        Sources that are new or have changed are added, others are deleted if an earlier sync of the
        same name and scope added them. Text that is stored already is not embedded again: of a file
        that was moved, or a document whose metadata changed, unless they are part of the text that
        is embedded, as the name of a file is. The whole source is compared before anything is
        written. After an interruption the same call goes on.

        Args:
            source: A folder, which is read recursively, a glob pattern such as ``"docs/**/*.md"``,
                or documents or nodes from any iterable that has all of them, as for `add`.
            name: The name under which sources are recorded; empty for the absolute path of the
                folder or pattern. Documents need one.
            scope: The tenant or knowledge base, or both, that the documents belong to.
            prune: Whether to delete sources that are gone.
            dry_run: Whether to write nothing and only report what would be done, and in ``refusal``
                why it would be refused.
            max_deletions: Share of the recorded sources that may be gone, in ``[0, 1]``. Content
                that was moved is not gone.
            checksum: Whether to read each file. Otherwise a file with the same size and time of
                modification is unchanged.
            include: Patterns of files to read, as for `read_documents`.
            exclude: Patterns of files to skip; if they were added earlier, they are deleted.
            encoding: Encoding of texts that are not in UTF-8, as for `read_documents`.
            follow_symlinks: Whether links may lead out of the folder, as for `read_documents`.
            allowed: Who may see the documents, as for `add`; a function reads all files. For
                unchanged sources, what `share` changed later stays.
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
        addition = self._changes.addition(scope, allowed)
        files = FileOptions(include, exclude, encoding, follow_symlinks)
        found = find_source(source, name, addition.scope, files, self._folder)
        options = SyncOptions(prune, dry_run, max_deletions, checksum)
        return Sync(addition, scope, found, options).run(show_progress=show_progress)

    # Its name would be `async`, which is a keyword.
    async_sync = _in_thread(sync)
