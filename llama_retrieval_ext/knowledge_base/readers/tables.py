"""Rows of tables as documents: CSV files and workbooks, and the search for their header rows."""

import csv
import datetime
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import groupby, islice, zip_longest
from pathlib import Path
from posixpath import join, normpath
from statistics import median_high
from typing import TYPE_CHECKING, Final, TypeAlias
from zipfile import ZipFile, is_zipfile

from llama_index.core.schema import Document

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.readers.encodings import read_text
from llama_retrieval_ext.scope import TABLE_KEY

if TYPE_CHECKING:
    from lxml.etree import _Element

# The cells of a row; None where there is none, in a table without fixed columns.
Row: TypeAlias = Sequence[str | None]

# Rows in which a header is looked for, and by which a delimiter is recognised.
_LOOKED_AT: Final = 200
_LONGEST_TITLE: Final = 200
# A number, amount, percentage, date or time.
_VALUE: Final = re.compile(r"[\W_]*\d[\d\W_]*(?:[eE][+-]?\d+)?")
# A year, month, quarter or day, as they head columns.
_PERIOD: Final = re.compile(
    r"(?:19|20)\d\d年?(?:[-/]\d{1,2}){0,2}|\d{1,2}[/-]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}|\d{1,2}月"
)
# Rows below a first row of the same kinds, from which on it is taken for data.
_LEAST_ROWS: Final = 2
# By precedence: decimal commas are in files with the other ones.
_DELIMITERS: Final = ("\t", ";", "|", ",")
_DECLARED: Final = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)
# Rows that must have as many columns as most; and spaces behind that show punctuation.
_LEAST_EVEN: Final = 0.75
_NEVER: Final = "\x1f"  # a delimiter of files with one column


def read_csv(file: Path, encoding: str = "") -> list[Document]:
    """Read each row of a CSV or TSV file as a document: a line ``column: value`` for each column.

    The delimiter is recognised; titles above the header, which names the columns, are a document of
    their own.
    """
    return row_documents(csv_rows(read_text(file, encoding)), {})


def csv_rows(text: str) -> list[Row]:
    """Return the rows of a CSV text by its own delimiter; raise if a field is too long."""
    declared = _DECLARED.match(text)
    delimiter = declared[1] if declared else delimiter_of(text)
    rows = csv.reader(StringIO(text[declared.end() if declared else 0 :], ""), delimiter=delimiter)
    try:
        return [*rows]
    except csv.Error as error:
        raise ConfigurationError(
            f"line {rows.line_num} is not CSV as Python reads it: {error}; a field longer than "
            "the limit needs csv.field_size_limit(...), or a quotation mark is missing"
        ) from error


def delimiter_of(text: str) -> str:
    """Return the delimiter by which most rows have the same number of columns."""
    best: tuple[bool, float, int, str] = (False, 0.0, 0, _NEVER)
    for delimiter in _DELIMITERS:
        try:
            rows = [*filter(None, islice(csv.reader(StringIO(text, ""), delimiter=delimiter), 200))]
        except csv.Error:
            rows = []
        widths = [len(row) for row in rows]
        wide = [width for width in widths if width > 1]
        if not wide:
            continue
        usual = max(set(wide), key=wide.count)
        table = widths[widths.index(usual) :]
        even = table.count(usual) / len(table)
        cells = [cell for row in rows for cell in row[1:]]
        is_prose = sum(cell[:1].isspace() for cell in cells) * 2 > len(cells)
        is_header = widths[0] > 1 and delimiter == ","
        if min(widths) == max(widths) or (not is_prose and (even >= _LEAST_EVEN or is_header)):
            score = (min(widths) == max(widths), even, -widths.index(usual))
            best = max(best, (*score, delimiter), key=lambda one: one[:3])
    return best[3]


