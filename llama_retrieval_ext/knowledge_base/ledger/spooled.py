"""`SpooledDocument`: a long document ready to be stored, with its nodes in a temporary file."""

import pickle
from collections.abc import Iterator, Sequence
from copy import copy
from typing import IO

from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    Prepared,
    content_of,
    version_of,
)


class SpooledDocument:
    """A document ready to be stored, as `Prepared`, whose nodes are read in parts.

    Its creator owns the file, and appends parts until it is written.
    """

    def __init__(
        self, key: DocumentKey, content: str, allowed: tuple[str, ...] | None, file: IO[bytes]
    ) -> None:
        self.key = key
        self.digest = version_of(content, allowed or ())
        self.allowed = allowed or ()
        self.keeps_allowed = allowed is None
        self.source = ""
        self.node_ids: list[str] = []
        self.dimensions: dict[int, str] = {}
        self.size_bytes = 0
        self._file = file
        self._starts: list[int] = []

    def append(self, part: Prepared) -> None:
        """Write the next nodes to the file."""
        if not part.nodes:
            return
        self.source = self.source or part.source
        self.node_ids += part.node_ids
        for dimension, node_id in part.dimensions.items():
            self.dimensions.setdefault(dimension, node_id)
        self.size_bytes += part.size_bytes
        self._starts.append(self._file.tell())
        pickle.dump(part, self._file)

    def shared(self, allowed: Sequence[str]) -> "SpooledDocument":
        """Return the document as visible to these principals; empty for everyone."""
        shared = copy(self)
        shared.allowed = tuple(allowed)
        shared.digest = version_of(content_of(self.digest), allowed)
        return shared

    @property
    def n_parts(self) -> int:
        """The number of its parts."""
        return len(self._starts)

    def parts(self) -> Iterator[Prepared]:
        """Yield documents with this key and version, each with the next nodes."""
        for start in self._starts:
            self._file.seek(start)
            part: Prepared = pickle.load(self._file)  # noqa: S301 - its own
            yield part.shared(self.allowed)
