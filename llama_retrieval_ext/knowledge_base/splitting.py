"""Splits documents into nodes, and gives these stable ids."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final
from uuid import UUID, uuid5

from llama_index.core.ingestion import run_transformations
from llama_index.core.schema import (
    BaseNode,
    Document,
    IndexNode,
    MetadataMode,
    Node,
    NodeRelationship,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
    TransformComponent,
)
from pydantic import BaseModel

from llama_retrieval_ext.errors import ConfigurationError, DuplicateNodeError
from llama_retrieval_ext.knowledge_base.documents import (
    SourceDocument,
    check_transformations,
    each_or_error,
    fingerprint_of,
)
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, ref_of
from llama_retrieval_ext.knowledge_base.long_texts import Watch, for_long_texts, split_by
from llama_retrieval_ext.knowledge_base.passages import PassageParser
from llama_retrieval_ext.knowledge_base.readers.code import is_installed

# Current encoders truncate at 512 tokens; LlamaIndex's 1,024 would lose half a chunk.
# An overlap of an eighth keeps sentences at chunk borders findable.
_CHUNK_TOKENS = 512
_OVERLAP_TOKENS = 64
# Nodes of a long document that are in memory at a time.
GROUP: Final = 1024


class Splitter:
    """Splits documents into nodes by LlamaIndex transformations; documents as nodes stay."""

    def __init__(self, transformations: Sequence[TransformComponent] | None) -> None:
        if transformations is not None:
            example = "transformations=[SentenceSplitter(...)]"
            transformations = check_transformations(transformations, "transformations", example)
        self._given = transformations

    def __getstate__(self) -> dict[str, object]:
        # Includes fields that LlamaIndex excludes: a copy must split in the same way.
        given = (
            None
            if self._given is None
            else [(type(each), BaseModel.__getstate__(each)) for each in self._given]
        )
        return {"given": given, "fingerprint": self.fingerprint}

    def __setstate__(self, state: dict[str, Any]) -> None:
        given = state["given"]
        self._given = None if given is None else [_restored(*each) for each in given]
        self.fingerprint = state["fingerprint"]

    @cached_property
    def fingerprint(self) -> str:
        """Classes and settings of the transformations, as far as exposed."""
        return fingerprint_of(self._transformations)

    @property
    def cuts_code(self) -> bool:
        """Whether code is cut along classes and functions."""
        return is_installed() and any(
            isinstance(transformation, PassageParser) for transformation in self._transformations
        )

    @property
    def description(self) -> str:
        """Transformations with their sizes, for people."""
        return ", ".join(map(_described, self._transformations))

    def nodes_of(
        self, documents: Sequence[SourceDocument], watch: Watch = float
    ) -> list[tuple[BaseNode, ...] | Exception]:
        """Return the nodes of each document, or its error."""
        whole = [document for document in documents if document.is_whole]
        made = iter(each_or_error(whole, lambda some: self._transformed(some, watch)))
        return [next(made) if document.is_whole else document.nodes for document in documents]

    def groups_of(
        self, document: SourceDocument, watch: Watch = float
    ) -> Iterator[Sequence[BaseNode]]:
        """Yield the nodes of a whole document in groups; raise its error.

        Transformations of the user return all nodes at once.
        """
        whole, key = document.nodes[0], document.key
        if self._given is None and isinstance(whole, Document):
            ids = NodeIds(key)
            for nodes in _passage_parser().watched(watch).node_groups(whole, ids.next, GROUP):
                yield [_renamed(node, {node.node_id: node.node_id}, key) for node in nodes]
            return
        (made,) = self.nodes_of([document], watch)
        if isinstance(made, Exception):
            raise made
        for start in range(0, len(made), GROUP):
            yield made[start : start + GROUP]

    @cached_property
    def _transformations(self) -> Sequence[TransformComponent]:
        if self._given is not None:
            return list(self._given)
        return [_passage_parser()]

    def _transformed(
        self, documents: Sequence[SourceDocument], watch: Watch
    ) -> list[tuple[BaseNode, ...]]:
        transformations = [
            transformation.watched(watch)
            if isinstance(transformation, PassageParser)
            else for_long_texts(transformation, watch)
            for transformation in self._transformations
        ]

        def split(documents: Sequence[SourceDocument]) -> Sequence[BaseNode]:
            # Transformations may modify their input.
            copies = [document.nodes[0].model_copy(deep=True) for document in documents]
            return run_transformations(copies, transformations)

        made = split_by(split, documents)
        owned = _by_document(made, documents)
        return [
            tuple(named(_embedded_apart(nodes, each.nodes[0]), each.key))
            for each, nodes in zip(documents, owned, strict=True)
        ]


def _passage_parser() -> PassageParser:
    return PassageParser(chunk_size=_CHUNK_TOKENS, chunk_overlap=_OVERLAP_TOKENS)


def _restored(kind: type[TransformComponent], state: dict[Any, Any]) -> TransformComponent:
    transformation = kind.__new__(kind)
    BaseModel.__setstate__(transformation, state)
    return transformation


def _described(transformation: TransformComponent) -> str:
    """Return a transformation with its sizes, and how a `PassageParser` cuts code."""
    sizes = {name: getattr(transformation, name, None) for name in ("chunk_size", "chunk_overlap")}
    shown = ", ".join(f"{name}={size}" for name, size in sizes.items() if size is not None)
    code = ""
    if isinstance(transformation, PassageParser):
        code = ", code by classes and functions" if is_installed() else ", code as text"
    return f"{type(transformation).__name__}({shown}){code}"


def _by_document(
    nodes: Sequence[BaseNode], documents: Sequence[SourceDocument]
) -> list[list[BaseNode]]:
    """Return the nodes by document; raise if their document is ambiguous."""
    if len(documents) == 1:
        return [[_as_node(node) for node in nodes]]
    owned: dict[str, list[BaseNode]] = {document.key.ref: [] for document in documents}
    if len(owned) < len(documents):
        raise ConfigurationError("two documents of a batch have the same id")
    for node in nodes:
        owned[ref_of(node)].append(_as_node(node))
    return list(owned.values())


def _as_node(node: BaseNode) -> BaseNode:
    """Return a `Document` as a node, and other nodes unchanged."""
    if not isinstance(node, Document):
        return node
    fields = {name: getattr(node, name) for name in Node.model_fields}
    if node.image_resource or node.audio_resource or node.video_resource:
        return Node(**fields)
    return TextNode(
        **{name: fields[name] for name in TextNode.model_fields if name in fields}, text=node.text
    )


def _embedded_apart(nodes: list[BaseNode], document: BaseNode) -> list[BaseNode]:
    """Return nodes without the embedding that splitters copy from a document to its parts."""
    if document.embedding is None or len(nodes) == 1:
        return nodes
    return [
        node.model_copy(update={"embedding": None})
        if node.embedding == document.embedding
        else node
        for node in nodes
    ]


# UUID namespace of this package's chunks: must never change.
_NAMESPACE = UUID("6b0a4f6e-6d2c-4a4e-9d5d-0c8b0b6f5a11")


class NodeIds:
    """Gives the nodes of a document ids, in their order.

    An id depends on the document, the node's text, and the number of earlier nodes with that
    text, so that a chunk keeps its id when text is inserted before it. Ids are UUIDs, which
    every engine accepts.
    """

    def __init__(self, key: DocumentKey) -> None:
        self._key = key
        self._seen: Counter[str] = Counter()

    def next(self, text: str) -> str:
        """Return the id of the next node, which has this text."""
        first = self._id_of(text, 0)
        earlier = self._seen[first]
        self._seen[first] += 1
        return self._id_of(text, earlier) if earlier else first

    def _id_of(self, text: str, earlier: int) -> str:
        return str(uuid5(_NAMESPACE, json.dumps([*self._key, text, earlier])))


def named(nodes: Sequence[BaseNode], key: DocumentKey) -> list[BaseNode]:
    """Return copies of a document's new nodes with stable ids and updated references.

    `NodeIds` says on what they depend.
    """
    new = NodeIds(key)
    ids: dict[str, str] = {}
    for node in nodes:
        if node.node_id in ids:
            raise DuplicateNodeError(
                f"the transformations gave two nodes of document {key.ref!r} the id "
                f"{node.node_id!r}; each must be a node of its own",
                node.node_id,
            )
        ids[node.node_id] = new.next(node.get_content(MetadataMode.NONE))
    return [_renamed(node, ids, key) for node in nodes]


def _renamed(node: BaseNode, ids: Mapping[str, str], key: DocumentKey) -> BaseNode:
    relationships: dict[NodeRelationship, object] = {
        kind: [_refer(each, ids) for each in related]
        if isinstance(related, list)
        else _refer(related, ids)
        for kind, related in node.relationships.items()
    }
    relationships[NodeRelationship.SOURCE] = _source(node, key)
    update: dict[str, object] = {"id_": ids[node.node_id], "relationships": relationships}
    if isinstance(node, IndexNode):
        update["index_id"] = ids.get(node.index_id, node.index_id)
    return node.model_copy(update=update)


def _refer(related: RelatedNodeInfo, ids: Mapping[str, str]) -> RelatedNodeInfo:
    if related.node_id not in ids:
        return related
    return related.model_copy(update={"node_id": ids[related.node_id]})


def _source(node: BaseNode, key: DocumentKey) -> RelatedNodeInfo:
    source = node.relationships.get(NodeRelationship.SOURCE)
    if isinstance(source, RelatedNodeInfo):
        return source.model_copy(update={"node_id": key.ref})
    return RelatedNodeInfo(node_id=key.ref, node_type=ObjectType.DOCUMENT)
