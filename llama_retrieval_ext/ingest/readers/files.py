"""`read_documents`: a user's files as documents with lasting ids.

Not through LlamaIndex's ``SimpleDirectoryReader``: it makes up random ids, reads a PDF as if it
were text where the readers' package is missing, and takes every file in a hidden folder for hidden.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from glob import has_magic
from itertools import chain, islice
from pathlib import Path
from typing import Final

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_retrieval_ext.errors import ConfigurationError, RetrievalExtError
from llama_retrieval_ext.ingest.readers.formats import TextReader, missing_reader, reader_for

_PART: Final = "_part_"


class DocumentList(list[Document]):
    """The documents that `read_documents` returns.

    Attributes:
        left_out: Why files could not be read, by their path.
    """

    def __init__(self, documents: Iterable[Document], left_out: dict[Path, str]) -> None:
        super().__init__(documents)
        self.left_out = left_out


def read_documents(
    paths: str | Path | Iterable[str | Path],
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> DocumentList:
    r"""Read files as documents that `KnowledgeBase.add` recognises when they are added again.

    PDF gives a document for each page, PPTX for each slide, CSV and XLSX for each row; DOCX, HTML
    and text (Markdown, code, whatever else is text in UTF-8, UTF-16 or GB18030) one for each file.
    Ids are made from absolute paths. The metadata have ``file_path``, which is the source of all
    documents of a file, and ``file_name``; pages have ``page_label``. PDF, PPTX, XLSX, DOCX and
    HTML need the extra ``quickstart``.

    Args:
        paths: A file, a folder, which is read with the folders inside, a glob pattern such as
            ``"docs/**/*.md"``, or several of these. Hidden files in folders are skipped.
        include: Patterns such as ``"*.md"`` or ``"manuals/*"``; of folders and glob patterns only
            files are read whose name, or path within the folder, matches one. Empty for all.
        exclude: Patterns likewise; files that match one, or lie in a folder whose name does, are
            not read.

    Returns:
        A list of documents, in the order of the paths, with an attribute ``left_out``: the reason
        for each file that could not be read. Documents without text are among them; `add` skips
        these.

    Raises:
        ConfigurationError: An argument is no path, or no list of patterns.

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
    reading = iter_documents(paths, include=include, exclude=exclude)
    return DocumentList(list(reading.documents), reading.left_out)


@dataclass
class Reading:
    """Documents from files, which are read while the documents are iterated over.

    Attributes:
        documents: The documents. Once.
        left_out: Why files could not be read, by their path.
        files: The others.
        ids: Of the documents.
    """

    documents: Iterable[Document] = ()
    left_out: dict[Path, str] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)

    def finds_any(self) -> bool:
        """Return whether there is a document; reads up to the first."""
        documents = iter(self.documents)
        first = list(islice(documents, 1))
        self.documents = chain(first, documents)
        return bool(first)

    def outdated(self, ids: Iterable[str]) -> list[str]:
        """Return those ids that are parts which their files no longer have."""
        return [
            id_ for id_ in ids if id_ not in self.ids and id_.rpartition(_PART)[0] in self.files
        ]


def iter_documents(
    paths: str | Path | Iterable[str | Path],
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    leave_out: Path | None = None,
    watched: Callable[[list[Path]], Iterable[Path]] = iter,
) -> Reading:
    """`read_documents`, file by file.

    Args:
        paths: As for `read_documents`.
        include: As for `read_documents`.
        exclude: As for `read_documents`.
        leave_out: A folder to skip, such as that of the knowledge base.
        watched: Wraps the files while they are read, for a progress bar.

    Raises:
        ConfigurationError: An argument is no path, or no list of patterns.
    """
    reading = Reading()
    files = find_files(paths, reading, include=include, exclude=exclude, leave_out=leave_out)
    reading.documents = read_files(watched(files), reading)
    return reading


def find_files(
    paths: str | Path | Iterable[str | Path],
    reading: Reading,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    leave_out: Path | None = None,
) -> list[Path]:
    """Return the files that `iter_documents` reads, each once; note patterns without any."""
    selection = _Selection(_patterns(include, "include"), _patterns(exclude, "exclude"), leave_out)
    return list(dict.fromkeys(_files(_as_paths(paths), selection, reading.left_out)))


