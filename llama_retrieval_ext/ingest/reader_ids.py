"""Lasting ids for documents whose reader made up random ones."""

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias
from uuid import UUID

from llama_index.core.schema import BaseNode, Document

from llama_retrieval_ext.errors import UnstableIdWarning
from llama_retrieval_ext.ingest.documents import ref_of
from llama_retrieval_ext.query import KB_KEY, SOURCE_KEY, TENANT_KEY, source_in

_UUID4: Final = 4
# What LlamaIndex's readers say about a document's file and the part of it.
_LABEL: Final = "page_label"
_FILE_NAME: Final = "file_name"
_VERSION_KEYS: Final = ("file_size", "last_modified_date")

_Group: TypeAlias = tuple[str, str, str]


@dataclass
class _Parts:
    """The documents of one version of a file, or of one page of it."""

    version: object
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)


class ReaderIds:
    """Replaces random ids by ids made from the file and the page, or the number within the file.

    A file that was added before is recognised in any process. Its documents may come in several
    calls: as long as the file has not changed, one with another text is another part of it.
    """

    def __init__(self) -> None:
        self._parts: dict[_Group, _Parts] = {}
        self._lock = Lock()
        self._has_warned = False

    def stable(
        self, node: BaseNode, scope: Mapping[str, str], occurrences: Counter[object]
    ) -> BaseNode:
        """Return a document as it is, or a copy with a lasting id.

        Args:
            node: A document, or a node of one; nodes always stay as they are.
            scope: The metadata that the caller's scope stands for.
            occurrences: Of texts in this call; starts empty.
        """
        if not _is_made_up(node):
            return node
        file = source_in(node.metadata)
        if not file or not isinstance(node, Document):
            self._warn(node)
            return node
        label = node.metadata.get(_LABEL)
        place = [scope.get(key) or node.metadata.get(key) for key in (TENANT_KEY, KB_KEY)]
        group = (repr(place), file, repr(label))
        text = hash(node.text)
        times = occurrences[*group, text]
        occurrences[*group, text] += 1
        number = self._number(group, _version_of(node, file), (text, times))
        page = f"_page_{label}" if label is not None else ""
        part = f"_part_{number}" if number or not page else ""
        return node.model_copy(update={"id_": f"{file}{page}{part}"})

    def _number(self, group: _Group, version: object, text: tuple[int, int]) -> int:
        with self._lock:
            parts = self._parts.get(group)
            if parts is None or parts.version != version:
                parts = self._parts[group] = _Parts(version)
            return parts.numbers.setdefault(text, len(parts.numbers))

    def _warn(self, node: BaseNode) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        name = node.metadata.get(SOURCE_KEY) or node.metadata.get(_FILE_NAME)
        warnings.warn(
            f"the id {ref_of(node)!r} of a document of {name!r} is random, and its metadata do not "
            "say which part of which file it is: added again, it is another document. Read files "
            "with read_documents, or give documents an id",
            UnstableIdWarning,
            stacklevel=2,
        )


def _is_made_up(node: BaseNode) -> bool:
    """Whether a reader of files made a document and let LlamaIndex make up its id."""
    if not any(isinstance(node.metadata.get(key), str) for key in (_FILE_NAME, SOURCE_KEY)):
        return False
    try:
        ref = ref_of(node)
        return UUID(ref).version == _UUID4 and str(UUID(ref)) == ref
    except ValueError:
        return False


def _version_of(document: BaseNode, file: str) -> object:
    try:
        status = Path(file).stat()
    except (OSError, ValueError):  # it is elsewhere: the reader may have said how it was
        return tuple(document.metadata.get(key) for key in _VERSION_KEYS)
    return status.st_mtime_ns, status.st_size