def row_documents(rows: Iterable[Row], metadata: Mapping[str, object]) -> list[Document]:
    """Return a document for each row of the tables in a sheet, and for what is above a header.

    A table begins with its header: the first row that is as long as most of its rows, behind titles
    and filters; columns are numbered where that row is data, too. After an empty row, another table
    begins if its header has words above numbers.
    """
    blocks = [[*block] for is_row, block in groupby(rows, _is_filled) if is_row]
    tables = _Tables(
        dict(metadata), any(len(_filled(row)) > 1 for block in blocks for row in block)
    )
    for block in blocks:
        tables.add(block)
    tables.finish()
    return tables.documents


class _Tables:
    """The documents of the tables in a sheet, block by block; empty rows are between blocks."""

    def __init__(self, metadata: dict[str, object], is_wide: bool) -> None:  # noqa: FBT001
        self.documents: list[Document] = []
        self._metadata = metadata
        self._is_wide = is_wide
        self._columns: Sequence[str] | None = None
        self._title = ""
        self._held: list[Row] = []  # rows of the table, or titles of the next one
        self._header: Row = ()  # as long as there is no row below it

    def add(self, block: list[Row]) -> None:
        """Add the rows between two empty ones."""
        head = _header_row(block) if self._is_wide else 0
        if head is None:
            self._held += block
        elif self._columns is None or (self._is_wide and _begins_table(block, head)):
            self._begin(block, head)
        else:
            self._add_rows(block)

    def finish(self) -> None:
        """Add what was held back."""
        if self._columns is None:
            self._add_lines(self._held)
        else:
            self._add_rows([])
        self._add_lines([self._header] if self._header else [])

    def _begin(self, block: list[Row], head: int) -> None:
        self._add_lines([self._header] if self._header else [])
        is_grouped = head > 0 and _is_group_row(block[head - 1], block[head])
        titles = [*self._held, *block[: head - is_grouped]]
        self._held = []
        self._title = self._add_lines(titles)
        if _is_data(block[head], block[head + 1 :]):
            self._columns, self._header = (), ()
            self._add_rows(block[head:])
        else:
            self._columns = _names(block[head], block[head - 1] if is_grouped else ())
            self._header = block[head]
            self._add_rows(block[head + 1 :])

    def _add_lines(self, rows: Sequence[Row]) -> str:
        lines = [" | ".join(_text(cell) for cell in _filled(row)) for row in rows]
        if lines:
            self.documents.append(Document(text="\n".join(lines), metadata=dict(self._metadata)))
        return "; ".join(lines)[:_LONGEST_TITLE]

    def _add_rows(self, rows: Sequence[Row]) -> None:
        rows, self._held = [*self._held, *rows], []
        title = {TABLE_KEY: self._title} if self._title else {}
        for row in rows:
            self._header = ()
            text = _row_text(self._columns or (), row)
            self.documents.append(Document(text=text, metadata={**self._metadata, **title}))


def _row_text(columns: Sequence[str], row: Row) -> str:
    named = zip_longest(columns[: len(row)], row, fillvalue="")
    return "\n".join(
        f"{name or f'column {number}'}: {cell.strip()}"
        for number, (name, cell) in enumerate(named, start=1)
        if cell is not None
    )


def _text(cell: str | None) -> str:
    return "" if cell is None else cell.strip()


def _is_filled(row: Row) -> bool:
    return any(cell and not cell.isspace() for cell in row)


def _filled(row: Row) -> list[str]:
    return [cell for cell in row if cell and not cell.isspace()]


def _length(row: Row) -> int:
    return max((n for n, cell in enumerate(row, start=1) if _text(cell)), default=0)


def _is_words(row: Row) -> bool:
    return not any(_VALUE.fullmatch(_text(cell)) for cell in _filled(row))


def _header_row(block: Sequence[Row]) -> int | None:
    """Return the place of the header in a block; None if no row has two cells."""
    several = [row for row in block[:_LOOKED_AT] if len(_filled(row)) > 1]
    if not several:
        return None
    length = median_high(map(_length, several))
    full = [n for n, row in enumerate(block) if len(_filled(row)) > 1 and _length(row) >= length]
    first = full[0]
    if first and len(_filled(block[first - 1])) > 1 and not _is_words(block[first]):
        above = block[first - 1]  # the last columns may have no name
        return first - 1 if _is_words(above) and not _is_filter(above) else first
    is_filter = _is_filter(block[first]) and len(full) > 1
    return full[1] if is_filter and _is_words(block[full[1]]) else first


