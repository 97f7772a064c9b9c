"""`Columns`: the metadata of nodes by key, for counting values; `StoredColumns` keeps them.

A knowledge base to which only this process writes reads them once and then what has changed; from
a server they are read for each count, since other processes write there.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from threading import Lock
from typing import Any, Final, TypeAlias

import numpy as np
from llama_index.core.schema import BaseNode
from numpy.typing import NDArray

from llama_retrieval_ext.dates import instant
from llama_retrieval_ext.filters import SCOPE_KEYS, AllOf, AnyOf, Compare, Condition, Not, matches
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.scope import document_of
from llama_retrieval_ext.text.normalization import composed

Scalar: TypeAlias = str | float | bool
Mask: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
VisibleValues: TypeAlias = Mapping[str, Sequence[Scalar]]
# Reads the nodes with these ids, or all for None.
Read: TypeAlias = Callable[[Collection[str] | None], Iterable[BaseNode]]

# Of rows of nodes that were removed.
_NOWHERE: Final = -1
# More changed nodes than this are not read one by one, and as many rows may be of removed nodes.
_MOST_CHANGES: Final = 20_000
_MOST_MASKS: Final = 32
# The kinds of values, in their order; dates are strings.
NUMBER, DATE, TEXT, BOOLEAN = range(4)


@dataclass(frozen=True, slots=True)
class Entries:
    """The values of a key: one entry for each value of each row.

    Attributes:
        values: The distinct values: numbers, dates by time, other strings, booleans.
        keys: What each is ordered by, see `order`.
        row: The row of each entry.
        value: The index of its value.
        pair: The index of its document and value among the distinct ones.
        pair_document: The document of each of these.
        pair_value: Its value.
    """

    values: Sequence[Scalar]
    keys: Sequence[tuple[Any, ...]]  # Any: as of `order`
    row: Ints
    value: Ints
    pair: Ints
    pair_document: Ints
    pair_value: Ints

    def counted(self, mask: Mask, *, nodes: bool) -> tuple[Ints, Ints]:
        """Return the units and the values of the entries in rows, each pair once.

        Units are documents, or rows if ``nodes``.
        """
        entries = mask[self.row]
        is_whole = entries.all()
        if nodes:
            return (self.row, self.value) if is_whole else (self.row[entries], self.value[entries])
        if is_whole:
            return self.pair_document, self.pair_value
        pairs = np.zeros(len(self.pair_value), dtype=bool)
        pairs[self.pair[entries]] = True
        return self.pair_document[pairs], self.pair_value[pairs]

    def of_kind(self, kind: int) -> slice:
        """Return the range of the values of a kind."""
        return slice(bisect_left(self.keys, (kind,)), bisect_left(self.keys, (kind + 1,)))


class Columns:
    """The metadata of nodes under some keys, as numbers of distinct values; not thread-safe.

    Args:
        keys: The keys, beside those of scopes.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self.keys = {*keys, *SCOPE_KEYS}
        self.changes = 0
        self._rows: dict[str, int] = {}  # by node id
        self._documents: dict[Hashable, int] = {}
        self._document = array("q")
        self._codes = {key: array("q") for key in self.keys}
        self._numbers: dict[str, dict[Hashable, int]] = {key: {} for key in self.keys}
        self._values: dict[str, list[object]] = {key: [] for key in self.keys}
        self._scalars = {key: _Scalars() for key in self.keys}
        self._masks: dict[Condition | None, Mask] = {}
        self._entries: dict[str, Entries] = {}
        self._visible: dict[tuple[Condition | None, tuple[str, ...]], VisibleValues] = {}

    @classmethod
    def of(cls, keys: Iterable[str], nodes: Iterable[BaseNode]) -> "Columns":
        """Return the columns of nodes."""
        columns = cls(keys)
        for node in nodes:
            columns.put(node)
        return columns

    def put(self, node: BaseNode) -> None:
        """Add a node, or replace it."""
        self.remove(node.node_id)
        self._rows[node.node_id] = len(self._document)
        key = document_of(node) or (node.node_id,)
        self._document.append(self._documents.setdefault(key, len(self._documents)))
        for name, codes in self._codes.items():
            value = node.metadata.get(name)
            number = self._numbers[name].setdefault(_identity(value), len(self._values[name]))
            if number == len(self._values[name]):
                self._values[name].append(value)
            codes.append(number)

    def remove(self, node_id: str) -> None:
        """Remove a node; a missing one is ignored."""
        self._masks, self._entries, self._visible = {}, {}, {}
        self.changes += 1
        row = self._rows.pop(node_id, None)
        if row is not None:
            self._document[row] = _NOWHERE

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def waste(self) -> int:
        """Number of rows of removed nodes."""
        return len(self._document) - len(self._rows)

    def mask(self, condition: Condition | None) -> Mask:
        """Return which rows satisfy a condition, whose keys must be there; see `matches`."""
        mask = self._masks.get(condition)
        if mask is None:
            document = np.array(self._document, dtype=np.int64)
            mask = (document != _NOWHERE) & self._holds(condition)
            if len(self._masks) < _MOST_MASKS:
                self._masks[condition] = mask
        return mask

    def rows(self, node_ids: Iterable[str]) -> Mask | None:
        """Return which rows are of nodes; None if one is not there."""
        mask = np.zeros(len(self._document), dtype=bool)
        rows = [self._rows.get(node_id, _NOWHERE) for node_id in node_ids]
        mask[rows] = True
        return None if _NOWHERE in rows else mask

    def _holds(self, condition: Condition | None) -> Mask:
        match condition:
            case None:
                return np.ones(len(self._document), dtype=bool)
            case Compare(key):
                tests = (matches(condition, {key: value}) for value in self._values[key])
                holds = np.fromiter(tests, bool, len(self._values[key]))
                return holds[np.array(self._codes[key], dtype=np.int64)]
            case AllOf(parts):
                return reduce(np.logical_and, map(self._holds, parts), self._holds(None))
            case AnyOf(parts):
                return reduce(np.logical_or, map(self._holds, parts), ~self._holds(None))
            case Not(part):
                return ~self._holds(part)

    def total(self, mask: Mask, *, nodes: bool) -> int:
        """Return the number of documents of rows, or of rows if ``nodes``."""
        if nodes:
            return int(mask.sum())
        seen = np.zeros(len(self._documents), dtype=bool)
        seen[np.array(self._document, dtype=np.int64)[mask]] = True
        return int(seen.sum())

    def entries(self, key: str) -> Entries:
        """Return the values of a key, of all rows."""
        if key in self._entries:
            return self._entries[key]
        scalars = self._scalars[key]
        scalars.extend(self._values[key])
        items = scalars.places[np.array(scalars.items, dtype=np.int64)]
        lengths = np.array(scalars.lengths, dtype=np.int64)
        codes = np.array(self._codes[key], dtype=np.int64)
        counts = lengths[codes]
        row = np.repeat(np.arange(len(codes)), counts)
        # The place of each entry in its list, after the start of the list in all items.
        place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        value = items[np.repeat((np.cumsum(lengths) - lengths)[codes], counts) + place]
        document = np.array(self._document, dtype=np.int64)[row]
        size = max(1, len(scalars.ordered))
        pairs, pair = np.unique(document * size + value, return_inverse=True)
        entries = Entries(
            scalars.ordered, scalars.keys, row, value, pair, pairs // size, pairs % size
        )
        self._entries[key] = entries
        return entries

    def visible_values(self, keys: Sequence[str], condition: Condition | None) -> VisibleValues:
        """Return the values of keys in the rows that satisfy a condition, in their order.

        It is the same object until something changes.
        """
        asked = condition, tuple(keys)
        if asked not in self._visible:
            mask = self.mask(condition)
            seen = {key: self.entries(key) for key in keys}
            if len(self._visible) >= _MOST_MASKS:
                self._visible = {}
            self._visible[asked] = {
                key: [entries.values[at] for at in np.unique(entries.value[mask[entries.row]])]
                for key, entries in seen.items()
            }
        return self._visible[asked]


