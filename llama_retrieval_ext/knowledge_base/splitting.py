"""Splits documents into nodes; gives stable ids to nodes, and to documents with random ones."""

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias
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

from llama_retrieval_ext.errors import ConfigurationError, DuplicateNodeError, UnstableIdWarning
from llama_retrieval_ext.knowledge_base.documents import (
    SourceDocument,
    check_transformations,
    each_or_error,
    fingerprint_of,
)
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, ref_of
from llama_retrieval_ext.knowledge_base.passages import (
    PassageParser,
    Watch,
    for_long_texts,
    split_by,
)
from llama_retrieval_ext.knowledge_base.readers.code import is_installed
from llama_retrieval_ext.scope import KB_KEY, SOURCE_KEY, TENANT_KEY, page_in, source_in

# Current encoders truncate at 512 tokens; LlamaIndex's 1,024 would lose half a chunk.
# An overlap of an eighth keeps sentences at chunk borders findable.
_CHUNK_TOKENS = 512
_OVERLAP_TOKENS = 64
# Nodes of a long document that are in memory at a time.
GROUP: Final = 1024
_UUID4: Final = 4
# Metadata in which LlamaIndex's readers name the file of a document, and its version.
_FILE_NAME: Final = "file_name"
_VERSION_KEYS: Final = ("file_size", "last_modified_date")
_Group: TypeAlias = tuple[str, str, str]


class Splitter:
    """Splits documents into nodes by LlamaIndex transformations; documents as nodes stay."""

    def __init__(self, transformations: Sequence[TransformComponent] | None) -> None:
        if transformations is not None:
            example = "transformations=[SentenceSplitter(...)]"
            transformations = check_transformations(transformations, "transformations", example)
        self._given = transformations

    def __getstate__(self) -> dict[str, object]:
        # Includes fields that LlamaIndex excludes: a copy must split in the same way.
        given = None
        if self._given is not None:
            given = [(type(part), BaseModel.__getstate__(part)) for part in self._given]
        return {"given": given, "fingerprint": self.fingerprint}

    def __setstate__(self, state: dict[str, Any]) -> None:
        given = [(kind.__new__(kind), fields) for kind, fields in state["given"] or ()]
        for transformation, fields in given:
            BaseModel.__setstate__(transformation, fields)
        self._given = None if state["given"] is None else [part for part, _ in given]
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
        """Transformations with their sizes, and how a `PassageParser` cuts code, for people."""
        shown: list[str] = []
        for part in self._transformations:
            sizes = {name: getattr(part, name, None) for name in ("chunk_size", "chunk_overlap")}
            named = ", ".join(f"{name}={size}" for name, size in sizes.items() if size is not None)
            code = ""
            if isinstance(part, PassageParser):
                code = ", code by classes and functions" if is_installed() else ", code as text"
            shown.append(f"{type(part).__name__}({named}){code}")
        return ", ".join(shown)

    def nodes_of(
        self, documents: Sequence[SourceDocument], watch: Watch = float
    ) -> list[tuple[BaseNode, ...] | Exception]:
        """Return the nodes of each document, or its error."""
        whole = [document for document in documents if document.is_whole]
        made = iter(each_or_error(whole, partial(self._transformed, watch)))
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
                yield [_renamed(node, {node.node_id: node.node_id}, key, {}) for node in nodes]
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
        self, watch: Watch, documents: Sequence[SourceDocument]
    ) -> list[tuple[BaseNode, ...]]:
        if watch is float and self._given is None:
            transformations = self._transformations
        else:
            transformations = [
                part.watched(watch)
                if isinstance(part, PassageParser)
                else for_long_texts(part, watch)
                for part in self._transformations
            ]

        def split(documents: Sequence[SourceDocument]) -> Sequence[BaseNode]:
            # Transformations may modify their input.
            copies = [document.nodes[0].model_copy(deep=True) for document in documents]
            return run_transformations(copies, transformations)

        nodes = split_by(split, documents)
        by_ref: dict[str, list[BaseNode]] = {document.key.ref: [] for document in documents}
        if len(by_ref) < len(documents):
            raise ConfigurationError("two documents of a batch have the same id")
        for node in nodes:
            ref = documents[0].key.ref if len(documents) == 1 else ref_of(node)
            by_ref[ref].append(_as_node(node) if isinstance(node, Document) else node)
        return [_named(by_ref[document.key.ref], document) for document in documents]


def _passage_parser() -> PassageParser:
    return PassageParser(chunk_size=_CHUNK_TOKENS, chunk_overlap=_OVERLAP_TOKENS)


