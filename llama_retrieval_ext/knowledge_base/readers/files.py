"""`read_documents`: a user's files as documents with stable ids."""

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

from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError, RetrievalExtError
from llama_retrieval_ext.knowledge_base.readers.formats import (
    TextReader,
    UnsupportedKindError,
    check_encoding,
    check_unpacked,
    reader_for,
)
from llama_retrieval_ext.urls import expanded_path

_PART: Final = "_part_"


class DocumentList(list[Document]):
    """The documents that `read_documents` returns.

    Attributes:
        left_out: Reasons why files could not be read, by their path.
    """

    def __init__(self, documents: Iterable[Document], left_out: dict[Path, str]) -> None:
        super().__init__(documents)
        self.left_out = left_out


def read_documents(
    paths: str | Path | Iterable[str | Path],
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    encoding: str = "",
    follow_symlinks: bool = False,
) -> DocumentList:
    r"""Return files as documents with stable ids, which `KnowledgeBase.add` recognises.

    A PDF gives one document per page, PPTX per slide, CSV and XLSX per row; DOCX, HTML and text
    (Markdown, code and any other text in UTF-8, UTF-16 or GB18030) one per file. Ids are made from
    absolute paths. The metadata have ``file_path``, which is the source of all documents of a file,
    and ``file_name``; pages have ``page_label``. PDF, PPTX, XLSX, DOCX and HTML need the extra
    ``quickstart``.

    Args:
        paths: A file, a folder, which is read recursively, a glob pattern such as
            ``"docs/**/*.md"``, or several of these. Hidden files in folders are skipped.
        include: Patterns such as ``"*.md"`` or ``"manuals/*"``. In folders and glob patterns, only
            files whose name or path within the folder matches one are read. Empty for all.
        exclude: Patterns of the same form; files that match one, or are in a folder whose name
            matches, are not read.
        encoding: Encoding of texts that are not in UTF-8, such as ``"latin-1"`` or ``"cp1252"``;
            empty to recognise UTF-16 and GB18030.
        follow_symlinks: Whether a symbolic link in a folder may lead to a file outside of it; such
            files are left out otherwise.

    Returns:
        A list of documents, in the order of the paths, with an attribute ``left_out``: the reason
        for each file that could not be read. Documents without text are included; `add` skips
        them.

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
        left_out: Reasons why files could not be read, by their path.
        unsupported: Those of them whose kind is not supported, such as pictures.
        files: Files that were read.
        ids: Ids of the documents.
    """

    documents: Iterable[Document] = ()
    left_out: dict[Path, str] = field(default_factory=dict)
    unsupported: set[Path] = field(default_factory=set)
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
        return [
            id_ for id_ in ids if id_ not in self.ids and id_.rpartition(_PART)[0] in self.files
        ]


def iter_documents(  # noqa: PLR0913 - those of `read_documents`, and two
    paths: str | Path | Iterable[str | Path],
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    encoding: str = "",
    follow_symlinks: bool = False,
    leave_out: Path | None = None,
    watched: Callable[[list[Path]], Iterable[Path]] = iter,
) -> Reading:
    """Return the documents of `read_documents`, read lazily file by file.

    The folder `leave_out`, such as that of the knowledge base, is skipped. `watched` wraps the
    files while they are read, for a progress bar.
    """
    reading = Reading()
    check_encoding(encoding)
    files = find_files(
        paths,
        reading,
        include=include,
        exclude=exclude,
        leave_out=leave_out,
        follow_symlinks=follow_symlinks,
    )
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
    """Return the files that `iter_documents` reads, each once; record patterns without files."""
    patterns = (_patterns(include, "include"), _patterns(exclude, "exclude"))
    selection = _Selection(*patterns, leave_out, follow_symlinks)
    return list(dict.fromkeys(_files(_as_paths(paths), selection, reading.left_out)))


@dataclass(frozen=True)
class _Selection:
    """Selects the files of a folder."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    leave_out: Path | None
    follow_symlinks: bool

    def takes(self, file: Path, folder: Path) -> bool:
        """Return whether to read a file; its path is relative to the folder."""
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
        path = expanded_path(given)
        if path.is_dir():
            yield from _found(path, "**/*", selection, left_out)
        elif not path.exists() and has_magic(str(path)):
            first = next(place for place, part in enumerate(path.parts) if has_magic(part))
            pattern = str(Path(*path.parts[first:]))
            found = list(_found(Path(*path.parts[:first]), pattern, selection, left_out))
            if not found:
                left_out[path] = "no file matches this pattern"
            yield from found
        elif _is_loop(path):
            left_out[path] = "it is a loop of symbolic links"
        else:
            yield path.resolve()


def _is_loop(path: Path) -> bool:
    try:
        path.resolve()
    except (OSError, RuntimeError):  # RuntimeError before Python 3.13
        return True
    return False


def _found(
    folder: Path, pattern: str, selection: _Selection, left_out: dict[Path, str]
) -> Iterator[Path]:
    folder = folder.resolve()
    for file in sorted(folder.glob(pattern)):
        if not file.is_file() or not selection.takes(file.relative_to(folder), folder):
            continue
        if selection.follow_symlinks or file.resolve().is_relative_to(folder):
            yield file
        else:
            left_out[file] = "a symbolic link leads out of the folder; follow_symlinks reads it"


def read_files(files: Iterable[Path], reading: Reading, encoding: str = "") -> Iterator[Document]:
    """Yield the documents in files; record files that cannot be read."""
    # pypdf logs each error of a broken file three times; `left_out` has the reason.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    readers: dict[str, BaseReader] = {}
    for file in files:
        suffix = file.suffix.lower()
        try:
            if suffix not in readers:
                readers[suffix] = reader_for(suffix, encoding)
            documents = _read(file, readers[suffix])
        except ImportError:
            reading.left_out[file] = str(
                MissingDependencyError(f"reading {suffix} files", "quickstart")
            )
            continue
        except Exception as error:  # noqa: BLE001 - whatever a reader trips over is in this file
            reading.left_out[file] = _reason(error)
            if isinstance(error, UnsupportedKindError):
                reading.unsupported.add(file)
            continue
        reading.files.add(str(file))
        reading.ids.update(document.doc_id for document in documents)
        yield from documents


def _read(file: Path, reader: BaseReader) -> list[Document]:
    # No dates: a copied or touched file would count as changed.
    metadata = {"file_path": str(file), "file_name": file.name}
    check_unpacked(file)
    documents = reader.load_data(file, extra_info=metadata)
    for part, document in enumerate(documents):
        is_whole = isinstance(reader, TextReader)
        document.id_ = str(file) if is_whole else f"{file}{_PART}{part}"
        # Names and titles help retrieval; folders and page numbers add noise.
        document.excluded_embed_metadata_keys = ["file_path", "page_label"]
    return documents


def _reason(error: BaseException) -> str:
    """Return the message of the first cause, as readers wrap errors, up to one of this package."""
    while error.__cause__ is not None and not isinstance(error, RetrievalExtError):
        error = error.__cause__
    if isinstance(error, RetrievalExtError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
