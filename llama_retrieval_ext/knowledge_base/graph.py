"""The graph of a knowledge base: opening it, writing passages to it, and extracting its rows.

Each passage is a source of rows in the graph: itself, its document, and its entities. Deleting or
replacing a passage deletes its rows, except those that other passages support.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from llama_index.core.graph_stores.types import (
    KG_NODES_KEY,
    KG_RELATIONS_KEY,
    TRIPLET_SOURCE_KEY,
    LabelledNode,
    Relation,
)
from llama_index.core.ingestion import run_transformations
from llama_index.core.schema import BaseNode, MetadataMode, TransformComponent
from pydantic_core import to_jsonable_python

from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.filters import SCOPE_KEYS
from llama_retrieval_ext.graph.backend import WritableGraph
from llama_retrieval_ext.graph.elements import Contents, Edge, GraphNode
from llama_retrieval_ext.graph.embedded import MEMORY, EmbeddedGraph
from llama_retrieval_ext.graph.open import Graph, graph_of, open_graph
from llama_retrieval_ext.graph.passage_links import (
    DOCUMENT_LABEL,
    MENTIONS,
    PassageLinks,
    passage_rows,
)
from llama_retrieval_ext.knowledge_base.documents import (
    check_transformations,
    each_or_error,
    fingerprint_of,
)
from llama_retrieval_ext.knowledge_base.ledger.prepared import Prepared
from llama_retrieval_ext.stores.engine.connection import SharedByPath
from llama_retrieval_ext.urls import Location, local_path

if TYPE_CHECKING:
    from llama_retrieval_ext.graph.passage_graphs import PassageGraphs

_IN_MEMORY = f"graph:{MEMORY}"
_OBJECT = ", given as an object"


@dataclass(frozen=True, slots=True)
class GraphSide:
    """The open graph of a knowledge base."""

    url: str  # a description for an object without a URL
    graph: WritableGraph
    graphs: "PassageGraphs"  # shared by all retrievers
    links: PassageLinks
    close: Callable[[], None]  # a graph that was passed as an object stays open

    def target(self, key: str) -> "GraphTarget":
        """Return the graph as a target of writes of the knowledge base with this key."""
        return GraphTarget(self.graph, self.links, key)


def open_graph_side(graph: Graph, links: PassageLinks | None, kb_url: str) -> GraphSide:
    """Open the graph of a knowledge base; both must be in memory or neither."""
    from llama_retrieval_ext.graph.passage_graphs import PassageGraphs  # noqa: PLC0415 - scipy

    links = PassageLinks() if links is None else links
    if isinstance(graph, str):
        opened, close = _shared(graph)
    else:
        opened, close = _writable(graph), lambda: None
    url = getattr(opened, "url", "") or f"a graph on {opened.engine}{_OBJECT}"
    if (url == _IN_MEMORY) == Location.of(kb_url).is_in_memory:
        return GraphSide(url, opened, PassageGraphs(opened, links=links), links, close)
    close()
    raise ConfigurationError(
        f"the knowledge base {kb_url} and its graph {url} must both be in memory or neither, since "
        "closing deletes what is in memory"
    )


def open_recorded(recorded: str, kb_url: str) -> GraphSide:
    """Open the graph recorded by a knowledge base."""
    if not recorded.endswith(_OBJECT):
        return open_graph_side(recorded, None, kb_url)
    raise ConfigurationError(
        f"{kb_url} has {recorded}, which only a program with that object can open: do this there, "
        "with the object passed as the graph; call clear() before it is removed"
    )


def _writable(graph: Graph) -> WritableGraph:
    backend = graph_of(graph)
    if isinstance(backend, WritableGraph):
        return backend
    raise ConfigurationError(
        f"a knowledge base cannot write to {backend!r}; pass graph='graph:./dir', 'neo4j://...', "
        "an EmbeddedPropertyGraphStore or a Neo4jPropertyGraphStore"
    )


def directory_of(url: str) -> Path | None:
    """Return the directory of an embedded graph; None for any other URL."""
    scheme, _, name = url.partition(":")
    is_directory = scheme == "graph" and name not in ("", MEMORY) and not name.startswith("//")
    return local_path(name) if is_directory else None


# Module state: a process can open a directory only once, but a knowledge base many times.
_directories: Final = SharedByPath(EmbeddedGraph, EmbeddedGraph.close)


def _shared(url: str) -> tuple[WritableGraph, Callable[[], None]]:
    """Open the graph at a URL; on disk, knowledge bases of this process share it."""
    path = directory_of(url)
    if path is None:
        opened = open_graph(url)
        return opened, opened.close
    shared = _directories.acquire(path)
    return shared.resource, partial(_directories.release, shared)


class GraphTarget:
    """A graph as the target of writes; the key distinguishes the rows of a knowledge base."""

    def __init__(self, graph: WritableGraph, links: PassageLinks, key: str) -> None:
        self._graph = graph
        self._links = links
        self._key = key

    def check(self, documents: Sequence[object]) -> None:  # noqa: ARG002 - of a `WriteTarget`
        """Raise if the graph cannot be reached or was closed."""
        self._graph.nodes([], scope=None)

    def upsert(self, documents: Sequence[Prepared], slot: int = 0) -> None:
        """Write the rows of passages, as sources of a slot."""
        written: set[tuple[object, str]] = set()
        contents: dict[str, Contents] = {}
        passages = (
            (node, document.rows.get(node.node_id, ""))
            for document in documents
            for node in document.nodes
        )
        for node, extracted in passages:
            rows = self._rows(node, extracted)
            # The first passage writes the row of its document; edges of the others support it.
            documents_of = {(n.partition, n.id): n for n in rows.nodes if n.label == DOCUMENT_LABEL}
            kept = [
                n for n in rows.nodes if (n.partition, n.id) not in documents_of.keys() & written
            ]
            written |= documents_of.keys()
            contents[self.source(node.node_id, slot)] = Contents(kept, rows.edges)
        if contents:
            self._graph.replace_sources(contents)

    def delete(self, node_ids: Sequence[str], slot: int | None = None) -> None:
        """Delete the rows of passages in a slot, or in both; missing ids are ignored."""
        slots = (0, 1) if slot is None else (slot,)
        sources = [self.source(node_id, number) for node_id in node_ids for number in slots]
        self._graph.delete_sources(sources, scope=None)

    def missing(self, passages: Sequence[BaseNode]) -> set[str]:
        """Return the ids of stored passages whose rows, but for extracted ones, are not there."""
        stored = self._claims_of([passage.node_id for passage in passages])
        missing = set()
        for passage in passages:
            rows, expected = stored[passage.node_id], self._rows(passage, "")
            texts = {(node.id, node.text) for node in expected.nodes if node.is_passage}
            edges = {edge.id for edge in expected.edges}
            if not (
                texts <= {(node.id, node.text) for node in rows.nodes}
                and edges <= {edge.id for edge in rows.edges}
            ):
                missing.add(passage.node_id)
        return missing

    def flush(self) -> None:
        """No-op: graphs write to disk at once."""

    def copy_unsaid_to(self, other: WritableGraph) -> None:
        """Copy the rows that come from no document, such as an equipment graph."""
        rows = self._graph.claims_of([""])[""]
        if rows.nodes or rows.edges:
            other.upsert(*rows)

    def rows_of(self, node_ids: Sequence[str]) -> dict[str, str]:
        """Return the rows of each passage as JSON, without the passage itself."""
        return {
            node_id: _packed(Contents([n for n in rows.nodes if n.id != node_id], rows.edges))
            for node_id, rows in self._claims_of(node_ids).items()
        }

    def moved_rows(self, before: Sequence[BaseNode], after: Sequence[BaseNode]) -> dict[str, str]:
        """Return the extracted rows of passages, for those that they are after a move, as JSON.

        Passages are the same if the same text is embedded. Empty unless all have been stored.
        """
        pairs = _same_passages(before, after)
        names = [(_names(old), _names(new)) for old, new in pairs]
        if any(len(old) != len(new) for old, new in names):
            return {}
        ids = {name: new for pair in names for name, new in zip(*pair, strict=True)}
        contents = self._claims_of([old.node_id for old, _ in pairs])
        moved: dict[str, str] = {}
        for old, new in pairs:
            rows, expected = contents[old.node_id], self._rows(old, "")
            if all(node.id != old.node_id for node in rows.nodes):
                return {}
            plain = {node.id for node in expected.nodes}, {edge.id for edge in expected.edges}
            extracted = Contents(
                [node for node in rows.nodes if node.id not in plain[0]],
                [edge for edge in rows.edges if edge.id not in plain[1]],
            )
            moved[new.node_id] = _packed(_renamed(extracted, ids, old.metadata, new.metadata))
        return moved

    def source(self, node_id: str, slot: int = 0) -> str:
        """Return the name of a passage as the source of its rows in a slot; see `row_id`."""
        return f"{self._key}{'+' if slot else ''}:{node_id}"

    def _claims_of(self, node_ids: Sequence[str]) -> dict[str, Contents]:
        """Return the rows of each passage, which are in one slot unless it is being written."""
        sources = {node_id: [self.source(node_id, slot) for slot in (0, 1)] for node_id in node_ids}
        rows = self._graph.claims_of([source for pair in sources.values() for source in pair])
        return {
            node_id: rows[first] if rows[first].nodes or rows[first].edges else rows[second]
            for node_id, (first, second) in sources.items()
        }

    def _rows(self, node: BaseNode, extracted: str) -> Contents:
        metadata = to_jsonable_python(node.metadata, inf_nan_mode="null", serialize_unknown=True)
        passage = node.model_copy(update={"metadata": metadata})
        nodes, edges = passage_rows([passage], self._links)
        # Entities are written as ends of edges only, so that their existing rows stay.
        nodes = [node for node in nodes if node.is_passage or node.label == DOCUMENT_LABEL]
        if not extracted:
            return Contents(nodes, edges)
        scope = {key: metadata[key] for key in SCOPE_KEYS if key in metadata}
        more = _unpacked(extracted, scope)
        return Contents(nodes + more.nodes, edges + more.edges)


def _same_passages(
    before: Sequence[BaseNode], after: Sequence[BaseNode]
) -> list[tuple[BaseNode, BaseNode]]:
    """Return each passage with the one that it was; [] if one was none."""
    left: dict[str, list[BaseNode]] = {}
    for node in sorted(before, key=lambda passage: getattr(passage, "start_char_idx", None) or 0):
        left.setdefault(node.get_content(MetadataMode.EMBED), []).append(node)
    pairs: list[tuple[BaseNode, BaseNode]] = []
    for node in after:
        same = left.get(node.get_content(MetadataMode.EMBED))
        if not same:
            return []
        pairs.append((same.pop(0), node))
    return pairs


def _names(passage: BaseNode) -> list[str]:
    """Return the ids in a graph of a passage, of its document, and of the passages around it."""
    ids = [passage.node_id, f"{DOCUMENT_LABEL}:{passage.ref_doc_id}"]
    for _, related in sorted(passage.relationships.items()):
        several = related if isinstance(related, list) else [related]
        ids += [relative.node_id for relative in several]
    return ids


def _renamed(
    rows: Contents,
    ids: Mapping[str, str],
    before: Mapping[str, object],
    after: Mapping[str, object],
) -> Contents:
    """Return rows with other ids, and with metadata of their passage as it is after a move."""

    def moved(properties: Mapping[str, object]) -> dict[str, object]:
        current = {
            key: after.get(key, value) if key in before and before[key] == value else value
            for key, value in properties.items()
        }
        return {
            key: ids.get(value, value) if isinstance(value, str) else value
            for key, value in current.items()
        }

    return Contents(
        [
            replace(node, id=ids.get(node.id, node.id), properties=moved(node.properties))
            for node in rows.nodes
        ],
        [
            Edge.of(
                ids.get(edge.source, edge.source),
                edge.type,
                ids.get(edge.target, edge.target),
                moved(edge.properties),
            )
            for edge in rows.edges
        ],
    )


def _packed(rows: Contents) -> str:
    """Return rows as JSON."""
    nodes = [
        (node.id, node.label, node.name, dict(node.properties), node.text, node.embedding)
        for node in rows.nodes
    ]
    edges = [(*edge.id, edge.properties) for edge in rows.edges]
    return json.dumps(
        to_jsonable_python([nodes, edges], inf_nan_mode="null", serialize_unknown=True)
    )


def _unpacked(packed: str, scope: Mapping[str, object]) -> Contents:
    """Return the rows from the output of `_packed`, each in the scope of their node."""
    nodes, edges = json.loads(packed)
    return Contents(
        [
            GraphNode(id_, label, name, _scoped(properties, scope), text, embedding)
            for id_, label, name, properties, text, embedding in nodes
        ],
        [
            Edge.of(source, type_, target, _scoped(properties, scope))
            for source, type_, target, properties in edges
        ],
    )


def _scoped(properties: Mapping[str, object], scope: Mapping[str, object]) -> dict[str, object]:
    others = {key: value for key, value in properties.items() if key not in SCOPE_KEYS}
    return {**others, **scope}


class Extraction:
    """Extracts entities and relations from passages by LlamaIndex's extractors, run in order."""

    def __init__(
        self, links: PassageLinks | None, extractors: Sequence[TransformComponent]
    ) -> None:
        links = PassageLinks() if links is None else of_type(links, PassageLinks, "links")
        example = "kg_extractors=[SimpleLLMPathExtractor(llm=...)]"
        self._extractors = check_transformations(extractors, "extractors", example)
        ner = getattr(links.ner, "__qualname__", type(links.ner).__qualname__)
        names = (links.entities, links.entity_fields, links.gazetteer)
        self.fingerprint = repr((*names, ner, fingerprint_of(extractors)))

    def extracted(self, documents: Sequence[Prepared]) -> list[Prepared | Exception]:
        """Return each document with its graph rows, which it may have already, or its error."""
        if not self._extractors:
            return [*documents]
        made = iter(
            each_or_error(
                [document for document in documents if not document.rows], self._extracted
            )
        )
        return [document if document.rows else next(made) for document in documents]

    def _extracted(self, documents: Sequence[Prepared]) -> list[Prepared]:
        # Extractors modify their input.
        copies = [
            node.model_copy(update={"metadata": dict(node.metadata)})
            for document in documents
            for node in document.nodes
        ]
        made = {node.node_id: node for node in run_transformations(copies, self._extractors)}
        return [
            replace(
                document,
                rows={
                    node.node_id: _packed(_rows(made.get(node.node_id, node)))
                    for node in document.nodes
                },
            )
            for document in documents
        ]


