"""Reads a user's files with LlamaIndex's readers; one that cannot be read spoils no other.

Not through ``SimpleDirectoryReader``: without the readers' package it reads a PDF as if it were
text, and it takes every file in a hidden folder for hidden. Ids of documents are the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain, islice
from pathlib import Path

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_retrieval_ext.errors import MissingDependencyError

_READERS = "llama_index.readers.file"
_HTML = ("llama_retrieval_ext.cli.html", "HTMLReader")
_PART = "_part_"
# What is not here is read as text. Other formats than text need a reader, and that the extra.
_FORMATS = {
    ".pdf": (_READERS, "PDFReader"),
    ".docx": (_READERS, "DocxReader"),
    ".csv": (_READERS, "PagedCSVReader"),
    ".html": _HTML,
    ".htm": _HTML,
}


@dataclass
class Reading:
    """Documents from files, which are read while the documents are iterated over.

    Attributes:
        documents: One for a file; for a PDF one for each page, for a CSV one for each row. Once.
        failures: What is wrong with each file that was left out.
        files: The others.
        ids: Of the documents.
    """

    documents: Iterable[Document] = ()
    failures: dict[Path, str] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)

    def finds_any(self) -> bool:
        """Whether there is a document; reads as far as the first."""
        documents = iter(self.documents)
        first = list(islice(documents, 1))
        self.documents = chain(first, documents)
        return bool(first)

    def outdated(self, ids: Iterable[str]) -> list[str]:
        """Those ids of documents that are parts which files had and no longer have."""
        return [
            id_ for id_ in ids if id_ not in self.ids and id_.rpartition(_PART)[0] in self.files
        ]


def read_files(
    paths: Sequence[Path],
    *,
    leave_out: Path | None = None,
    watched: Callable[[list[Path]], Iterable[Path]] = iter,
) -> Reading:
    """Files to read, and all files in folders and the folders inside.

    Hidden files in a folder are left out. Ids of documents are made from absolute paths, so that a
    second reading finds the first from anywhere.

    Args:
        paths: Files and folders.
        leave_out: A folder to keep out of, such as that of the knowledge base.
        watched: Wraps the files while they are read, for a progress bar.

    Raises:
        MissingDependencyError: A file needs a reader that is not installed.
    """
    files = list(dict.fromkeys(_files(paths, leave_out)))
    readers = {suffix: _reader(suffix) for suffix in {_suffix(file) for file in files}}
    reading = Reading()
    reading.documents = _documents(reading, watched(files), readers)
    return reading


def _documents(
    reading: Reading, files: Iterable[Path], readers: Mapping[str, BaseReader | None]
) -> Iterator[Document]:
    for file in files:
        try:
            documents = _read(file, readers[_suffix(file)])
        except ImportError as error:
            raise _missing(_suffix(file)) from error
        except Exception as error:  # noqa: BLE001 - whatever a reader trips over is in this file
            reading.failures[file] = _reason(error)
            continue
        reading.files.add(str(file))
        reading.ids.update(document.doc_id for document in documents)
        yield from documents


def _files(paths: Iterable[Path], leave_out: Path | None) -> Iterator[Path]:
    for path in (path.resolve() for path in paths):
        if not path.is_dir():
            yield path
            continue
        for file in sorted(path.rglob("*")):
            hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
            inside = leave_out is not None and file.is_relative_to(leave_out)
            if file.is_file() and not hidden and not inside:
                yield file


def _read(file: Path, reader: BaseReader | None) -> list[Document]:
    # No dates: they would make a copied or touched file a changed one.
    metadata = {"file_path": str(file), "file_name": file.name}
    if reader is None:
        text = file.read_text(encoding="utf-8-sig")
        documents = [Document(id_=str(file), text=text, metadata=metadata)]
    else:
        documents = reader.load_data(file, extra_info=metadata)
        for part, document in enumerate(documents):
            document.id_ = f"{file}{_PART}{part}"
    for document in documents:
        # Names and titles help to find a passage; folders and page numbers only blur it.
        document.excluded_embed_metadata_keys = ["file_path", "page_label"]
    return documents


def _suffix(file: Path) -> str:
    return file.suffix.lower()


def _reader(suffix: str) -> BaseReader | None:
    if suffix not in _FORMATS:
        return None
    module, name = _FORMATS[suffix]
    try:
        reader: BaseReader = getattr(import_module(module), name)()
    except ImportError as error:
        raise _missing(suffix) from error
    return reader


def _missing(suffix: str) -> MissingDependencyError:
    return MissingDependencyError(f"reading {suffix} files", "quickstart")


def _reason(error: BaseException) -> str:
    """What is at the bottom of an error: readers wrap it, and retry what cannot succeed."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8"
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
