"""Readers of spreadsheets and slides; LlamaIndex's slide reader needs an image model."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from openpyxl import load_workbook
from pptx import Presentation

from llama_retrieval_ext.ingest.readers.formats import row_text

_Untyped: TypeAlias = Any  # python-pptx has no types


class XLSXReader(BaseReader):
    """Reads each row of a workbook as a document: ``column: value`` for each cell with a value.

    The first non-empty row of a sheet has the column names. Formulas have their last computed
    value. The sheet is in the metadata as ``sheet_name``.
    """

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return a document for each row, sheet by sheet."""
        workbook = load_workbook(file, read_only=True, data_only=True)
        try:
            return [
                Document(text=text, metadata={**(extra_info or {}), "sheet_name": sheet.title})
                for sheet in workbook.worksheets
                for text in _rows(sheet.iter_rows(values_only=True))
            ]
        finally:
            workbook.close()


class PPTXReader(BaseReader):
    """Reads each slide with text as a document: its text, tables and notes.

    The slide number is in the metadata as ``page_label``.
    """

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return a document for each slide."""
        texts = ["\n".join(_slide_lines(slide)) for slide in Presentation(str(file)).slides]
        return [
            Document(text=text, metadata={**(extra_info or {}), "page_label": str(number)})
            for number, text in enumerate(texts, start=1)
            if text
        ]


def _rows(rows: Iterable[tuple[object, ...]]) -> Iterator[str]:
    filled = (row for row in rows if any(cell is not None for cell in row))
    columns = ["" if cell is None else str(cell) for cell in next(filled, ())]
    for row in filled:
        names = [
            name or f"column {number}" for number, name in enumerate(columns[: len(row)], start=1)
        ]
        cells = [
            (name, str(cell)) for name, cell in zip(names, row, strict=False) if cell is not None
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