class _Scalars:
    """The scalars in the metadata values of a key; only new values are looked at again.

    Attributes:
        items: The numbers of those of each value, one after the other.
        lengths: How many each value has.
        ordered: The distinct scalars, in their order.
        keys: What each is ordered by.
        places: The place of each number there.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._sorted: list[tuple[tuple[Any, ...], int, Scalar]] = []
        self.items, self.lengths = array("q"), array("q")
        self._arrange()

    def extend(self, values: Sequence[object]) -> None:
        """Add the values behind those that are there."""
        n_sorted = len(self._sorted)
        for value in values[len(self.lengths) :]:
            scalars = _scalars(value)
            self.lengths.append(len(scalars))
            for scalar in scalars:
                number = self._numbers.setdefault(_identity(scalar), len(self._sorted))
                self.items.append(number)
                if number == len(self._sorted):
                    self._sorted.append((order(scalar), number, scalar))
        if len(self._sorted) > n_sorted:
            self._sorted.sort()  # linear for few new ones
            self._arrange()

    def _arrange(self) -> None:
        self.keys = [key for key, *_ in self._sorted]
        self.ordered = [scalar for *_, scalar in self._sorted]
        self.places = np.empty(len(self._sorted), dtype=np.int64)
        self.places[[number for _, number, _ in self._sorted]] = np.arange(len(self._sorted))


class StoredColumns:
    """The columns of a knowledge base; all its objects in this process share them.

    Attributes:
        lock: The lock of those who read the columns, or bring them up to date.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self._columns = Columns(())
        self._changed: set[str] | None = None  # nodes to read again; None for all
        self._noting = Lock()

    def note(self, node_ids: Iterable[str]) -> None:
        """Note nodes that were written or deleted, to read them again when they are needed."""
        with self._noting:
            if self._changed is not None:
                self._changed.update(node_ids)
                if len(self._changed) > _MOST_CHANGES:
                    self._changed = None

    def forget(self) -> None:
        """Read all nodes again when they are needed."""
        with self._noting:
            self._changed = None

    def of(self, keys: Collection[str], read: Read) -> Columns:
        """Return the columns as of now, with these keys among others; the caller has the lock."""
        columns = self._columns
        with self._noting:
            changed, self._changed = self._changed, set()
        try:
            is_wasteful = columns.waste > _MOST_CHANGES + len(columns)
            if changed is None or is_wasteful or not columns.keys.issuperset(keys):
                self._columns = columns = Columns.of({*columns.keys, *keys}, read(None))
            elif changed:
                stored = [*read(changed)]
                for node_id in changed:
                    columns.remove(node_id)
                for node in stored:
                    columns.put(node)
        except BaseException:
            self.forget()
            raise
        return columns


def _identity(value: object) -> Hashable:
    """Return what only the same metadata value has: 1 is 1.0, and neither true nor "1"."""
    if isinstance(value, list | tuple):
        return tuple(map(_identity, value))
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return isinstance(value, bool), value
    return dict  # no filter compares what is in it


def _scalars(value: object) -> list[Scalar]:
    """Return what a metadata value counts as, each once: its items if it is a list."""
    if isinstance(value, bool):
        return [value]
    items: Iterable[Any] = value if isinstance(value, list | tuple) else [value]
    scalars: list[Scalar] = [
        composed(item) if isinstance(item, str) else item
        for item in items
        if isinstance(item, str) or is_number(item)
    ]
    return [*{_identity(scalar): scalar for scalar in scalars}.values()]


def order(value: Scalar) -> tuple[Any, ...]:  # Any: a number or a text
    """Return what values are ordered by: their kind, then number, instant or text."""
    if isinstance(value, str):
        moment = instant(value)
        return (TEXT, value) if moment is None else (DATE, moment, value)
    return (BOOLEAN if isinstance(value, bool) else NUMBER, value)