def extraction_for(
    graph: object, links: PassageLinks | None, extractors: Sequence[TransformComponent] | None
) -> Extraction | None:
    """Return the extraction for a graph; None without one."""
    if graph is not None:
        return Extraction(links, extractors or ())
    if links is None and extractors is None:
        return None
    raise ConfigurationError(
        "links and kg_extractors are for a graph: pass graph='graph:./dir', for instance"
    )


def _rows(passage: BaseNode) -> Contents:
    """Return the extracted rows in the metadata, with an edge from the passage to each entity."""
    nodes: list[LabelledNode] = passage.metadata.get(KG_NODES_KEY) or []
    relations: list[Relation] = passage.metadata.get(KG_RELATIONS_KEY) or []
    document = {passage.ref_doc_id: f"{DOCUMENT_LABEL}:{passage.ref_doc_id}"}
    edges = [
        edge._replace(
            source=document.get(edge.source, edge.source),
            target=document.get(edge.target, edge.target),
        )
        for edge in map(Edge.from_llama_index, relations)
    ]
    named = dict.fromkeys(node.id for node in nodes)
    for edge in edges:
        if passage.node_id not in (edge.source, edge.target):  # then it is linked already
            named |= {edge.source: None, edge.target: None}
    source = {TRIPLET_SOURCE_KEY: passage.node_id}
    mentions = [Edge.of(passage.node_id, MENTIONS, name, source) for name in named]
    return Contents([*map(GraphNode.from_llama_index, nodes)], edges + mentions)
