"""One call of ``KnowledgeBase.add``, step by step."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, Document, MetadataMode

from llama_retrieval_ext.errors import ModelMismatchError
from llama_retrieval_ext.ingest.documents import Given, Prepared, identified
from llama_retrieval_ext.ingest.grouping import Group, batches, grouped, name_of
from llama_retrieval_ext.ingest.ledger import Ledger
from llama_retrieval_ext.ingest.progress import progress
from llama_retrieval_ext.ingest.reader_ids import ReaderIds
from llama_retrieval_ext.ingest.report import IngestionReport
from llama_retrieval_ext.ingest.scoping import stamped
from llama_retrieval_ext.ingest.splitting import Splitter
from llama_retrieval_ext.ingest.tally import Tally
from llama_retrieval_ext.ingest.vectors import Embedder, check_dimension
from llama_retrieval_ext.ingest.writing import Writer


@dataclass(frozen=True, slots=True)
class Workshop:
    """What documents pass through on their way in."""

    splitter: Splitter
    embed_model: BaseEmbedding
    writer: Writer
    ledger: Ledger
    reader_ids: ReaderIds = field(default_factory=ReaderIds)


class Addition:
    """Adds documents, batch by batch: what fails is noted, the rest goes in.

    Args:
        workshop: What documents pass through.
        scope: The metadata that the caller's scope stands for; empty for none.
    """

    def __init__(self, workshop: Workshop, scope: Mapping[str, str]) -> None:
        self._workshop = workshop
        self._scope = scope
        self._embedder = Embedder(workshop.embed_model)
        self._tally = Tally()
        self._occurrences: Counter[object] = Counter()

    def run(self, items: Iterable[object], *, show_progress: bool) -> IngestionReport:
        """What came of each document.

        Raises:
            ConfigurationError: Something is neither a document nor a node.
            ModelMismatchError: The embedding model gives vectors of another dimension.
            StoreUnavailableError: The store takes no more; what it has taken stays.
        """
        groups = grouped(items)
        with progress(groups, show=show_progress) as advance:
            for batch in batches(groups):
                self._add(batch)
                advance(len(batch))
        return self._tally.report()

    def _add(self, groups: Sequence[Group]) -> None:
        changed = self._changed(self._identified(groups))
        prepared = self._prepared(changed)
        embedded = self._embedder.embedded(prepared)
        self._write(self._tally.passed([each.key for each in prepared], embedded))

    def _identified(self, groups: Sequence[Group]) -> list[Given]:
        found: list[Given] = []
        for group in map(self._recognised, groups):
            is_whole = isinstance(group[0], Document)
            fingerprint = self._workshop.splitter.fingerprint if is_whole else ""
            try:
                found += identified(group, scope=self._scope, fingerprint=fingerprint)
            except Exception as error:  # noqa: BLE001 - the report carries it
                self._tally.failed(name_of(group[0]), error)
        return [each for each in found if self._tally.is_new(each)]

    def _recognised(self, group: Group) -> Group:
        stable = self._workshop.reader_ids.stable
        return [stable(node, self._scope, self._occurrences) for node in group]

    def _changed(self, documents: Sequence[Given]) -> list[Given]:
        digests = self._workshop.ledger.digests(each.key for each in documents)
        changed: list[Given] = []
        for document, digest in zip(documents, digests, strict=True):
            if digest == document.digest:
                self._tally.unchanged()
            else:
                changed.append(document)
        return changed

    def _prepared(self, documents: Sequence[Given]) -> list[Prepared]:
        made = self._workshop.splitter.nodes_of(documents)
        prepared: list[Prepared] = []
        for document, nodes in zip(documents, made, strict=True):
            try:
                prepared += self._ready(document, nodes)
            except Exception as error:  # noqa: BLE001 - the report carries it
                self._tally.failed(document.key.ref, error)
        return prepared

    def _ready(self, document: Given, nodes: tuple[BaseNode, ...] | Exception) -> list[Prepared]:
        if isinstance(nodes, Exception):
            raise nodes
        told = tuple(stamped(node, document.key) for node in nodes if _says_something(node))
        if told:
            return [Prepared(document.key, document.digest, told)]
        self._tally.skipped(document.key.ref, "no text")
        self._workshop.writer.delete([document.key])
        return []

    def _write(self, documents: Sequence[Prepared]) -> None:
        if not documents:
            return
        with self._workshop.writer.lock:
            fitting = self._fitting(documents)
            outcomes = self._workshop.writer.write(fitting)
        for document, outcome in zip(fitting, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._tally.failed(document.key.ref, outcome)
            else:
                self._tally.stored(document, outcome)

    def _fitting(self, documents: Sequence[Prepared]) -> list[Prepared]:
        """The documents whose embeddings have the dimension of the knowledge base."""
        made = self._embedder.dimension
        recorded = self._workshop.ledger.dimension()
        dimension = recorded or made or len(documents[0].nodes[0].get_embedding())
        if made not in (None, dimension):
            raise ModelMismatchError(
                f"the embedding model gives vectors of dimension {made}, the knowledge base holds "
                f"vectors of dimension {dimension}; open it with the model that made those"
            )
        if recorded is None:
            self._workshop.ledger.record_dimension(dimension)
        fitting: list[Prepared] = []
        for document in documents:
            try:
                check_dimension(document, dimension)
            except ValueError as error:
                self._tally.failed(document.key.ref, error)
            else:
                fitting.append(document)
        return fitting


def _says_something(node: BaseNode) -> bool:
    """Whether there is anything to find it by."""
    return node.embedding is not None or bool(node.get_content(MetadataMode.NONE).strip())