def _is_data(row: Row, below: Sequence[Row]) -> bool:
    """Return whether a row that looks like a header has values where the rows below have them.

    Years, dates and counts name columns, too: a row without other values is a header.
    """
    rows = [other for other in below[:_LOOKED_AT] if len(_filled(other)) > 1]
    values = [n for n, cell in enumerate(row) if _VALUE.fullmatch(_text(cell))]
    labels = [_text(row[n]) for n in values]
    counted = [str(n) for n in range(1, len(labels) + 1)]
    if len(rows) < _LEAST_ROWS or not values or all(map(_PERIOD.fullmatch, labels)):
        return False
    return labels != counted and all(
        sum(bool(_VALUE.fullmatch(_text(cell))) == (n in values) for cell in cells)
        >= len(cells) * _LEAST_EVEN
        for n, _ in enumerate(row)
        for cells in [[other[n] for other in rows if n < len(other) and _text(other[n])]]
    )


def _is_filter(row: Row) -> bool:
    return any(_text(cell).endswith((":", "：")) for cell in row)  # noqa: RUF001 - Chinese


def _begins_table(block: Sequence[Row], head: int) -> bool:
    """Return whether the header of a block names columns with numbers, below it."""
    if not _is_words(block[head]) or len(block) <= head + 1:
        return False
    return head > 0 or any(
        _VALUE.fullmatch(_text(cell)) for row in block[head + 1 : head + 3] for cell in _filled(row)
    )


def _is_group_row(above: Row, header: Row) -> bool:
    """Return whether the row above a header names groups of its columns."""
    first = next(n for n, cell in enumerate(header) if _text(cell))
    names = _filled(header)
    has_corner = len(above) <= first or not _text(above[first])
    return has_corner or (len(set(names)) < len(names) and len(_filled(above)) > 1)


def _names(header: Row, groups: Row) -> list[str]:
    names, group = [], ""
    for above, name in zip_longest(groups[: len(header)], header, fillvalue=""):
        group = _text(above) or group
        names.append(" ".join(filter(None, (group, _text(name)))) if _text(name) else "")
    return names


# Cells by row and column from 0.
_Cells: TypeAlias = dict[int, dict[int, str]]

# The cells between the first and the last one of a sheet, the empty ones too; they take seconds.
_MAX_CELLS: Final = 10_000_000
_CELL: Final = re.compile(rb"""\br\s*=\s*["']([A-Z]{1,3})(\d{1,7})["']""")
_REPEATED: Final = re.compile(rb"""number-(?:rows|columns)-repeated\s*=\s*["'](\d+)["']""")
_REFERENCE: Final = re.compile(r"([A-Z]{1,3})(\d{1,7})")
_BOOK: Final = "xl/workbook.xml"


def read_workbook(file: Path) -> list[Document]:
    """Read each row of a workbook as a document: ``column: value`` for each cell with a value.

    The order is that of the sheets. A formula is its last computed value, or itself if it was never
    computed; a comment follows the value of its cell.
    """
    from python_calamine import CalamineWorkbook, SheetTypeEnum  # noqa: PLC0415 - an extra

    additions = _additions(file) if is_zipfile(file) else {}
    documents: list[Document] = []
    with CalamineWorkbook.from_path(str(file)) as workbook:
        for sheet in workbook.sheets_metadata:
            if sheet.typ == SheetTypeEnum.WorkSheet:
                cells = workbook.get_sheet_by_name(sheet.name).to_python(skip_empty_area=False)
                rows = _with(map(_row, cells), additions.get(sheet.name, {}))
                documents += row_documents(rows, {"sheet_name": sheet.name})
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
