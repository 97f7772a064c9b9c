"""The reader of each file type, and the readers of text and CSV."""

import codecs
import csv
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Final

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError

EXTRA: Final = "quickstart"
_LLAMA_INDEX: Final = "llama_index.readers.file"
_OFFICE: Final = "llama_retrieval_ext.ingest.readers.office"
_HTML: Final = ("llama_retrieval_ext.ingest.readers.html", "HTMLReader")
# Readers that need the extra. `CSVReader` reads CSV, and `TextReader` all other files.
_WITH_EXTRA: Final[Mapping[str, tuple[str, str]]] = {
    ".pdf": (_LLAMA_INDEX, "PDFReader"),
    ".docx": (_LLAMA_INDEX, "DocxReader"),
    ".xlsx": (_OFFICE, "XLSXReader"),
    ".pptx": (_OFFICE, "PPTXReader"),
    ".html": _HTML,
    ".htm": _HTML,
}
_TEXT_SUFFIXES: Final = {"", ".txt", ".md", ".rst", ".csv", ".json", ".xml", ".log"}
# Longer marks first: UTF-32's begins with UTF-16's.
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1f]")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
# Chinese text is mostly in GB 2312, except rare names and symbols; Latin-1 text hardly ever is.
_LEAST_COMMON: Final = 0.5
_HEAD_BYTES: Final = 2**16


def reader_for(suffix: str) -> BaseReader:
    """Return the reader of a file type.

    Args:
        suffix: File suffix such as ``.pdf``, in lower case; empty for none.

    Raises:
        MissingDependencyError: It needs a package that is not installed.
    """
    if suffix not in _WITH_EXTRA:
        return CSVReader() if suffix == ".csv" else TextReader()
    module, name = _WITH_EXTRA[suffix]
    try:
        reader: BaseReader = getattr(import_module(module), name)()
    except ImportError as error:
        raise missing_reader(suffix) from error
    return reader


def missing_reader(suffix: str) -> MissingDependencyError:
    """Return the error for a file type whose reader is not installed."""
    return MissingDependencyError(f"reading {suffix} files", EXTRA)


class TextReader(BaseReader):
    """Reads a text file as one document."""

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return the document of a file.

        Raises:
            ConfigurationError: It is not text in a recognised encoding.
        """
        return [Document(text=read_text(file), metadata=dict(extra_info or {}))]


class CSVReader(BaseReader):
    """Reads each row of a CSV file as a document: a line ``column: value`` for each column."""

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return a document for each row after the first, which names the columns.

        Raises:
            ConfigurationError: It is not text in a recognised encoding.
        """
        rows = csv.reader(StringIO(read_text(file), newline=""))
        columns = next(rows, [])
        return [
            Document(text=row_text(columns, row), metadata=dict(extra_info or {}))
            for row in rows
            if row
        ]


def row_text(columns: Sequence[str], cells: Sequence[str]) -> str:
    r"""Return a row of a table as lines ``column: value``.

    Examples:
        >>> row_text(["name", "role"], ["Ann", "welder"])
        'name: Ann\nrole: welder'

    """
    names = [*columns, *(f"column {n + 1}" for n in range(len(columns), len(cells)))]
    return "\n".join(
        f"{name.strip()}: {cell.strip()}" for name, cell in zip(names, cells, strict=False)
    )


def read_text(file: Path) -> str:
    """Return the text of a file in UTF-8, UTF-16 or GB18030.

    Raises:
        ConfigurationError: It is in another encoding.
    """
    with file.open("rb") as opened:
        data = opened.read(_HEAD_BYTES)
        if len(data) < _HEAD_BYTES or _may_be_text(data):  # avoids reading a whole video
            data += opened.read()
    text = decode_text(data)
    if text is not None:
        return text.replace("\r\n", "\n").replace("\r", "\n")
    suffix = file.suffix.lower()
    if suffix in _TEXT_SUFFIXES or _CONTROL.search(data.decode("latin-1")) is None:
        raise ConfigurationError("it is not text in UTF-8, UTF-16 or GB18030")
    raise ConfigurationError(f"this kind of file is not supported: {suffix}")


def decode_text(data: bytes) -> str | None:
    r"""Return bytes as text; None if they are not text in UTF-8, UTF-16 or GB18030.

    Without a byte order mark, UTF-8 is tried first. GB18030 or UTF-16 is accepted if the text has
    no control characters and half of its non-ASCII characters are common Chinese characters.

    Examples:
        >>> decode_text("安全".encode("gb18030"))
        '安全'
        >>> decode_text("安全 1".encode("utf-16"))
        '安全 1'
        >>> decode_text("Übung".encode("latin-1")) is None
        True

    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decoded(data, encoding)
    if b"\0" not in data:
        text = _decoded(data, "utf-8")
        return _plausible(_decoded(data, "gb18030")) if text is None else text
    return _plausible(_decoded(data, "utf-16-le")) or _plausible(_decoded(data, "utf-16-be"))


def _may_be_text(head: bytes) -> bool:
    """Return whether a file with this beginning may be text."""
    if b"\0" not in head or head.startswith(tuple(mark for mark, _ in _MARKS)):
        return True
    # The cut may split a character of four bytes.
    return decode_text(head) is not None or decode_text(head[:-2]) is not None


def _decoded(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def _plausible(text: str | None) -> str | None:
    """Return the text; None if it looks like another encoding."""
    if text is None or _CONTROL.search(text):
        return None
    rare = _NOT_ASCII.findall(text)
    common = sum(1 for each in rare if each.encode("gb2312", "ignore"))
    return text if common >= _LEAST_COMMON * len(rare) else None
