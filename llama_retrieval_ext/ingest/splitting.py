"""Documents through the transformations: what comes out are their nodes, under lasting ids."""

from collections.abc import Sequence
from functools import cached_property

from llama_index.core.ingestion import run_transformations
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode, Document, Node, TextNode, TransformComponent

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.ingest.digest import fingerprint_of
from llama_retrieval_ext.ingest.documents import Given, ref_of
from llama_retrieval_ext.ingest.isolation import isolated
from llama_retrieval_ext.ingest.naming import named

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

    @cached_property
    def fingerprint(self) -> str:
        """What the transformations are and how they are set up, as far as they tell."""
        return fingerprint_of(self._transformations)

    def nodes_of(self, documents: Sequence[Given]) -> list[tuple[BaseNode, ...] | Exception]:
        """The nodes of each document, or what went wrong with it."""
        whole = [each for each in documents if each.is_whole]
        made = iter(isolated(whole, self._transformed))
        return [next(made) if each.is_whole else each.nodes for each in documents]

    @cached_property
    def _transformations(self) -> Sequence[TransformComponent]:
        if self._given is not None:
            return list(self._given)
        # Made when it is needed: its tokenizer takes a quarter of a second to load.
        return [SentenceSplitter(chunk_size=_CHUNK_TOKENS, chunk_overlap=_OVERLAP_TOKENS)]

    def _transformed(self, documents: Sequence[Given]) -> list[tuple[BaseNode, ...]]:
        # Transformations may change what they get; these are the caller's.
        copies = [each.nodes[0].model_copy(deep=True) for each in documents]
        made = run_transformations(copies, self._transformations)
        owned = _by_document(made, documents)
        return [
            tuple(named(_embedded_apart(nodes, each.nodes[0]), each.key))
            for each, nodes in zip(documents, owned, strict=True)
        ]


def _by_document(nodes: Sequence[BaseNode], documents: Sequence[Given]) -> list[list[BaseNode]]:
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
