"""Prepares documents for storage: splits them, and sets ids and embeddings of their nodes."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID, uuid5

from llama_index.core.base.embeddings.base import BaseEmbedding
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
    Allowed,
    SourceDocument,
    allowed_by,
    check_ids,
    check_transformations,
    digest_of,
    each_or_error,
    fingerprint_of,
    name_of,
    stamped,
)
from llama_retrieval_ext.knowledge_base.graph import Extraction
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    Prepared,
    key_of_node,
    ref_of,
    with_allowed,
)
from llama_retrieval_ext.knowledge_base.long_texts import Watch, for_long_texts, split_by
from llama_retrieval_ext.knowledge_base.passages import PassageParser, described
from llama_retrieval_ext.knowledge_base.readers.code import is_code, is_installed
from llama_retrieval_ext.knowledge_base.readers.outline import suffix_of

T = TypeVar("T")

# Current encoders truncate at 512 tokens; LlamaIndex's 1,024 would lose half a chunk.
# An overlap of an eighth keeps sentences at chunk borders findable.
_CHUNK_TOKENS = 512
_OVERLAP_TOKENS = 64
_NONE: Mapping[str, Sequence[float]] = MappingProxyType({})
# The model's batches in a step of the progress bar.
_STEP_BATCHES = 16


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
            isinstance(each, PassageParser) for each in self._transformations
        )

    @property
    def description(self) -> str:
        """Transformations with their sizes, for people."""
        return ", ".join(map(described, self._transformations))

    def nodes_of(
        self, documents: Sequence[SourceDocument], watch: Watch = float
    ) -> list[tuple[BaseNode, ...] | Exception]:
        """Return the nodes of each document, or its error."""
        whole = [each for each in documents if each.is_whole]
        made = iter(each_or_error(whole, lambda some: self._transformed(some, watch)))
        return [next(made) if each.is_whole else each.nodes for each in documents]

    @cached_property
    def _transformations(self) -> Sequence[TransformComponent]:
        if self._given is not None:
            return list(self._given)
        return [PassageParser(chunk_size=_CHUNK_TOKENS, chunk_overlap=_OVERLAP_TOKENS)]

    def _transformed(
        self, documents: Sequence[SourceDocument], watch: Watch
    ) -> list[tuple[BaseNode, ...]]:
        transformations = [
            each.watched(watch) if isinstance(each, PassageParser) else for_long_texts(each, watch)
            for each in self._transformations
        ]

        def split() -> Sequence[BaseNode]:
            # Transformations may modify their input.
            copies = [each.nodes[0].model_copy(deep=True) for each in documents]
            return run_transformations(copies, transformations)

        made = split_by(split)
        owned = _by_document(made, documents)
        return [
            tuple(named(_embedded_apart(nodes, each.nodes[0]), each.key))
            for each, nodes in zip(documents, owned, strict=True)
        ]


def _restored(kind: type[TransformComponent], state: dict[Any, Any]) -> TransformComponent:
    transformation = kind.__new__(kind)
    BaseModel.__setstate__(transformation, state)
    return transformation


def _by_document(
    nodes: Sequence[BaseNode], documents: Sequence[SourceDocument]
) -> list[list[BaseNode]]:
    """Return the nodes by document; raise if their document is ambiguous."""
    if len(documents) == 1:
        return [[_as_node(node) for node in nodes]]
    owned: dict[str, list[BaseNode]] = {each.key.ref: [] for each in documents}
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


class Embedder:
    """Embeds nodes with the batch size of its model, except texts whose embedding is known.

    It calls `watch` with the number of characters after some batches.
    """

    def __init__(
        self,
        model: BaseEmbedding,
        known: Mapping[str, Sequence[float]] = _NONE,
        watch: Watch = float,
    ) -> None:
        self.model = model
        self._known = known
        self._watch = watch
        self.dimension: int | None = None  # of its vectors; None before the first

    def embedded(self, documents: Sequence[Prepared]) -> list[Prepared | Exception]:
        """Return each document with an embedding on every node, or its error."""
        return [_checked(each) for each in each_or_error(documents, self._embedded)]

    def _embedded(self, documents: Sequence[Prepared]) -> list[Prepared]:
        bare = [node for each in documents for node in each.nodes if node.embedding is None]
        if not bare:
            return list(documents)
        texts = [node.get_content(MetadataMode.EMBED) for node in bare]
        vectors = iter(self._vectors([text for text in texts if text not in self._known]))
        made = iter([self._known[each] if each in self._known else next(vectors) for each in texts])

        def embedded(node: BaseNode) -> BaseNode:
            if node.embedding is not None:
                return node
            return node.model_copy(update={"embedding": list(next(made))})

        return [replace(each, nodes=tuple(map(embedded, each.nodes))) for each in documents]

    def _vectors(self, texts: list[str]) -> list[list[float]]:
        if not texts:
            return []
        vectors: list[list[float]] = []
        step = _STEP_BATCHES * self.model.embed_batch_size
        for start in range(0, len(texts), step):
            some = texts[start : start + step]
            vectors += self.model.get_text_embedding_batch(some)
            self._watch(sum(map(len, some)))
        if len(vectors) != len(texts):
            raise ConfigurationError(
                f"{type(self.model).__name__} gave {len(vectors)} embeddings for {len(texts)} texts"
            )
        self.dimension = len(vectors[0])
        return vectors


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
    # A sum is finite only if every number is, and takes a third of the time of single checks.
    return bool(embedding) and math.isfinite(sum(embedding))


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """Documents ready to be written, without nodes if they have no text, or their errors."""

    results: Mapping[DocumentKey, Prepared | Exception]
    dimension: int | None = None  # of the vectors that the model returned; None if not called
    splitting: str = ""  # how documents were split; empty if all were nodes


@dataclass(frozen=True, slots=True)
class Preparation:
    """The steps before documents are written; picklable, with its model."""

    splitter: Splitter
    embed_model: BaseEmbedding
    extraction: Extraction | None = None

    def identified(
        self,
        groups: Iterable[Sequence[BaseNode]],
        scope: Mapping[str, str],
        failed: Callable[[str, Exception], object],
        allowed: Allowed = None,
    ) -> list[SourceDocument]:
        """Return the documents in groups of nodes with one document id: one for each scope.

        `scope` is the metadata of the caller's scope; `failed` gets the id and error of the others.
        """
        found: list[SourceDocument] = []
        for group in groups:
            try:
                found += self._documents_in(group, scope, allowed)
            except Exception as error:  # noqa: BLE001 - the report carries it
                failed(name_of(group[0]), error)
        return found

    def fingerprint(self, *, is_whole: bool, has_code: bool = False) -> str:
        """Return the settings on which the nodes of a document depend, or of given nodes."""
        cut = self.splitter.fingerprint if is_whole else ""
        if is_whole and has_code and self.splitter.cuts_code:
            cut += " code"
        return cut if self.extraction is None else cut + self.extraction.fingerprint

    def _documents_in(
        self, group: Sequence[BaseNode], scope: Mapping[str, str], allowed: Allowed
    ) -> list[SourceDocument]:
        members: dict[DocumentKey, list[BaseNode]] = {}
        for node in group:
            members.setdefault(key_of_node(node, scope), []).append(node)
        for key, own in members.items():
            check_ids(key, own)
        fingerprint = self.fingerprint(
            is_whole=isinstance(group[0], Document), has_code=is_code(suffix_of(group[0]))
        )
        found: list[SourceDocument] = []
        for key, own in members.items():
            bare = tuple(with_allowed(node, ()) for node in own)  # splitters count its length
            digest = digest_of(bare, fingerprint)
            found.append(SourceDocument(key, bare, digest, allowed_by(own, allowed)))
        return found

    def prepared(
        self,
        documents: Sequence[SourceDocument],
        known: Mapping[str, Sequence[float]] = _NONE,
        watch: Watch = float,
    ) -> PreparedBatch:
        """Return documents ready to be stored, or the error of each; their keys must differ.

        `known` has embeddings by the text that was embedded. `watch` is called with a number of
        characters after parts of long texts are split, and while texts are embedded.
        """
        embedder = Embedder(self.embed_model, known, watch)
        made = self.splitter.nodes_of(documents, watch)
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
        is_split = any(each.is_whole for each in documents)
        splitting = self.splitter.description if is_split else ""
        return PreparedBatch(results, embedder.dimension, splitting)


def _with_text(
    document: SourceDocument, nodes: tuple[BaseNode, ...] | Exception
) -> Prepared | Exception:
    if isinstance(nodes, Exception):
        return nodes
    try:
        kept = tuple(stamped(node, document.key) for node in nodes if is_searchable(node))
    except Exception as error:  # noqa: BLE001 - the document's result
        return error
    made = Prepared(document.key, document.digest, kept, keeps_allowed=document.allowed is None)
    return made.shared(document.allowed) if kept and document.allowed else made


def is_searchable(node: BaseNode) -> bool:
    """Return whether a node has text or an embedding."""
    return node.embedding is not None or bool(node.get_content(MetadataMode.NONE).strip())


# UUID namespace of this package's chunks: must never change.
_NAMESPACE = UUID("6b0a4f6e-6d2c-4a4e-9d5d-0c8b0b6f5a11")


def named(nodes: Sequence[BaseNode], key: DocumentKey) -> list[BaseNode]:
    """Return copies of a document's new nodes with stable ids and updated references.

    An id depends on the document, the node's text, and the number of earlier nodes with that
    text, so that a chunk keeps its id when text is inserted before it. Ids are UUIDs, which
    every engine accepts.
    """
    seen: Counter[str] = Counter()
    ids: dict[str, str] = {}
    for node in nodes:
        if node.node_id in ids:
            raise DuplicateNodeError(
                f"the transformations gave two nodes of document {key.ref!r} the id "
                f"{node.node_id!r}; each must be a node of its own",
                node.node_id,
            )
        text = node.get_content(MetadataMode.NONE)
        ids[node.node_id] = str(uuid5(_NAMESPACE, json.dumps([*key, text, seen[text]])))
        seen[text] += 1
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