@dataclass(frozen=True)
class _Selection:
    """Which files of a folder are read."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    leave_out: Path | None

    def takes(self, file: Path, folder: Path) -> bool:
        """Whether a file is read; its path is relative to the folder."""
        if any(part.startswith(".") for part in file.parts):
            return False
        if self.leave_out is not None and (folder / file).is_relative_to(self.leave_out):
            return False
        if self.include and not _matches(file, self.include):
            return False
        in_excluded = any(fnmatch(name, each) for name in file.parts[:-1] for each in self.exclude)
        return not in_excluded and not _matches(file, self.exclude)


def _matches(file: Path, patterns: Iterable[str]) -> bool:
    return any(fnmatch(file.name, each) or fnmatch(file.as_posix(), each) for each in patterns)


def _as_paths(paths: object) -> list[str | Path]:
    several = [paths] if isinstance(paths, str | Path) else paths
    if not isinstance(several, Iterable):
        raise ConfigurationError(f"paths must be files and folders, got {paths!r}")
    found = list(several)
    for each in found:
        if not isinstance(each, str | Path) or not str(each):
            raise ConfigurationError(f"a path is a string or a Path, got {each!r}")
    return found


def _patterns(patterns: object, name: str) -> tuple[str, ...]:
    if isinstance(patterns, str) or not isinstance(patterns, Iterable):
        raise ConfigurationError(
            f"{name} must be a list of patterns, got {patterns!r}: write [...]"
        )
    return tuple(patterns)


def _files(
    paths: Iterable[str | Path], selection: _Selection, left_out: dict[Path, str]
) -> Iterator[Path]:
    for given in paths:
        path = Path(given).expanduser()
        if path.is_dir():
            yield from _found(path, "**/*", selection)
        elif not path.exists() and has_magic(str(path)):
            first = next(place for place, part in enumerate(path.parts) if has_magic(part))
            pattern = str(Path(*path.parts[first:]))
            found = list(_found(Path(*path.parts[:first]), pattern, selection))
            if not found:
                left_out[path] = "no file matches this pattern"
            yield from found
        else:
            yield path.resolve()


def _found(folder: Path, pattern: str, selection: _Selection) -> Iterator[Path]:
    folder = folder.resolve()
    for file in sorted(folder.glob(pattern)):
        if file.is_file() and selection.takes(file.relative_to(folder), folder):
            yield file


def read_files(files: Iterable[Path], reading: Reading) -> Iterator[Document]:
    """Yield the documents in files; note files that cannot be read."""
    # pypdf logs an error of a broken file three times; it is in the reason for the file.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    readers: dict[str, BaseReader] = {}
    for file in files:
        suffix = file.suffix.lower()
        try:
            if suffix not in readers:
                readers[suffix] = reader_for(suffix)
            documents = _read(file, readers[suffix])
        except ImportError as error:
            missing = error if isinstance(error, RetrievalExtError) else missing_reader(suffix)
            reading.left_out[file] = str(missing)
            continue
        except Exception as error:  # noqa: BLE001 - whatever a reader trips over is in this file
            reading.left_out[file] = _reason(error)
            continue
        reading.files.add(str(file))
        reading.ids.update(document.doc_id for document in documents)
        yield from documents


def _read(file: Path, reader: BaseReader) -> list[Document]:
    # No dates: they would make a copied or touched file a changed one.
    metadata = {"file_path": str(file), "file_name": file.name}
    documents = reader.load_data(file, extra_info=metadata)
    for part, document in enumerate(documents):
        is_whole = isinstance(reader, TextReader)
        document.id_ = str(file) if is_whole else f"{file}{_PART}{part}"
        # Names and titles help to find a passage; folders and page numbers only blur it.
        document.excluded_embed_metadata_keys = ["file_path", "page_label"]
    return documents


def _reason(error: BaseException) -> str:
    """Return the message of the first cause: readers wrap errors."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, RetrievalExtError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
