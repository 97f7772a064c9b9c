"""What a knowledge base is kept equal to: files, or a complete list of documents."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b, file_digest
from pathlib import Path
from time import sleep, time_ns
from typing import Final, NamedTuple, Protocol

from llama_index.core.schema import BaseNode, MetadataMode

from llama_retrieval_ext.errors import ConfigurationError, SyncRefusedError, describe
from llama_retrieval_ext.knowledge_base.changes import grouped
from llama_retrieval_ext.knowledge_base.ledger.ledger import SourceKey, SyncedSource
from llama_retrieval_ext.knowledge_base.ledger.prepared import key_of_node
from llama_retrieval_ext.knowledge_base.readers.files import (
    DocumentList,
    Reading,
    find_files,
    folder_and_pattern,
    read_files,
)
from llama_retrieval_ext.knowledge_base.readers.formats import check_encoding
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY, source_in
from llama_retrieval_ext.urls import expanded_path

# Two edits within a tick may get the same time. Linux counts in up to 10 ms, FAT in 2 s.
_TICK_NS: Final = 20_000_000
_COARSE_TICK_NS: Final = 2_000_000_000
_SECOND_NS: Final = 1_000_000_000
# To be increased when the same file is read differently: all files are then read again.
_READERS: Final = 1


class State(NamedTuple):
    """How a source is recognised; the fields of `SyncedSource`."""

    size: int = -1
    mtime_ns: int = -1
    content: str = ""


_UNKNOWN: Final = State()


class Found(Protocol):
    """A file, or the documents of one source, as they are now."""

    @property
    def key(self) -> SourceKey:
        """Its identity."""
        ...

    @property
    def size(self) -> int:
        """Bytes of a file, or characters of documents; equal if the content is."""
        ...

    @property
    def state(self) -> State:
        """Size, time and digest; unknown if it cannot be read."""
        ...

    def looks_like(self, recorded: SyncedSource) -> bool:
        """Return whether it is recognised as unchanged without reading it."""
        ...

    def has_content_of(self, recorded: SyncedSource) -> bool:
        """Return whether its content is the recorded one, so that its documents are, too."""
        ...

    def read(self) -> list[BaseNode] | str:
        """Return its documents or nodes, or the reason why it cannot be read."""
        ...


class FoundFile:
    """A file of a folder."""

    def __init__(self, path: Path, key: SourceKey, status: os.stat_result, encoding: str) -> None:
        self.key = key
        self.size = status.st_size
        self.mtime_ns = status.st_mtime_ns
        self._path = path
        self._encoding = encoding

    @cached_property
    def state(self) -> State:
        """Size, time and digest; the time is unknown if a later edit may have the same."""
        began_ns = self._began_ns
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                content = file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
        except OSError:
            return _UNKNOWN
        self.size, self.mtime_ns = status.st_size, status.st_mtime_ns
        is_settled = self.mtime_ns + _tick_ns(self.mtime_ns) <= began_ns
        return State(self.size, self.mtime_ns if is_settled else -1, content)

    def looks_like(self, recorded: SyncedSource) -> bool:
        """Return whether size and time are the recorded ones."""
        return (self.size, self.mtime_ns) == (recorded.size, recorded.mtime_ns)

    def has_content_of(self, recorded: SyncedSource) -> bool:
        """Return whether the file has the recorded digest."""
        return self.state.content == recorded.content != ""

    def read(self) -> list[BaseNode] | str:
        """Return the documents in the file, or the reason why it cannot be read."""
        _ = self._began_ns  # an edit from now on must be seen
        reading, seen = Reading(), (self.size, self.mtime_ns)
        documents = list(read_files([self._path], reading, self._encoding))
        if reading.left_out:
            return reading.left_out[self._path]
        state = self.state
        if not self._is_still(seen):
            self.state = state._replace(mtime_ns=-1, content="")  # changed while it was read
        return [*documents]

    @cached_property
    def _began_ns(self) -> int:
        """When it was first read."""
        return time_ns()

    def _is_still(self, seen: tuple[int, int]) -> bool:
        """Return whether the file had and has this size and time."""
        try:
            status = self._path.stat()
        except OSError:
            return False
        return (self.size, self.mtime_ns) == seen == (status.st_size, status.st_mtime_ns)


def _tick_ns(mtime_ns: int) -> int:
    return _TICK_NS if mtime_ns % _SECOND_NS else _COARSE_TICK_NS


class FoundDocuments:
    """The documents or nodes of one source in a list."""

    def __init__(self, key: SourceKey, nodes: list[BaseNode]) -> None:
        self.key = key
        self._nodes = nodes

    @cached_property
    def size(self) -> int:
        """The length of the text."""
        return sum(len(node.get_content(MetadataMode.NONE)) for node in self._nodes)

    @cached_property
    def state(self) -> State:
        """Length and digest of the text."""
        digest = blake2b(digest_size=16)
        for node in self._nodes:
            digest.update(node.get_content(MetadataMode.NONE).encode("utf-8", "surrogatepass"))
        return State(self.size, -1, digest.hexdigest())

    def looks_like(self, recorded: SyncedSource) -> bool:  # noqa: ARG002 - metadata may differ
        """Return False: documents are compared one by one."""
        return False

    has_content_of = looks_like

    def read(self) -> list[BaseNode] | str:
        """Return the documents or nodes."""
        return self._nodes


@dataclass(frozen=True)
class LeftOut:
    """A file of a list of documents that could not be read; its documents stay."""

    key: SourceKey
    reason: str
    size: int = -1
    state: State = _UNKNOWN

    def looks_like(self, recorded: SyncedSource) -> bool:  # noqa: ARG002 - it is unknown
        """Return False: it is unknown."""
        return False

    has_content_of = looks_like

    def read(self) -> list[BaseNode] | str:
        """Return the reason why it could not be read."""
        return self.reason


@dataclass(frozen=True)
class Source:
    """What a knowledge base is made equal to."""

    name: str
    found: Mapping[SourceKey, Found]
    left_out: Mapping[str, str] = field(default_factory=dict)  # files that are not in `found`
    settings: str = ""  # on which the documents depend besides their content


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Which files of a folder are read, and how; as for `read_documents`."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    encoding: str = ""
    follow_symlinks: bool = False
    leave_out: Path | None = None  # the folder of the knowledge base


def find_source(
    given: str | Path | Iterable[object], name: str, scope: Mapping[str, str], options: FileOptions
) -> Source:
    """Return the files or documents that are there now; raise if some may be missing."""
    if not isinstance(given, str | Path):
        return _source_of_documents(given, name, scope, options)
    if not str(given):
        raise ConfigurationError("the source is empty: pass a folder, a file or a glob pattern")
    try:
        return _source_of_files(expanded_path(given), name, scope, options)
    except OSError as error:
        raise SyncRefusedError(f"{given} cannot be read ({error}); nothing was changed") from error


def _source_of_files(
    path: Path, name: str, scope: Mapping[str, str], options: FileOptions
) -> Source:
    folder, pattern = folder_and_pattern(path)
    if not folder.exists():
        raise SyncRefusedError(
            f"there is no {folder}; nothing was changed. If all its documents are to be deleted, "
            "sync an empty folder under its name, with max_deletions=1"
        )
    reading = Reading()
    check_encoding(options.encoding)
    files = find_files(
        path,
        reading,
        include=options.include,
        exclude=options.exclude,
        leave_out=options.leave_out,
        follow_symlinks=options.follow_symlinks,
    )
    if reading.unlisted:
        raise SyncRefusedError(
            f"{', '.join(map(str, sorted(reading.unlisted)))} cannot be listed, so that files may "
            "be missing; nothing was changed. Make it readable, or exclude it"
        )
    place = scope.get(TENANT_KEY, ""), scope.get(KB_KEY, "")
    found: dict[SourceKey, FoundFile] = {}
    for file in files:
        with suppress(FileNotFoundError):  # deleted meanwhile
            key = SourceKey(*place, str(file))
            found[key] = FoundFile(file, key, file.stat(), options.encoding)
    _wait_for_tick(max((each.mtime_ns for each in found.values()), default=0))
    left_out = {str(file): reason for file, reason in reading.left_out.items()}
    where = folder.resolve() if folder == path else folder.resolve().joinpath(*pattern)
    return Source(name or str(where), found, left_out, f"{_READERS} {options.encoding}")


def _wait_for_tick(newest_ns: int) -> None:
    """Wait until a later edit has another time than the newest file, if that is soon."""
    age_ns = time_ns() - newest_ns
    if 0 <= age_ns < _TICK_NS:
        sleep((_TICK_NS - age_ns) / _SECOND_NS)


def _source_of_documents(
    given: Iterable[object], name: str, scope: Mapping[str, str], options: FileOptions
) -> Source:
    if not name:
        raise ConfigurationError(
            "documents need name=..., such as 'wiki': what came under it is deleted when it is gone"
        )
    if options != FileOptions(leave_out=options.leave_out):
        raise ConfigurationError(
            "include, exclude, encoding and follow_symlinks are for a folder; pass them to the "
            "reader of the documents"
        )
    left_out = given.left_out if isinstance(given, DocumentList) else {}
    members: dict[SourceKey, list[BaseNode]] = {}
    for group in grouped(_complete(given)):
        tenant, kb, ref = key_of_node(group[0], scope)
        key = SourceKey(tenant, kb, source_in(group[0].metadata) or ref)
        members.setdefault(key, []).extend(group)
    found: dict[SourceKey, Found] = {key: FoundDocuments(key, own) for key, own in members.items()}
    place = scope.get(TENANT_KEY, ""), scope.get(KB_KEY, "")
    for file, reason in left_out.items():
        key = SourceKey(*place, str(file))
        found[key] = LeftOut(key, reason)
    return Source(name, found)


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
