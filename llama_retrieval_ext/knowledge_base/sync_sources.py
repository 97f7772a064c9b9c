"""What a knowledge base is kept equal to: files, or a complete list of documents."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import blake2b, file_digest
from pathlib import Path
from time import sleep, time_ns
from typing import Final, NamedTuple

from llama_index.core.schema import BaseNode, MetadataMode

from llama_retrieval_ext.errors import ConfigurationError, SyncRefusedError, describe
from llama_retrieval_ext.knowledge_base.ledger.prepared import key_of_node
from llama_retrieval_ext.knowledge_base.ledger.records import SourceKey, SyncedSource
from llama_retrieval_ext.knowledge_base.preparation import grouped
from llama_retrieval_ext.knowledge_base.readers.encodings import check_encoding
from llama_retrieval_ext.knowledge_base.readers.files import (
    Reading,
    find_files,
    folder_and_pattern,
    read_files,
    source_name,
)
from llama_retrieval_ext.knowledge_base.readers.texts import DocumentList
from llama_retrieval_ext.scope import KB_KEY, TENANT_KEY, source_in
from llama_retrieval_ext.urls import expanded_path

# Two edits within a tick may get the same time. Linux counts in up to 10 ms, FAT in 2 s.
_TICK_NS: Final = 20_000_000
_COARSE_TICK_NS: Final = 2_000_000_000
_SECOND_NS: Final = 1_000_000_000
# Files and folders that are renamed while they are listed are found the next time.
_LISTINGS: Final = 5
# To be increased when the same file is read differently: all files are then read again.
_READERS: Final = 3


class State(NamedTuple):
    """How a source is recognised; fields of `SyncedSource`."""

    size: int = -1
    mtime_ns: int = -1
    content: str = ""


class Item:
    """The documents or nodes of one source in a list, or the reason why they could not be read.

    Attributes:
        key: The source.
        size: Characters, of a file bytes.
        left_out: Why a part of it could not be read; of a file only after it was read.
    """

    left_out = ""

    def __init__(self, key: SourceKey, nodes: Sequence[BaseNode], reason: str = "") -> None:
        self.key = key
        self._nodes = nodes
        self._reason = reason
        self.size = sum(len(node.get_content(MetadataMode.NONE)) for node in nodes)

    @cached_property
    def state(self) -> State:
        """Size, time and digest of its content."""
        digest = blake2b(digest_size=16)
        for node in self._nodes:
            digest.update(node.get_content(MetadataMode.NONE).encode("utf-8", "surrogatepass"))
        return State(self.size, -1, digest.hexdigest())

    def looks_like(self, recorded: SyncedSource) -> bool:  # noqa: ARG002 - of files
        """Return whether it is unchanged, as far as that is known without reading it."""
        return False

    def has_content_of(self, recorded: SyncedSource) -> bool:  # noqa: ARG002 - metadata may differ
        """Return whether its documents are unchanged because its content is."""
        return False

    def read(self) -> Sequence[BaseNode] | str:
        """Return its documents or nodes, or the reason why it cannot be read."""
        return self._reason or self._nodes


class FileItem(Item):
    """A file."""

    def __init__(self, path: Path, key: SourceKey, encoding: str) -> None:
        self.key = key
        self._path = path
        self._encoding = encoding
        self._see(path.stat())

    @cached_property
    def state(self) -> State:
        """Size, time and digest; the time is unknown if a later edit may have the same."""
        began_ns = self._began_ns
        try:
            with self._path.open("rb") as file:
                self._see(os.fstat(file.fileno()))
                content = file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
        except OSError:
            return State()
        tick_ns = _TICK_NS if self.mtime_ns % _SECOND_NS else _COARSE_TICK_NS
        is_settled = self.mtime_ns + tick_ns <= began_ns
        return State(self.size, self.mtime_ns if is_settled else -1, content)

    def looks_like(self, recorded: SyncedSource) -> bool:
        """Return whether size and time are the recorded ones."""
        return (self.size, self.mtime_ns) == (recorded.size, recorded.mtime_ns)

    def has_content_of(self, recorded: SyncedSource) -> bool:
        """Return whether the file has the recorded digest."""
        return self.state.content == recorded.content != ""

    def read(self) -> Sequence[BaseNode] | str:
        """Return the documents in the file, or the reason why it cannot be read."""
        _ = self._began_ns  # an edit from now on must be seen
        reading, seen = Reading(), (self.size, self.mtime_ns)
        documents = list(read_files([self._path], reading, self._encoding))
        state = self.state
        reason = reading.left_out.get(self._path, "")
        if not reading.files or not state.content:
            return reason or "it could not be read twice"
        self.left_out = reason
        with suppress(OSError):
            self._see(self._path.stat())
        if seen != (self.size, self.mtime_ns):  # it has changed meanwhile
            self.state = state._replace(mtime_ns=-1, content="")
        return documents

    @cached_property
    def _began_ns(self) -> int:
        """When it was first read."""
        return time_ns()

    def _see(self, status: os.stat_result) -> None:
        # A file that replaces another may be as long and as old; a rename changes only ctime.
        self.size, self.mtime_ns = status.st_size, max(status.st_mtime_ns, status.st_ctime_ns)


@dataclass(frozen=True)
class Source:
    """What a knowledge base is made equal to."""

    name: str
    items: Mapping[SourceKey, Item]
    left_out: Mapping[str, str] = field(default_factory=dict)  # files that are not in `items`
    settings: str = ""  # on which the documents depend besides their content
    listed: AbstractSet[SourceKey] = frozenset()  # files and folders, also those that vanished
    again: "Callable[[], Source] | None" = None  # lists files again

    def confirmed(self, recorded: Iterable[SourceKey]) -> "Source":
        """Return what is there if what is missing was missing twice; raise if that changes.

        A file that is renamed while files are listed may be in none of the folders when they are.
        """
        source, seen = self, {*recorded}
        for _ in range(_LISTINGS):
            seen |= source.listed
            missing = seen - source.items.keys()
            if self.again is None or not missing:
                return source
            source = self.again()
            if (seen | source.listed) - source.items.keys() == missing:
                return source
        raise SyncRefusedError(
            f"files in {self.name} keep being renamed or deleted, so that some may be missing; "
            "nothing was changed. Sync again when they stay, or exclude them"
        )


@dataclass(frozen=True, slots=True)
class FilePatterns:
    """Which files of a folder are read, and how; as for `read_documents`."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    encoding: str = ""
    follow_symlinks: bool = False


