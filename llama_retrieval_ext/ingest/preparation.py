"""Documents made ready to be stored: identified, split, embedded; on this machine or another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, Document, MetadataMode

from llama_retrieval_ext.ingest.documents import (
    DocumentKey,
    Prepared,
    SourceDocument,
    identified,
    stamped,
)
from llama_retrieval_ext.ingest.graph.extraction import Extraction
from llama_retrieval_ext.ingest.transform import Embedder, Splitter


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents that are ready to be written, or why they are not.

    Attributes:
        results: By document: how it is to be stored, without nodes if it has no text; or an error.
        dimension: Of the vectors that the embedding model made; None if it made none.
    """

    results: Mapping[DocumentKey, Prepared | Exception]
    dimension: int | None = None


@dataclass(frozen=True, slots=True)
class Preparation:
    """What documents pass through before they are written. It can be pickled, with its model.

    Attributes:
        splitter: Makes nodes of documents.
        embed_model: Embeds nodes that have no embedding.
        extraction: Finds what goes into a graph; None without one.
    """

    splitter: Splitter
    embed_model: BaseEmbedding
    extraction: Extraction | None = None

    def identified(
        self, group: Sequence[BaseNode], scope: Mapping[str, str]
    ) -> list[SourceDocument]:
        """The documents that a group of nodes with one document id makes up; see `identified`."""
        is_whole = isinstance(group[0], Document)
        fingerprint = self.splitter.fingerprint if is_whole else ""
        if self.extraction is not None:
            fingerprint += self.extraction.fingerprint
        return identified(list(group), scope=scope, fingerprint=fingerprint)

    def prepared(self, documents: Sequence[SourceDocument]) -> Batch:
        """What is to be stored of documents, each with a key of its own.

        What fails is that document's result, and the others go on.
        """
        embedder = Embedder(self.embed_model)
        made = self.splitter.nodes_of(documents)
        results = {
            each.key: _with_text(each, nodes) for each, nodes in zip(documents, made, strict=True)
        }
        stages = [embedder.embedded]
        if self.extraction is not None:
            stages.append(self.extraction.extracted)
        for stage in stages:
            ready = [each for each in results.values() if isinstance(each, Prepared) and each.nodes]
            for document, result in zip(ready, stage(ready), strict=True):
                results[document.key] = result
        return Batch(results, embedder.dimension)


def _with_text(
    document: SourceDocument, nodes: tuple[BaseNode, ...] | Exception
) -> Prepared | Exception:
    if isinstance(nodes, Exception):
        return nodes
    try:
        kept = tuple(stamped(node, document.key) for node in nodes if _says_something(node))
    except Exception as error:  # noqa: BLE001 - it is handed on as the document's result
        return error
    return Prepared(document.key, document.digest, kept)


def _says_something(node: BaseNode) -> bool:
    """Whether there is anything to find it by."""
    return node.embedding is not None or bool(node.get_content(MetadataMode.NONE).strip())
