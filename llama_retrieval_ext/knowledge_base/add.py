"""One call of ``KnowledgeBase.add``, step by step."""

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias
from uuid import UUID

from llama_index.core.schema import BaseNode, Document

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DimensionMismatchError,
    ModelMismatchError,
    UnstableIdWarning,
)
from llama_retrieval_ext.knowledge_base.documents import (
    DocumentKey,
    Prepared,
    SourceDocument,
    batched,
    name_of,
    ref_of,
)
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
from llama_retrieval_ext.knowledge_base.preparation import Preparation, PreparedBatch
from llama_retrieval_ext.knowledge_base.report import IngestionReport, Tally, progress
from llama_retrieval_ext.knowledge_base.write import Writer
from llama_retrieval_ext.query import KB_KEY, SOURCE_KEY, TENANT_KEY, source_in

Group = list[BaseNode]

# A batch is 64 documents to split, or 4,096 nodes: large enough for the throughput of models and
# engines and for a negligible flush per batch, small enough to repeat after a crash.
_BATCH_WEIGHT = 4096
_DOCUMENT_WEIGHT = 64


def grouped(items: Iterable[object]) -> Sequence[Group] | Iterator[Group]:
    """Return groups of one ``Document``, or of the nodes of one document.

    In a list or tuple, the nodes of a document may be anywhere. An iterator is not read ahead:
    the nodes of a document must be consecutive.
    """
    if isinstance(items, str | BaseNode) or not isinstance(items, Iterable):
        raise ConfigurationError(
            f"expected documents or nodes, got one {type(items).__name__}; write [...] around it"
            + (", as Document(text=...)" if isinstance(items, str) else "")
        )
    named = _named(items)
    if not isinstance(items, Sequence):
        return ([node for _, node in group] for _, group in groupby(named, lambda each: each[0]))
    groups: dict[object, Group] = {}
    for name, node in named:
        groups.setdefault(name, []).append(node)
    return list(groups.values())


def group_batches(groups: Iterable[Group]) -> Iterator[list[Group]]:
    """Yield groups in batches, each written in one step."""
    return batched(groups, _weight, _BATCH_WEIGHT)


def _weight(group: Group) -> int:
    return _DOCUMENT_WEIGHT if isinstance(group[0], Document) else len(group)


def _named(items: Iterable[object]) -> Iterator[tuple[object, BaseNode]]:
    numbers = count()
    for item in items:
        if not isinstance(item, BaseNode):
            raise ConfigurationError(
                f"expected LlamaIndex documents or nodes, got {type(item).__name__}; "
                "for text write Document(text=..., id_=...)"
            )
        # Documents are never grouped: with the same id, the right one would be ambiguous.
        yield next(numbers) if isinstance(item, Document) else name_of(item), item


_UUID4: Final = 4
# Metadata in which LlamaIndex's readers name the file of a document and the part of it.
_LABEL: Final = "page_label"
_FILE_NAME: Final = "file_name"
_VERSION_KEYS: Final = ("file_size", "last_modified_date")

_Group: TypeAlias = tuple[str, str, str]


@dataclass
class _Parts:
    """The documents of one version of a file or of a page."""

    version: object
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)


class ReaderIds:
    """Replaces random ids by ids made from the file and the page or position.

    The ids are the same in every process. The documents of a file may be added in several calls:
    while the file is unchanged, a document with another text is another part of the file.
    """

    def __init__(self) -> None:
        self._parts: dict[_Group, _Parts] = {}
        self._lock = Lock()
        self._has_warned = False

    def stable(
        self, node: BaseNode, scope: Mapping[str, str], occurrences: Counter[object]
    ) -> BaseNode:
        """Return a node unchanged, or a document with a stable id; count the texts of the call."""
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
    """Return whether a document was read from a file and has a random LlamaIndex id."""
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
    except (OSError, ValueError):  # not on this machine: use the recorded metadata
        return tuple(document.metadata.get(key) for key in _VERSION_KEYS)
    return status.st_mtime_ns, status.st_size