def find_source(
    given: str | Path | Iterable[object],
    name: str,
    scope: Mapping[str, str],
    options: FilePatterns,
    kb_folder: Path | None,
) -> Source:
    """Return the files or documents that are there now; raise if some may be missing."""
    place = scope.get(TENANT_KEY, ""), scope.get(KB_KEY, "")
    if not isinstance(given, str | Path):
        if options != FilePatterns():
            raise ConfigurationError(
                "include, exclude, encoding and follow_symlinks are for a folder; pass them to the "
                "reader of the documents"
            )
        return _source_of_documents(given, name, scope, place)
    if not str(given):
        raise ConfigurationError("the source is empty: pass a folder, a file or a glob pattern")
    try:
        source = _source_of_files(expanded_path(given), name, place, options, kb_folder)
    except OSError as error:
        raise SyncRefusedError(f"{given} cannot be read ({error}); nothing was changed") from error
    again = partial(find_source, given, name, scope, options, kb_folder)
    return replace(source, again=again)


def _source_of_files(
    path: Path, name: str, place: tuple[str, str], options: FilePatterns, kb_folder: Path | None
) -> Source:
    folder, pattern = folder_and_pattern(path)
    if not folder.exists():
        raise SyncRefusedError(
            f"there is no {folder}; nothing was changed. If all its documents are to be deleted, "
            "sync an empty folder under its name, with max_deletions=1"
        )
    check_encoding(options.encoding)
    reading = Reading()
    files = find_files(
        path,
        reading,
        include=options.include,
        exclude=options.exclude,
        leave_out=kb_folder,
        follow_symlinks=options.follow_symlinks,
    )
    unlisted = sorted(map(str, reading.unlisted & reading.left_out.keys()))
    if unlisted:
        raise SyncRefusedError(
            f"{', '.join(unlisted)} cannot be listed, so that files may be missing; nothing was "
            "changed. Make it readable, or exclude it"
        )
    items: dict[SourceKey, FileItem] = {}
    for file in files:
        with suppress(FileNotFoundError):  # renamed or deleted meanwhile
            key = SourceKey(*place, source_name(file))
            items[key] = FileItem(file, key, options.encoding)
    age_ns = time_ns() - max((file.mtime_ns for file in items.values()), default=0)
    if 0 <= age_ns < _TICK_NS:  # a later edit must have another time than the newest file
        sleep((_TICK_NS - age_ns) / _SECOND_NS)
    return Source(
        name or str(folder.resolve().joinpath(*(pattern if folder != path else ()))),
        items,
        {source_name(file): reason for file, reason in reading.left_out.items()},
        f"{_READERS} {options.encoding}",
        {SourceKey(*place, source_name(file)) for file in [*files, *reading.unlisted]},
    )


def _source_of_documents(
    given: Iterable[object], name: str, scope: Mapping[str, str], place: tuple[str, str]
) -> Source:
    if not name:
        raise ConfigurationError(
            "documents need name=..., such as 'wiki': what came under it is deleted when it is gone"
        )
    left_out = given.left_out if isinstance(given, DocumentList) else {}
    members: dict[SourceKey, list[BaseNode]] = {}
    for group in grouped(_complete(given)):
        tenant, kb, ref = key_of_node(group[0], scope)
        key = SourceKey(tenant, kb, source_in(group[0].metadata) or ref)
        members.setdefault(key, []).extend(group)
    items = {key: Item(key, nodes) for key, nodes in members.items()}
    for file, reason in left_out.items():  # its documents stay
        key = SourceKey(*place, source_name(Path(file)))
        if key in items:
            items[key].left_out = reason
        else:
            items[key] = Item(key, [], reason)
    return Source(name, items)


def _complete(given: Iterable[object]) -> Iterable[object]:
    """Return all documents as a list; raise if their source fails."""
    if not isinstance(given, Iterable) or isinstance(given, BaseNode):
        return given  # which `grouped` rejects
    try:
        return list(given)
    except Exception as error:
        raise SyncRefusedError(
            f"the documents are not complete, their source failed ({describe(error)}); nothing was "
            "changed"
        ) from error
