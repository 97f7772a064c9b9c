"""`Companion`: the records beside a store, read and written."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import StoreFormatError
from llama_retrieval_ext.ingest.companion.records import parts_of, record_of, text_of

# Whoever reads while another writes may see a head and miss its parts.
_TRIES = 5
# Ids in one request.
_MANY = 500


class RecordStore(Protocol):
    """What a companion needs of a store."""

    def add(self, nodes: Sequence[BaseNode]) -> object:
        """Add nodes, or replace them."""
        ...

    def get_nodes(self, node_ids: list[str] | None = None) -> list[BaseNode]:
        """The nodes with these ids; all for None."""
        ...

    def delete_nodes(self, node_ids: list[str] | None = None) -> object:
        """Delete the nodes with these ids."""
        ...


class Companion:
    """Records by name, in a store of their own.

    What is written is there when the call returns. Of one call each record is written as a whole or
    not at all; of several records some may be when it fails.

    Args:
        store: Holds nothing else.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._parts: dict[str, list[str]] = {}
        self._rubbish: list[str] = []

    def read(self, name: str) -> str | None:
        """A record; None where there is none.

        Raises:
            StoreFormatError: A part of it is missing.
        """
        for _ in range(_TRIES):
            heads = self._store.get_nodes(node_ids=[name])
            if not heads:
                return None
            wanted = parts_of(heads[0]) or []
            parts = self._store.get_nodes(node_ids=wanted) if wanted else []
            text = text_of(heads[0], {part.node_id: part for part in parts})
            if text is not None:
                self._note(name, wanted)
                return text
        raise _torn(name)

    def read_all(self) -> dict[str, str]:
        """All records, by name.

        Raises:
            StoreFormatError: A part of one is missing.
        """
        missing = ""
        for _ in range(_TRIES):
            nodes = {node.node_id: node for node in self._store.get_nodes()}
            heads = {
                id_: parts for id_, node in nodes.items() if (parts := parts_of(node)) is not None
            }
            texts = {name: text_of(nodes[name], nodes) for name in heads}
            whole = {name: text for name, text in texts.items() if text is not None}
            if len(whole) == len(texts):
                self._take_stock(heads, nodes)
                return whole
            missing = next(name for name, text in texts.items() if text is None)
        raise _torn(missing)

    def write(self, records: Mapping[str, str]) -> None:
        """Write records, by name."""
        made = [record_of(name, text) for name, text in records.items()]
        parts = [part for record in made for part in record.parts]
        if parts:
            self._store.add(parts)
        if made:
            self._store.add([record.head for record in made])
        for record in made:
            self._note(record.head.node_id, [part.node_id for part in record.parts])

    def delete(self, names: Iterable[str]) -> None:
        """Delete records; their parts go when it is tidied up."""
        gone = list(names)
        self._remove(gone)
        for name in gone:
            self._note(name, [])

    def delete_later(self, names: Iterable[str]) -> None:
        """Delete records that nobody looks for when it is tidied up."""
        for name in names:
            self._note(name, [])
            self._rubbish.append(name)

    def tidy(self) -> None:
        """Delete what belongs to no record any more."""
        self._remove(self._rubbish)
        self._rubbish.clear()

    def _remove(self, ids: Sequence[str]) -> None:
        left = iter(ids)
        while some := list(islice(left, _MANY)):
            self._store.delete_nodes(node_ids=some)

    def _note(self, name: str, parts: list[str]) -> None:
        kept = set(parts)
        self._rubbish += [part for part in self._parts.pop(name, []) if part not in kept]
        if parts:
            self._parts[name] = parts

    def _take_stock(self, heads: Mapping[str, list[str]], nodes: Mapping[str, BaseNode]) -> None:
        self._parts = {name: parts for name, parts in heads.items() if parts}
        used = {*heads, *(part for parts in self._parts.values() for part in parts)}
        self._rubbish = [id_ for id_ in nodes if id_ not in used]


def _torn(name: str) -> StoreFormatError:
    return StoreFormatError(
        f"the ledger of the knowledge base has lost a part of its record {name!r}; restore its "
        "collection, whose name ends in __ledger, from a backup, or index the documents again"
    )
