"""Reader of XLSX, XLSB, XLS and ODS files, which `python_calamine` parses (``quickstart``)."""

import datetime
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from posixpath import join, normpath
from typing import TYPE_CHECKING, Final, TypeAlias
from zipfile import ZipFile, is_zipfile

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.readers.tables import Row, row_documents

if TYPE_CHECKING:
    from lxml.etree import _Element

# Cells by row and column from 0.
_Cells: TypeAlias = dict[int, dict[int, str]]

# The cells between the first and the last one of a sheet, the empty ones too; they take seconds.
_MAX_CELLS: Final = 10_000_000
_CELL: Final = re.compile(rb"""\br\s*=\s*["']([A-Z]{1,3})(\d{1,7})["']""")
_REPEATED: Final = re.compile(rb"""number-(?:rows|columns)-repeated\s*=\s*["'](\d+)["']""")
_REFERENCE: Final = re.compile(r"([A-Z]{1,3})(\d{1,7})")
_BOOK: Final = "xl/workbook.xml"


class WorkbookReader(BaseReader):
    """Reads each row of a workbook as a document: ``column: value`` for each cell with a value.

    A formula is its last computed value, or itself if it was never computed; a comment follows the
    value of its cell.
    """

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return a document for each row, sheet by sheet."""
        from python_calamine import CalamineWorkbook, SheetTypeEnum  # noqa: PLC0415 - an extra

        additions = _additions(file) if is_zipfile(file) else {}
        documents: list[Document] = []
        with CalamineWorkbook.from_path(str(file)) as workbook:
            for sheet in workbook.sheets_metadata:
                if sheet.typ != SheetTypeEnum.WorkSheet:
                    continue
                metadata = {**(extra_info or {}), "sheet_name": sheet.name}
                cells = workbook.get_sheet_by_name(sheet.name).to_python(skip_empty_area=False)
                rows = _with(map(_row, cells), additions.get(sheet.name, {}))
                documents += row_documents(rows, metadata)
        return documents


def _row(cells: Sequence[object]) -> Row:
    row = [_shown(cell).strip() or None for cell in cells]
    while row and row[-1] is None:
        row.pop()
    return row


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat(*" " * isinstance(value, datetime.datetime))
    return str(value)


def _with(rows: Iterator[Row], additions: Mapping[int, Mapping[int, str]]) -> Iterator[Row]:
    """Yield rows with the formulas and comments of their cells."""
    last = max(additions, default=-1)
    number = -1
    for number, row in enumerate(rows):
        yield _added(row, additions.get(number, {}))
    for place in range(number + 1, last + 1):
        yield _added([], additions.get(place, {}))


def _added(row: Row, additions: Mapping[int, str]) -> Row:
    if not additions:
        return row
    cells = [*row, *[None] * (max(additions) + 1 - len(row))]
    for column, text in additions.items():
        cells[column] = " ".join(filter(None, (cells[column], text)))
    return cells


def _additions(file: Path) -> dict[str, _Cells]:
    """Return formulas without a value and comments by sheet; raise if a sheet is too large."""
    from lxml.etree import XMLParser, fromstring  # noqa: PLC0415 - an extra

    parser = XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
    additions: dict[str, _Cells] = {}
    with ZipFile(file) as archive:
        names = {*archive.namelist()}
        for name in names:
            if name.endswith(".xml") and ("sheet" in name or name == "content.xml"):
                _check_size(archive.read(name))
        parts = _related(archive, _BOOK, names, parser)
        book = fromstring(archive.read(_BOOK), parser).iter("{*}sheet") if parts else ()
        for sheet in book:
            part = next(
                (parts[v] for k, v in sheet.items() if k.endswith("}id") and v in parts), ""
            )
            cells: _Cells = defaultdict(dict)
            content = archive.read(part) if part in names else b""
            if re.search(rb"<(?:\w+:)?f[\s>]", content):
                _add_formulas(fromstring(content, parser), cells)
            for related in _related(archive, part, names, parser).values():
                if "comments" in related.lower() and related in names:
                    _add_comments(fromstring(archive.read(related), parser), cells)
            additions[sheet.get("name", "")] = cells
    return additions


def _check_size(content: bytes) -> None:
    cells = _CELL.findall(content)
    columns = (_column(letters.decode()) + 1 for letters in {letters for letters, _ in cells})
    rows = map(int, {number for _, number in cells})
    repeated = [int(number) for number in _REPEATED.findall(content)]
    size = max(columns, default=1) * max(rows, default=1)
    if size > _MAX_CELLS or max(repeated, default=0) > _MAX_CELLS:
        raise ConfigurationError(f"a sheet spans {size:,} cells; the limit is {_MAX_CELLS:,}")


def _related(archive: ZipFile, part: str, names: set[str], parser: object) -> dict[str, str]:
    """Return the parts that a part refers to, by the id of the reference."""
    from lxml.etree import fromstring  # noqa: PLC0415 - an extra

    folder, _, name = part.rpartition("/")
    listed = f"{folder}/_rels/{name}.rels"
    if listed not in names:
        return {}
    root = fromstring(archive.read(listed), parser)
    return {
        relation.get("Id", ""): normpath(join("/", folder, relation.get("Target", ""))).lstrip("/")
        for relation in root.iter("{*}Relationship")
    }


def _add_formulas(root: "_Element", cells: _Cells) -> None:
    for formula in root.iter("{*}f"):
        cell = formula.getparent()
        place = None if cell is None else _REFERENCE.fullmatch(cell.get("r", ""))
        if cell is not None and place and formula.text and not cell.findtext("{*}v"):
            cells[int(place[2]) - 1][_column(place[1])] = f"={formula.text}"


def _add_comments(root: "_Element", cells: _Cells) -> None:
    for comment in root.iter("{*}comment", "{*}threadedComment"):
        place = _REFERENCE.fullmatch(comment.get("ref", ""))
        words = " ".join("".join(map(str, comment.itertext())).split())
        if place and words:
            row = cells[int(place[2]) - 1]
            row[_column(place[1])] = f"{row.get(_column(place[1]), '')} [Comment: {words}]".strip()


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1
