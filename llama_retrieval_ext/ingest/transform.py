"""Documents through the transformations: what comes out are their nodes, under lasting ids."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import run_transformations
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import (
    BaseNode,
    Document,
    MetadataMode,
    Node,
    TextNode,
    TransformComponent,
)
from pydantic import BaseModel

from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError
from llama_retrieval_ext.ingest.documents import (
    Prepared,
    SourceDocument,
    fingerprint_of,
    named,
    ref_of,
)

A = TypeVar("A")
B = TypeVar("B")

# Encoders of today read 512 tokens and drop the rest; LlamaIndex's 1,024 would lose half a chunk.
# An overlap of an eighth keeps sentences at the seams findable.
_CHUNK_TOKENS = 512
_OVERLAP_TOKENS = 64


class Splitter:
    """Makes nodes of documents; nodes that were given as nodes stay as they are.

    Args:
        transformations: LlamaIndex transformations, run in their order; None for a
            ``SentenceSplitter`` of 512 tokens with an overlap of 64.

    Raises:
        ConfigurationError: One is not a LlamaIndex transformation.
    """

    def __init__(self, transformations: Sequence[TransformComponent] | None) -> None:
        for each in transformations or []:
            if not isinstance(each, TransformComponent):
                raise ConfigurationError(
                    f"expected LlamaIndex transformations, got {type(each).__name__}; write "
                    "transformations=[SentenceSplitter(...)], for instance"
                )
        self._given = transformations

    def __getstate__(self) -> dict[str, object]:
        # With what LlamaIndex leaves out of its own: a copy must not split in another way.
        given = (
            None if self._given is None else [(type(each), _state(each)) for each in self._given]
        )
        return {"given": given, "fingerprint": self.fingerprint}

    def __setstate__(self, state: dict[str, Any]) -> None:
        given = state["given"]
        self._given = None if given is None else [_restored(*each) for each in given]
        self.fingerprint = state["fingerprint"]

    @cached_property
    def fingerprint(self) -> str:
        """What the transformations are and how they are set up, as far as they tell."""
        return fingerprint_of(self._transformations)

    def nodes_of(
        self, documents: Sequence[SourceDocument]
    ) -> list[tuple[BaseNode, ...] | Exception]:
        """The nodes of each document, or what went wrong with it."""
        whole = [each for each in documents if each.is_whole]
        made = iter(each_or_error(whole, self._transformed))
        return [next(made) if each.is_whole else each.nodes for each in documents]

    @cached_property
    def _transformations(self) -> Sequence[TransformComponent]:
        if self._given is not None:
            return list(self._given)
        # Made when it is needed: its tokenizer takes a quarter of a second to load.
        return [SentenceSplitter(chunk_size=_CHUNK_TOKENS, chunk_overlap=_OVERLAP_TOKENS)]

    def _transformed(self, documents: Sequence[SourceDocument]) -> list[tuple[BaseNode, ...]]:
        made = split_by(lambda: run_transformations(_copies(documents), self._transformations))
        owned = _by_document(made, documents)
        return [
            tuple(named(_embedded_apart(nodes, each.nodes[0]), each.key))
            for each, nodes in zip(documents, owned, strict=True)
        ]


def split_by(split: Callable[[], A]) -> A:
    """Return the result of a function that splits text; call it again if NLTK refuses its files.

    NLTK refuses files with several hard links, which uv makes when it installs a package.
    LlamaIndex's sentence splitter reads such a file at its first use only, and does not need it.

    Args:
        split: The function.
    """
    try:
        return split()
    except PermissionError:
        return split()


def _copies(documents: Sequence[SourceDocument]) -> list[BaseNode]:
    """The nodes to transform: transformations may change what they get, the caller's stay."""
    return [each.nodes[0].model_copy(deep=True) for each in documents]


def _state(transformation: TransformComponent) -> dict[Any, Any]:
    return BaseModel.__getstate__(transformation)


def _restored(kind: type[TransformComponent], state: dict[Any, Any]) -> TransformComponent:
    transformation = kind.__new__(kind)
    BaseModel.__setstate__(transformation, state)
    return transformation


def _by_document(
    nodes: Sequence[BaseNode], documents: Sequence[SourceDocument]
) -> list[list[BaseNode]]:
    """Which nodes are whose; raises where that cannot be told, so that each is tried alone."""
    if len(documents) == 1:
        return [[_as_node(node) for node in nodes]]
    owned: dict[str, list[BaseNode]] = {each.key.ref: [] for each in documents}
    if len(owned) < len(documents):
        raise ConfigurationError("two documents of a batch have the same id")
    for node in nodes:
        owned[ref_of(node)].append(_as_node(node))
    return list(owned.values())


def _as_node(node: BaseNode) -> BaseNode:
    """A document that came through whole, as a node; anything else as it is."""
    if not isinstance(node, Document):
        return node
    fields = {name: getattr(node, name) for name in Node.model_fields}
    if node.image_resource or node.audio_resource or node.video_resource:
        return Node(**fields)
    return TextNode(
        **{name: fields[name] for name in TextNode.model_fields if name in fields}, text=node.text
    )


def _embedded_apart(nodes: list[BaseNode], document: BaseNode) -> list[BaseNode]:
    """The nodes without the embedding that splitters copy from a document to all its parts."""
    if document.embedding is None or len(nodes) == 1:
        return nodes
    return [
        node.model_copy(update={"embedding": None})
        if node.embedding == document.embedding
        else node
        for node in nodes
    ]


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
        return [_checked(each) for each in each_or_error(documents, self._embedded)]

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


def each_or_error(
    items: Sequence[A],
    work: Callable[[Sequence[A]], Sequence[B]],
    *,
    fatal: tuple[type[Exception], ...] = (),
) -> list[B | Exception]:
    """What becomes of each item, or the error that kept it from it.

    All are tried together; if that fails, each alone.

    Args:
        items: What to work on.
        work: Gives one result an item, in their order, or raises.
        fatal: Errors that are not any item's fault; they are raised.

    Examples:
        >>> each_or_error(["1", "x"], lambda texts: [int(text) for text in texts])
        [1, ValueError("invalid literal for int() with base 10: 'x'")]

    """
    if not items:
        return []
    try:
        return list(work(items))
    except fatal:
        raise
    except Exception as error:  # noqa: BLE001 - it is handed on as the item's result
        if len(items) == 1:
            return [error]
    return [result for item in items for result in each_or_error([item], work, fatal=fatal)]


def batched(items: Iterable[A], weight: Callable[[A], int], limit: int) -> Iterator[list[A]]:
    """Yield items in lists, each ended by the item with which it weighs `limit` or more.

    Examples:
        >>> list(batched([1, 2, 3, 4], lambda number: number, 3))
        [[1, 2], [3], [4]]

    """
    batch: list[A] = []
    total = 0
    for item in items:
        batch.append(item)
        total += weight(item)
        if total >= limit:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