def _as_node(document: Document) -> BaseNode:
    """Return a document as a node."""
    fields = {name: getattr(document, name) for name in Node.model_fields}
    if document.image_resource or document.audio_resource or document.video_resource:
        return Node(**fields)
    fields = {name: fields[name] for name in TextNode.model_fields if name in fields}
    return TextNode(**fields, text=document.text)


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
        self._earlier: Counter[UUID] = Counter()  # nodes with a text, by the id of the first

    def next(self, text: str) -> str:
        """Return the id of the next node, which has this text."""
        first = uuid5(_NAMESPACE, json.dumps([*self._key, text, 0]))
        earlier = self._earlier[first]
        self._earlier[first] += 1
        if earlier:
            return str(uuid5(_NAMESPACE, json.dumps([*self._key, text, earlier])))
        return str(first)


def _named(nodes: Sequence[BaseNode], document: SourceDocument) -> tuple[BaseNode, ...]:
    """Return copies of a document's new nodes with stable ids and updated references.

    `NodeIds` says on what they depend. They have no embedding that splitters copied from the
    document.
    """
    key, embedding = document.key, document.nodes[0].embedding
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
    named: list[BaseNode] = []
    for node in nodes:
        is_copied = embedding is not None and len(nodes) > 1 and node.embedding == embedding
        named.append(_renamed(node, ids, key, {"embedding": None} if is_copied else {}))
    return tuple(named)


def _renamed(
    node: BaseNode, ids: Mapping[str, str], key: DocumentKey, update: Mapping[str, object]
) -> BaseNode:
    """Return a node with its new id, and those of the nodes and the document that it names."""
    relationships: dict[NodeRelationship, object] = {}
    for kind, related in node.relationships.items():
        several = related if isinstance(related, list) else [related]
        renamed = [
            info.model_copy(update={"node_id": ids[info.node_id]}) if info.node_id in ids else info
            for info in several
        ]
        relationships[kind] = renamed if isinstance(related, list) else renamed[0]
    source = node.relationships.get(NodeRelationship.SOURCE)
    relationships[NodeRelationship.SOURCE] = (
        source.model_copy(update={"node_id": key.ref})
        if isinstance(source, RelatedNodeInfo)
        else RelatedNodeInfo(node_id=key.ref, node_type=ObjectType.DOCUMENT)
    )
    new = {**update, "id_": ids[node.node_id], "relationships": relationships}
    if isinstance(node, IndexNode):
        new["index_id"] = ids.get(node.index_id, node.index_id)
    return node.model_copy(update=new)


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

    def recognised(
        self,
        groups: Iterable[Sequence[BaseNode]],
        scope: Mapping[str, str],
        occurrences: Counter[object],
    ) -> Iterator[list[BaseNode]]:
        """Yield groups with stable ids for random ones; count the texts of the call."""
        for group in groups:
            nodes: list[BaseNode] = []
            for node in group:
                try:
                    ref = ref_of(node)
                    uuid = UUID(ref)
                    is_random = uuid.version == _UUID4 and str(uuid) == ref
                except ValueError:
                    is_random = False
                nodes.append(self._stable(node, scope, occurrences) if is_random else node)
            yield nodes

    def _stable(
        self, node: BaseNode, scope: Mapping[str, str], occurrences: Counter[object]
    ) -> BaseNode:
        """Return a document with a stable id; a node, or what is of no file, unchanged."""
        file = source_in(node.metadata)
        if not file or not isinstance(node, Document):
            self._warn(node)
            return node
        label = page_in(node.metadata)
        place = [scope.get(key) or node.metadata.get(key) for key in (TENANT_KEY, KB_KEY)]
        group = (repr(place), file, repr(label))
        text = hash(node.text)
        times = occurrences[*group, text]
        occurrences[*group, text] += 1
        version = _version_of(node, file)
        with self._lock:
            parts = self._parts.get(group)
            if parts is None or parts.version != version:
                parts = self._parts[group] = _Parts(version)
            number = parts.numbers.setdefault((text, times), len(parts.numbers))
        page = f"_page_{label}" if label is not None else ""
        part = f"_part_{number}" if number or not page else ""
        return node.model_copy(update={"id_": f"{file}{page}{part}"})

    def _warn(self, node: BaseNode) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        name = node.metadata.get(SOURCE_KEY) or node.metadata.get(_FILE_NAME)
        whose = "" if name is None else f" of {name!r}"
        warnings.warn(
            f"the id {ref_of(node)!r} of a document{whose} is random, and its metadata do not say "
            "which part of which file it is: added again, it is another document. Read files with "
            "read_documents, or give documents an id, as in Document(text=..., id_=url)",
            UnstableIdWarning,
            stacklevel=2,
        )


def _version_of(document: BaseNode, file: str) -> object:
    try:
        status = Path(file).stat()
    except (OSError, ValueError):  # not on this machine: use the recorded metadata
        return tuple(document.metadata.get(key) for key in _VERSION_KEYS)
    return status.st_mtime_ns, status.st_size
