"""`read_documents`: a user's files as documents with stable ids."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from glob import has_magic
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from llama_index.core.schema import Document

from llama_retrieval_ext.checks import checked_call
from llama_retrieval_ext.errors import (
    ConfigurationError,
    MissingDependencyError,
    RetrievalExtError,
    describe,
)
from llama_retrieval_ext.knowledge_base.readers.encodings import check_encoding
from llama_retrieval_ext.knowledge_base.readers.formats import is_one_text, read_file
from llama_retrieval_ext.knowledge_base.readers.texts import NO_TEXT, DocumentList
from llama_retrieval_ext.scope import PAGE_KEY, SOURCE_KEY
from llama_retrieval_ext.text.normalization import composed, spellings
from llama_retrieval_ext.urls import expanded_path, is_loop

# Between the path of a file and the number of its document, in the id of it.
PART: Final = "_part_"
_ANYWHERE: Final = "**"
_LINK_TO_NOTHING: Final = "it is a symbolic link to a file that does not exist"
_LOOP: Final = "it is a loop of symbolic links"
_NO_FILE: Final = "it is not a regular file"


@checked_call
def read_documents(
    paths: str | Path | Iterable[str | Path],
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    encoding: str = "",
    follow_symlinks: bool = False,
) -> DocumentList:
    r"""Return files as documents with stable ids, which `KnowledgeBase.add` recognises.

    A PDF gives one document per page, PPTX and ODP per slide, EPUB per chapter, CSV, TSV and XLSX
    per row, a mail (EML) one and those of its attachments; DOCX, ODT, HTML, RTF, notebooks and text
    (Markdown, code and any other text whose encoding is certain) one per file. DOC, PPT, XLS and
    ODS are read, too. Ids are made from absolute paths, in composed letters (NFC). The metadata
    have ``file_path``, which is the source of all documents of a file, and ``file_name``; pages and
    slides have ``page``. PDF, office files, RTF and HTML need the extra ``quickstart``.

    Args:
        paths: A file, a folder, which is read recursively, a glob pattern such as
            ``"docs/**/*.md"``, or several of these. Hidden files in folders are skipped.
        include: Patterns such as ``"*.md"`` or ``"manuals/*"``. In folders and glob patterns, only
            files whose name or path within the folder matches one are read. Empty for all.
        exclude: Patterns of the same form; files that match one, or are in a folder whose name
            matches, are not read.
        encoding: Encoding of texts that are not in UTF-8, such as ``"latin-1"`` or ``"cp1252"``;
            empty to read those whose encoding is certain, such as UTF-16, and leave out others.
        follow_symlinks: Whether a symbolic link in a folder may lead to a file outside of it; such
            files are left out otherwise.

    Returns:
        A list of documents, in the order of the paths, with an attribute ``left_out``: the reason
        for each file that could not be read, or of which a part could not, such as pages of a PDF
        that are pictures. Documents without text are included; `add` skips them; a file of only
        such documents is in ``left_out``, too.

    Raises:
        ConfigurationError: An argument is not a path, not a list of patterns, or no encoding.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "leave.md").write_text("Annual leave: 25 days.")
        >>> _ = (folder / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00")
        >>> documents = read_documents(folder)
        >>> [document.text for document in documents]
        ['Annual leave: 25 days.']
        >>> list(documents.left_out.values())
        ['this kind of file is not supported: .png']

    """
    reading = iter_documents(
        paths, include=include, exclude=exclude, encoding=encoding, follow_symlinks=follow_symlinks
    )
    return DocumentList(list(reading.documents), reading.left_out)


@dataclass
class Reading:
    """Documents from files, which are read during iteration.

    Attributes:
        documents: The documents; can be iterated once.
        left_out: Reasons why files, or parts of those in `files`, could not be read, by their path.
        unlisted: Folders whose files could not be listed.
        files: Files that were read.
        ids: Ids of the documents.
    """

    documents: Iterable[Document] = ()
    left_out: dict[Path, str] = field(default_factory=dict)
    unlisted: set[Path] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)

    def finds_any(self) -> bool:
        """Return whether there is a document; read only up to the first."""
        documents = iter(self.documents)
        first = list(islice(documents, 1))
        self.documents = chain(first, documents)
        return bool(first)

    def outdated(self, ids: Iterable[str]) -> list[str]:
        """Return the ids of parts that their files no longer contain."""
        return [id_ for id_ in ids if id_ not in self.ids and id_.rpartition(PART)[0] in self.files]


def iter_documents(
    paths: str | Path | Iterable[str | Path],
    *,
    encoding: str = "",
    watched: Callable[[list[Path]], Iterable[Path]] = iter,
    **selection: Any,  # noqa: ANN401 - the arguments of `find_files`
) -> Reading:
    """Return the documents of `read_documents`, read lazily file by file.

    `watched` wraps the files while they are read, for a progress bar.
    """
    reading = Reading()
    check_encoding(encoding)
    files = find_files(paths, reading, **selection)
    reading.documents = read_files(watched(files), reading, encoding)
    return reading


def find_files(
    paths: str | Path | Iterable[str | Path],
    reading: Reading,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    leave_out: Path | None = None,
    follow_symlinks: bool = False,
) -> list[Path]:
    """Return the files that `iter_documents` reads, each once; record patterns without files.

    The folder `leave_out`, such as that of the knowledge base, is skipped.
    """
    patterns = (_patterns(include, "include"), _patterns(exclude, "exclude"))
    selection = _Selection(*patterns, leave_out, follow_symlinks)
    files = dict.fromkeys(_files(_as_paths(paths), selection, reading))
    unnamed = [file for file in files if str(file).encode("utf-8", "ignore").decode() != str(file)]
    reading.left_out |= dict.fromkeys(unnamed, "its path is not text in UTF-8; rename it")
    return [file for file in files if file not in reading.left_out]


@dataclass(frozen=True)
class _Selection:
    """Selects the files of a folder."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    leave_out: Path | None
    follow_symlinks: bool

    def enters(self, entry: os.DirEntry[str]) -> bool:
        """Return whether to look at a file or into a folder."""
        if entry.name.startswith("."):
            return False
        if self.leave_out is not None and Path(entry) == self.leave_out:
            return False
        return not any(fnmatch(composed(entry.name), composed(pattern)) for pattern in self.exclude)

    def takes(self, path: Path, folder: Path) -> bool:
        """Return whether to read a file; patterns match its path in the folder."""
        if not (self.include or self.exclude):
            return True
        file = path.relative_to(folder)
        if self.include and not _matches(file, self.include):
            return False
        return not _matches(file, self.exclude)


def _matches(file: Path, patterns: Iterable[str]) -> bool:
    names = composed(file.name), composed(file.as_posix())
    return any(fnmatch(name, composed(pattern)) for pattern in patterns for name in names)


def _as_paths(paths: object) -> list[str | Path]:
    several = [paths] if isinstance(paths, str | Path) else paths
    if not isinstance(several, Iterable):
        raise ConfigurationError(f"paths must be files and folders, got {paths!r}")
    paths = list(several)
    for path in paths:
        if not isinstance(path, str | Path) or not str(path):
            raise ConfigurationError(f"a path is a string or a Path, got {path!r}")
    return paths


def _patterns(patterns: object, name: str) -> tuple[str, ...]:
    if isinstance(patterns, str) or not isinstance(patterns, Iterable):
        raise ConfigurationError(
            f"{name} must be a list of patterns, got {patterns!r}: write [...]"
        )
    return tuple(patterns)


def folder_and_pattern(path: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the folder that a path names, and the parts of its glob pattern; none for a file."""
    if path.is_dir():
        return path, ("**", "*")
    if path.exists() or not has_magic(str(path)):
        return path, ()
    first = next(place for place, part in enumerate(path.parts) if has_magic(part))
    return Path(*path.parts[:first]), path.parts[first:]


def _files(paths: Iterable[str | Path], selection: _Selection, reading: Reading) -> Iterator[Path]:
    for given in paths:
        path = expanded_path(given)
        folder, pattern = folder_and_pattern(path)
        if pattern:
            files = list(_found(folder.resolve(), pattern, selection, reading))
            if not files and folder != path:
                reading.left_out[path] = "no file matches this pattern"
            yield from files
        elif is_loop(path):
            reading.left_out[path] = _LOOP
        else:
            yield path.resolve()


def _found(
    folder: Path, pattern: tuple[str, ...], selection: _Selection, reading: Reading
) -> Iterator[Path]:
    """Yield the files in a folder that match a glob pattern; record folders that have no list."""
    if selection.leave_out is not None and folder.is_relative_to(selection.leave_out):
        return
    for file, is_linked in _walk(folder, {pattern}, selection, reading):
        if not selection.takes(file, folder):
            continue
        if selection.follow_symlinks or not is_linked or file.resolve().is_relative_to(folder):
            yield file
        else:
            reason = "a symbolic link leads out of the folder; follow_symlinks reads it"
            reading.left_out[file] = reason


def _walk(
    folder: Path, patterns: set[tuple[str, ...]], selection: _Selection, reading: Reading
) -> Iterator[tuple[Path, bool]]:
    """Yield files with whether a symbolic link leads to them; ``**`` does not follow any."""
    anywhere = {pattern for pattern in patterns if pattern[0] == _ANYWHERE}
    here = patterns - anywhere | {path[1:] for path in anywhere if path[1:]}
    for entry in _entries(folder, reading):
        if not selection.enters(entry):
            continue
        is_linked = entry.is_symlink()
        left = {place[1:] for place in here if fnmatch(composed(entry.name), composed(place[0]))}
        path = Path(entry)
        if path.is_dir() if is_linked else entry.is_dir():
            below = (left if is_linked else left | anywhere) - {()}
            for file, is_below_link in _walk(path, below, selection, reading) if below else ():
                yield file, is_linked or is_below_link
        elif () in left and (path.is_file() if is_linked else entry.is_file()):
            yield path, is_linked
        elif () in left:
            reason = _LOOP if is_loop(path) else _LINK_TO_NOTHING
            reading.left_out[path] = reason if is_linked else _NO_FILE


def _entries(folder: Path, reading: Reading) -> list[os.DirEntry[str]]:
    """Return the files and folders in a folder by name; record a folder that cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        reading.unlisted.add(folder)
        if not isinstance(error, FileNotFoundError):  # deleted meanwhile
            reading.left_out[folder] = f"this folder cannot be listed: {error.strerror}"
        return []


def read_files(files: Iterable[Path], reading: Reading, encoding: str = "") -> Iterator[Document]:
    """Yield the documents in files; record files that cannot be read."""
    for file in files:
        suffix = file.suffix.lower()
        try:
            documents = _read(file, encoding)
        except ImportError:
            reading.left_out[file] = str(
                MissingDependencyError(f"reading {suffix} files", "quickstart")
            )
            continue
        except Exception as error:  # noqa: BLE001 - whatever a reader trips over is in this file
            reading.left_out[file] = _reason(error)
            continue
        if not any(document.text.strip() for document in documents):
            reading.left_out[file] = NO_TEXT
        reading.left_out |= getattr(documents, "left_out", {})  # parts of the file
        reading.files.add(source_name(file))
        reading.ids.update(document.doc_id for document in documents)
        yield from documents


def source_name(file: Path) -> str:
    """Return the path of a file as stored: composed (NFC), as systems differ in what they write.

    Of several files whose names differ by this only, the others keep theirs.
    """
    for form in spellings(str(file))[1:]:
        with suppress(OSError):  # there is none
            if not Path(form).samefile(file):
                return str(file)
    return composed(str(file))


def _read(file: Path, encoding: str) -> list[Document]:
    # No dates: a copied or touched file would count as changed.
    source, suffix = source_name(file), file.suffix.lower()
    metadata = {SOURCE_KEY: source, "file_name": Path(source).name}
    if file.exists() and not file.is_file():
        raise ConfigurationError(_NO_FILE)
    documents, is_whole = read_file(file, encoding), is_one_text(suffix)
    for part, document in enumerate(documents):
        document.metadata = {**metadata, **document.metadata}
        document.id_ = source if is_whole else f"{source}{PART}{part}"
        # Names and titles help retrieval; folders and page numbers add noise.
        document.excluded_embed_metadata_keys = [SOURCE_KEY, PAGE_KEY]
    return documents


def _reason(error: BaseException) -> str:
    """Return the message of the first cause, as readers wrap errors, up to one of this package."""
    while error.__cause__ is not None and not isinstance(error, RetrievalExtError):
        error = error.__cause__
    if isinstance(error, RetrievalExtError):
        return str(error)
    return "it does not exist" if isinstance(error, FileNotFoundError) else describe(error)
