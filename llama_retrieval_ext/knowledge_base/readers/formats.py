"""The reader of each file type; files with headings are in `outlined`.

LlamaIndex's slide reader needs an image model. Office files and HTML need the extra ``quickstart``.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, TypeAlias
from zipfile import BadZipFile, ZipFile

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.readers.encodings import CONTROL, decode_text, may_be_text
from llama_retrieval_ext.knowledge_base.readers.html import HTMLReader
from llama_retrieval_ext.knowledge_base.readers.outlined import DOCXReader
from llama_retrieval_ext.knowledge_base.readers.pdf import PDFReader
from llama_retrieval_ext.query import PAGE_KEY

_Untyped: TypeAlias = Any  # python-pptx has no types

# The start of the reason why a picture, for instance, is not read.
_UNSUPPORTED: Final = "this kind of file is not supported"
_TEXT_SUFFIXES: Final = {"", ".txt", ".md", ".rst", ".csv", ".json", ".xml", ".log"}
_HEAD_BYTES: Final = 2**16
# Cells of a sheet, with the empty ones between two that have a value; they take seconds.
_MAX_CELLS: Final = 10_000_000
# Size of the content of an office file. Pictures and films hardly shrink, so that a large file may
# have twice its own size.
_MAX_UNPACKED: Final = 200_000_000
_ZIPPED: Final = {".docx", ".xlsx", ".pptx"}


class TextReader(BaseReader):
    """Reads a text file as one document; ``encoding`` is that of `read_text`."""

    def __init__(self, encoding: str = "") -> None:
        self._encoding = encoding

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return the document of a file."""
        return [Document(text=read_text(file, self._encoding), metadata=dict(extra_info or {}))]


class CSVReader(BaseReader):
    """Reads each row of a CSV file as a document: a line ``column: value`` for each column."""

    def __init__(self, encoding: str = "") -> None:
        self._encoding = encoding

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return a document for each row after the first, which names the columns."""
        rows = csv.reader(StringIO(read_text(file, self._encoding), newline=""))
        try:
            columns = next(rows, [])
            return [
                Document(text=row_text(columns, row), metadata=dict(extra_info or {}))
                for row in rows
                if row
            ]
        except csv.Error as error:
            raise ConfigurationError(
                f"line {rows.line_num} is not CSV as Python reads it: {error}; a field longer than "
                "the limit needs csv.field_size_limit(...), or a quotation mark is missing"
            ) from error


def row_text(columns: Sequence[str], cells: Sequence[str]) -> str:
    """Return a row of a table as lines ``column: value``."""
    names = [*columns, *(f"column {n + 1}" for n in range(len(columns), len(cells)))]
    return "\n".join(
        f"{name.strip()}: {cell.strip()}" for name, cell in zip(names, cells, strict=False)
    )


class XLSXReader(BaseReader):
    """Reads each row of a workbook as a document: ``column: value`` for each cell with a value.

    The first non-empty row of a sheet has the column names, a formula its last computed value.
    """

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return a document for each row, sheet by sheet."""
        from openpyxl import load_workbook  # noqa: PLC0415 - an extra

        workbook = load_workbook(file, read_only=True, data_only=True)
        try:
            return [
                Document(text=text, metadata={**(extra_info or {}), "sheet_name": sheet.title})
                for sheet in workbook.worksheets
                for text in _rows(_cells(sheet))
            ]
        finally:
            workbook.close()


class PPTXReader(BaseReader):
    """Reads each slide with text as a document: its text, tables and notes."""

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return a document for each slide."""
        from pptx import Presentation  # noqa: PLC0415 - an extra

        texts = ["\n".join(_slide_lines(slide)) for slide in Presentation(str(file)).slides]
        return [
            Document(text=text, metadata={**(extra_info or {}), PAGE_KEY: number})
            for number, text in enumerate(texts, start=1)
            if text
        ]


def _cells(sheet: _Untyped) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a sheet, as long as their last cell; a file may claim any size."""
    sheet.reset_dimensions()
    n_cells = 0
    for row in sheet.iter_rows(values_only=True):
        n_cells += len(row)
        if n_cells > _MAX_CELLS:
            raise ConfigurationError(f"its rows span more than {_MAX_CELLS:,} cells, the limit")
        yield row


