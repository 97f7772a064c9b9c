"""Rows of tables as documents: CSV files and workbooks, and the search for their header rows."""

import csv
import datetime
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import chain, groupby, islice, zip_longest
from pathlib import Path
from posixpath import join, normpath
from statistics import median_high
from typing import Final, TypeAlias
from zipfile import ZipFile, is_zipfile

from llama_index.core.schema import Document

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.readers.encodings import read_text
from llama_retrieval_ext.knowledge_base.readers.html import attribute, xml_root
from llama_retrieval_ext.scope import TABLE_KEY

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
    stripped = ([cell and cell.strip() for cell in row] for row in rows)
    groups = groupby(stripped, key=lambda row: bool(_filled(row)))
    blocks: list[list[Row]] = [[*block] for is_row, block in groups if is_row]
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
        lines = [" | ".join(_filled(row)) for row in rows]
        if lines:
            self.documents.append(Document(text="\n".join(lines), metadata=dict(self._metadata)))
        return "; ".join(lines)[:_LONGEST_TITLE]

    def _add_rows(self, rows: Sequence[Row]) -> None:
        rows, self._held = [*self._held, *rows], []
        title = {TABLE_KEY: self._title} if self._title else {}
        for row in rows:
            self._header = ()
            names = (self._columns or ())[: len(row)]
            text = "\n".join(
                f"{name or f'column {number}'}: {cell}"
                for number, (name, cell) in enumerate(zip_longest(names, row), start=1)
                if cell is not None
            )
            self.documents.append(Document(text=text, metadata={**self._metadata, **title}))


def _filled(row: Row) -> list[str]:
    return [cell for cell in row if cell]


def _length(row: Row) -> int:
    return max((n for n, cell in enumerate(row, start=1) if cell), default=0)


def _is_words(row: Row) -> bool:
    return not any(_VALUE.fullmatch(cell) for cell in _filled(row))


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
    values = [n for n, cell in enumerate(row) if _VALUE.fullmatch(cell or "")]
    labels = [row[n] or "" for n in values]
    counted = [str(n) for n in range(1, len(labels) + 1)]
    if len(rows) < _LEAST_ROWS or not values or all(map(_PERIOD.fullmatch, labels)):
        return False
    return labels != counted and all(
        sum(bool(_VALUE.fullmatch(cell)) == (n in values) for cell in cells)
        >= len(cells) * _LEAST_EVEN
        for n, _ in enumerate(row)
        for cells in [[cell for other in rows for cell in other[n : n + 1] if cell]]
    )


def _is_filter(row: Row) -> bool:
    return any((cell or "").endswith((":", "：")) for cell in row)  # noqa: RUF001 - Chinese


def _begins_table(block: Sequence[Row], head: int) -> bool:
    """Return whether the header of a block names columns with numbers, below it."""
    if not _is_words(block[head]) or len(block) <= head + 1:
        return False
    return head > 0 or any(
        _VALUE.fullmatch(cell) for row in block[head + 1 : head + 3] for cell in _filled(row)
    )


def _is_group_row(above: Row, header: Row) -> bool:
    """Return whether the row above a header names groups of its columns."""
    first = next(n for n, cell in enumerate(header) if cell)
    names = _filled(header)
    has_corner = len(above) <= first or not above[first]
    return has_corner or (len(set(names)) < len(names) and len(_filled(above)) > 1)


def _names(header: Row, groups: Row) -> list[str]:
    names, group = [], ""
    for above, name in zip_longest(groups[: len(header)], header, fillvalue=""):
        group = above or group
        names.append(" ".join(filter(None, (group, name))) if name else "")
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
                rows = [[_shown(cell).strip() or None for cell in row] for row in cells]
                _add(additions.get(sheet.name, {}), rows)
                documents += row_documents(rows, {"sheet_name": sheet.name})
    return documents


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat(*" " * isinstance(value, datetime.datetime))
    return str(value)


def _add(additions: Mapping[int, Mapping[int, str]], rows: list[list[str | None]]) -> None:
    """Write formulas and comments behind the values of their cells."""
    for number, texts in additions.items():
        rows += ([] for _ in range(number + 1 - len(rows)))
        row = rows[number]
        row += [None] * (max(texts, default=0) + 1 - len(row))
        for column, text in texts.items():
            row[column] = " ".join(filter(None, (row[column], text)))


def _additions(file: Path) -> dict[str, _Cells]:
    """Return formulas without a value and comments by sheet; raise if a sheet is too large."""
    additions: dict[str, _Cells] = {}
    with ZipFile(file) as archive:
        names = {*archive.namelist()}
        for name in names:
            if name.endswith(".xml") and ("sheet" in name or name == "content.xml"):
                _check_size(archive.read(name))
        parts = _related(archive, _BOOK, names)
        for sheet in xml_root(archive.read(_BOOK)).iter("{*}sheet") if parts else ():
            part = parts.get(attribute(sheet, "id"), "")
            content = archive.read(part) if part in names else b""
            contents = [content] if re.search(rb"<(?:\w+:)?f[\s>]", content) else []
            contents += (
                archive.read(related)
                for related in _related(archive, part, names).values()
                if "comments" in related.lower() and related in names
            )
            cells = additions.setdefault(sheet.get("name", ""), defaultdict(dict))
            for reference, text in chain.from_iterable(map(_texts, contents)):
                if place := _REFERENCE.fullmatch(reference):
                    row, column = cells[int(place[2]) - 1], _column(place[1])
                    row[column] = f"{row.get(column, '')} {text}".strip()
    return additions


def _check_size(content: bytes) -> None:
    cells = _CELL.findall(content)
    columns = (_column(letters.decode()) + 1 for letters in {letters for letters, _ in cells})
    rows = map(int, {number for _, number in cells})
    repeated = [int(number) for number in _REPEATED.findall(content)]
    size = max(columns, default=1) * max(rows, default=1)
    if size > _MAX_CELLS or max(repeated, default=0) > _MAX_CELLS:
        raise ConfigurationError(f"a sheet spans {size:,} cells; the limit is {_MAX_CELLS:,}")


def _related(archive: ZipFile, part: str, names: set[str]) -> dict[str, str]:
    """Return the parts that a part refers to, by the id of the reference."""
    folder, _, name = part.rpartition("/")
    listed = f"{folder}/_rels/{name}.rels"
    relations = xml_root(archive.read(listed)).iter("{*}Relationship") if listed in names else ()
    return {
        relation.get("Id", ""): normpath(join("/", folder, relation.get("Target", ""))).lstrip("/")
        for relation in relations
    }


def _texts(content: bytes) -> Iterator[tuple[str, str]]:
    """Yield references to cells, with their formula if it has no value, or their comment."""
    root = xml_root(content)
    for formula in root.iter("{*}f"):
        cell = formula.getparent()
        if cell is not None and formula.text and not cell.findtext("{*}v"):
            yield cell.get("r", ""), f"={formula.text}"
    for comment in root.iter("{*}comment", "{*}threadedComment"):
        if words := " ".join("".join(map(str, comment.itertext())).split()):
            yield comment.get("ref", ""), f"[Comment: {words}]"


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1
