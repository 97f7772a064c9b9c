"""Embeddings for the nodes that have none."""

import math
from collections.abc import Sequence

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, MetadataMode

from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError
from llama_retrieval_ext.ingest.documents import Prepared
from llama_retrieval_ext.ingest.isolation import isolated


class Embedder:
    """Embeds nodes in the batches of its model.

    Attributes:
        model: The embedding model.
        dimension: Of the vectors it made; None until it made one.
    """

    def __init__(self, model: BaseEmbedding) -> None:
        self.model = model
        self.dimension: int | None = None

    def embedded(self, documents: Sequence[Prepared]) -> list[Prepared | Exception]:
        """The documents with an embedding on every node, or what went wrong with each."""
        return [_checked(each) for each in isolated(documents, self._embedded)]

    def _embedded(self, documents: Sequence[Prepared]) -> list[Prepared]:
        bare = [node for each in documents for node in each.nodes if node.embedding is None]
        if not bare:
            return list(documents)
        texts = [node.get_content(MetadataMode.EMBED) for node in bare]
        vectors = self.model.get_text_embedding_batch(texts)
        if len(vectors) != len(texts):
            raise ConfigurationError(
                f"{type(self.model).__name__} gave {len(vectors)} embeddings for {len(texts)} texts"
            )
        self.dimension = len(vectors[0])
        made = iter(vectors)
        return [
            Prepared(
                each.key,
                each.digest,
                tuple(
                    node.model_copy(update={"embedding": list(next(made))})
                    if node.embedding is None
                    else node
                    for node in each.nodes
                ),
            )
            for each in documents
        ]


def check_dimension(document: Prepared, dimension: int) -> None:
    """Nothing, if all embeddings of a document have this dimension.

    Raises:
        DimensionMismatchError: One has not.
    """
    for node in document.nodes:
        if len(node.get_embedding()) != dimension:
            raise DimensionMismatchError(
                f"the embedding of node {node.node_id!r} has {len(node.get_embedding())} numbers, "
                f"the knowledge base has {dimension}; leave it out to have it made"
            )


def _checked(document: Prepared | Exception) -> Prepared | Exception:
    if isinstance(document, Exception):
        return document
    bad = next((node for node in document.nodes if not _is_finite(node)), None)
    if bad is None:
        return document
    return ConfigurationError(
        f"the embedding of node {bad.node_id!r} is empty or has NaN or infinite numbers in it; "
        "embed it again"
    )


def _is_finite(node: BaseNode) -> bool:
    embedding = node.get_embedding()
    # A sum is finite only if every number is, and takes a third of the time of asking each.
    return bool(embedding) and math.isfinite(sum(embedding))