def _rows(rows: Iterable[tuple[object, ...]]) -> Iterator[str]:
    filled = (row for row in rows if any(cell is not None for cell in row))
    columns = ["" if cell is None else str(cell) for cell in next(filled, ())]
    for row in filled:
        named = zip_longest(columns[: len(row)], row)  # a row may be longer than the first
        cells = [
            (name or f"column {number}", str(cell))
            for number, (name, cell) in enumerate(named, start=1)
            if cell is not None
        ]
        yield row_text([name for name, _ in cells], [cell for _, cell in cells])


def _slide_lines(slide: _Untyped) -> Iterator[str]:
    yield from _shape_lines(slide.shapes)
    if slide.has_notes_slide:
        yield from _lines(slide.notes_slide.notes_text_frame.text)


def _shape_lines(shapes: _Untyped) -> Iterator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):  # a group
            yield from _shape_lines(shape.shapes)
        elif shape.has_text_frame:
            yield from _lines(shape.text_frame.text)
        elif getattr(shape, "has_table", False):
            for row in shape.table.rows:
                yield " | ".join(" ".join(cell.text.split()) for cell in row.cells)


def _lines(text: str) -> Iterator[str]:
    lines = (" ".join(line.split()) for line in text.splitlines())
    return (line for line in lines if line)


# Readers of other files than text.
_READERS: Final[Mapping[str, type[BaseReader]]] = {
    ".xlsx": XLSXReader,
    ".pptx": PPTXReader,
    ".docx": DOCXReader,
    ".pdf": PDFReader,
}


_HTML_SUFFIXES: Final = {
    *(".html", ".htm", ".xhtml", ".xht", ".html4", ".html5", ".shtml", ".shtm", ".phtml"),
    *(".hta", ".dhtml", ".jhtml"),
}


def reader_for(suffix: str, encoding: str = "") -> BaseReader:
    """Return the reader of a suffix in lower case; this or its use may raise ImportError."""
    if suffix in _READERS:
        return _READERS[suffix]()
    if suffix in _HTML_SUFFIXES:
        return HTMLReader(encoding)
    return CSVReader(encoding) if suffix == ".csv" else TextReader(encoding)


def check_unpacked(file: Path) -> None:
    """Raise if an office file unpacks to far more than its size, which readers load as a whole."""
    if file.suffix.lower() not in _ZIPPED:
        return
    try:
        with ZipFile(file) as content:
            size = sum(part.file_size for part in content.infolist())
    except (OSError, BadZipFile):
        return  # the reader has the better message
    if size > max(_MAX_UNPACKED, 2 * file.stat().st_size):
        raise ConfigurationError(f"it unpacks to {size:,} bytes; the limit is {_MAX_UNPACKED:,}")


def read_text(file: Path, encoding: str = "") -> str:
    """Return the text of a file in UTF-8, UTF-16 or GB18030; raise if it is in another encoding.

    A text that is neither UTF-8 nor marked as UTF-16 or UTF-32 is in ``encoding``, if given.
    """
    with file.open("rb") as opened:
        data = opened.read(_HEAD_BYTES)
        if len(data) < _HEAD_BYTES or may_be_text(data):  # avoids reading a whole video
            data += opened.read()
    text = decode_text(data, encoding)
    if text is not None:
        return text.replace("\r\n", "\n").replace("\r", "\n")
    suffix = file.suffix.lower()
    if suffix in _TEXT_SUFFIXES or CONTROL.search(data.decode("latin-1")) is None:
        raise ConfigurationError("it is not text in UTF-8, UTF-16 or GB18030")
    raise ConfigurationError(f"{_UNSUPPORTED}: {suffix}")


def is_unsupported(reason: str) -> bool:
    """Return whether a file was left out because of its kind, such as a picture."""
    return reason.startswith(_UNSUPPORTED)