@dataclass(frozen=True, slots=True)
class IngestionParts:
    """The components that add documents."""

    preparation: Preparation
    writer: Writer
    ledger: Ledger
    reader_ids: ReaderIds = field(default_factory=ReaderIds)


class Addition:
    """Adds documents batch by batch; records failures and stores the rest.

    `run` performs all steps. `changed_in` or `changed`, then `store` are the single steps, for
    callers that prepare documents in other processes. The scope is the metadata of the caller's.
    """

    def __init__(self, parts: IngestionParts, scope: Mapping[str, str]) -> None:
        self.parts = parts
        self.scope = scope
        self.tally = Tally()
        self._occurrences: Counter[object] = Counter()

    def run(self, items: Iterable[object], *, show_progress: bool) -> IngestionReport:
        """Add documents and return the outcome of each."""
        groups = grouped(items)
        with progress(groups, show=show_progress) as advance:
            for batch in group_batches(groups):
                self.store(self.parts.preparation.prepared(self.changed_in(batch)))
                advance(len(batch))
        return self.tally.report()

    def changed_in(self, groups: Sequence[Group]) -> list[SourceDocument]:
        """Return the documents in groups of nodes that are not stored in this version."""
        stable = self.parts.reader_ids.stable
        recognised = (
            [stable(node, self.scope, self._occurrences) for node in group] for group in groups
        )
        return self.changed(
            self.parts.preparation.identified(recognised, self.scope, self.tally.failed)
        )

    def changed(self, documents: Sequence[SourceDocument]) -> list[SourceDocument]:
        """Return the documents that are not stored in this version, by keys and digests."""
        new = [each for each in documents if self.tally.is_new(each)]
        digests = self.parts.ledger.digests(each.key for each in new)
        changed: list[SourceDocument] = []
        for document, digest in zip(new, digests, strict=True):
            if digest == document.digest:
                self.tally.unchanged()
            else:
                changed.append(document)
        return changed

    def store(self, batch: PreparedBatch) -> None:
        """Write prepared documents and record the outcome of each."""
        ready: list[Prepared] = []
        for key, result in batch.results.items():
            if isinstance(result, Exception):
                self.tally.failed(key.ref, result)
            elif result.nodes:
                ready.append(result)
            else:
                self._skip(key)
        if not ready:
            return
        with self.parts.writer.lock:
            fitting = self._fitting(ready, batch.dimension)
            outcomes = self.parts.writer.write(fitting)
        for document, outcome in zip(fitting, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self.tally.failed(document.key.ref, outcome)
            else:
                self.tally.stored(document, outcome)

    def _skip(self, key: DocumentKey) -> None:
        self.tally.skipped(key.ref, "no text")
        try:
            self.parts.writer.delete([key])
        except Exception as error:  # noqa: BLE001 - the report carries it
            self.tally.failed(key.ref, error)

    def _fitting(self, documents: Sequence[Prepared], made: int | None) -> list[Prepared]:
        """Return the documents whose embeddings have the dimension of the knowledge base."""
        recorded = self.parts.ledger.dimension()
        dimension = recorded or made or len(documents[0].nodes[0].get_embedding())
        if made not in (None, dimension):
            raise ModelMismatchError(
                f"the embedding model gives vectors of dimension {made}, the knowledge base holds "
                f"vectors of dimension {dimension}; open it with the model that made those"
            )
        if recorded is None:
            self.parts.ledger.record_dimension(dimension)
        fitting: list[Prepared] = []
        for document in documents:
            lengths = {node.node_id: len(node.get_embedding()) for node in document.nodes}
            wrong = next((id_ for id_, length in lengths.items() if length != dimension), None)
            if wrong is None:
                fitting.append(document)
                continue
            error = DimensionMismatchError(
                f"the embedding of node {wrong!r} has {lengths[wrong]} numbers, the knowledge base "
                f"has {dimension}; leave it out and it is made"
            )
            self.tally.failed(document.key.ref, error)
        return fitting
