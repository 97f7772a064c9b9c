"""Nodes and edges as rows of Neo4j, with what each document claims of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from llama_retrieval_ext.graph.cypher import Rows, has_principals
from llama_retrieval_ext.graph.elements import (
    CHUNK_LABEL,
    Contents,
    Edge,
    GraphNode,
    Hop,
    Partition,
    allowed_of,
    shown,
    to_json,
    weight_of,
)
from llama_retrieval_ext.graph.validity import (
    MARK,
    When,
    as_fact,
    claimed_edge,
    entity_at,
    fact_of,
    is_dated_entity,
)
from llama_retrieval_ext.scope import ALLOWED_KEY, Scope


class Claim(NamedTuple):
    """What a document writes of a row, an item of the list ``_claims`` of the row.

    Attributes:
        source: The document.
        allowed: The principals who may see it, empty for everyone.
        content: JSON of the properties of an edge, or of the fields of a node behind its id; empty
            if the document only names the node, as the end of an edge.
    """

    source: str
    allowed: Sequence[str]
    content: str

    @classmethod
    def parse(cls, packed: str) -> "Claim":
        """Return the claim in an item of the list.

        Examples:
            >>> Claim.parse(Claim("leave", ["group:hr"], "{}").packed)
            Claim(source='leave', allowed=['group:hr'], content='{}')

        """
        names, _, content = packed.partition("\0\0")
        source, *allowed = names.split("\0")
        return cls(source, allowed, content)

    @property
    def packed(self) -> str:
        """The item of the list."""
        return "\0".join(
            [self.source, *self.allowed, *(["", self.content] if self.content else [])]
        )


def _greatest_first(stored: Mapping[str, Any]) -> list[Claim]:
    """Return the claims of a row; the first is stored. A row of another program has none."""
    claims = [Claim.parse(packed) for packed in stored.get("_claims") or ()][::-1]
    return sorted(claims, key=lambda claim: not claim.content)


def _shown_content(stored: Mapping[str, Any], scope: Scope | None) -> str | None:
    """Return the content of the greatest visible claim of a row; None for the row as it is."""
    claims = _greatest_first(stored)
    if scope is None or scope.principals is None or not claims:
        return None
    ranked = [(frozenset(claim.allowed), claim) for claim in claims]
    visible = shown(ranked, frozenset(scope.principals))
    return None if visible is None or visible is claims[0] else visible.content


def _claimed_node(node: GraphNode, content: str) -> GraphNode:
    if content:
        return GraphNode(node.id, *json.loads(content))
    return GraphNode(node.id, properties=node.partition.properties)


def _claimed_edge(edge: Edge, content: str) -> Edge:
    return Edge.of(*edge.id, json.loads(content))


_SYSTEM_LABELS: Final = ("__Node__", "__Entity__")
_CHUNK: Final = "Chunk"
_OF_EDGES: Final = ("_claims", "_json", ALLOWED_KEY)
# Properties of rows that no caller sees.
INTERNAL: Final = (*_OF_EDGES, "_id", "_key")
_OF_NODES: Final = (*INTERNAL, "id", "name", "text", "embedding")


def key_of(partition: Partition, id_: str) -> str:
    """Return the unique key of a node; its id if it has no tenant and no knowledge base."""
    return id_ if partition == Partition() else json.dumps([*partition, id_], ensure_ascii=False)


def batch_rows(contents: Mapping[str, Contents]) -> dict[str, list[dict[str, Any]]]:
    """Return the contents of documents as rows to write, each once with all its claims.

    The rows are ordered by key, so concurrent writers cannot deadlock.
    """
    nodes: dict[Any, dict[str, Any]] = {}
    edges: dict[Any, dict[str, Any]] = {}
    ends: dict[Any, dict[str, Any]] = {}
    described: set[tuple[str, str]] = set()
    for source, rows in contents.items():
        for node in rows.nodes:
            row = _node_row(node, source)
            _add(nodes, row["key"], row)
            described.add((source, row["key"]))
        for edge in rows.edges:
            row = _edge_row(edge, source)
            for end in row["ends"]:
                # The claim of a document that describes the node says who may see it.
                if (source, end["key"]) not in described:
                    _add(ends, end["key"], end)
            _add(edges, (row["source"], row["type"], row["target"]), row)
    return {
        "sources": [{"source": source, "replaces": True} for source in sorted(contents)],
        "nodes": [row for _, row in sorted(nodes.items())],
        "ends": [row for _, row in sorted(ends.items())],
        "edges": [row for _, row in sorted(edges.items())],
    }


def _add(rows: dict[Any, dict[str, Any]], key: object, row: dict[str, Any]) -> None:
    """Replace the row with the same key, and keep the last claim of each source."""
    before = rows[key]["claims"] if key in rows else []
    claims = {Claim.parse(packed).source: packed for packed in (*before, *row["claims"])}
    rows[key] = {**row, "claims": [*claims.values()]}


def _node_row(node: GraphNode, source: str) -> dict[str, Any]:
    allowed, node = allowed_of(node.properties), node.stored()
    source, node = as_fact(source, node)
    properties = _native(node.properties)
    properties |= {"text": node.text} if node.is_passage else {"name": node.name}
    if node.embedding is not None:
        properties["embedding"] = [float(x) for x in node.embedding]
    kind = _CHUNK if node.is_passage else "__Entity__"
    labels = [kind] if node.is_passage and node.label == CHUNK_LABEL else [kind, node.label]
    content = to_json([node.label, node.name, dict(node.properties), node.text])
    claim = Claim(source, allowed, content)
    return {**_row(node.partition, node.id, properties, claim), "labels": labels}


def _edge_row(edge: Edge, source: str) -> dict[str, Any]:
    """Return an edge as a row to write, with rows to create missing ends."""
    properties = edge.properties
    partition, allowed, edge = Partition.of(properties), allowed_of(properties), edge.stored()
    named = Claim(source, allowed, "")
    fact_source, edge = as_fact(source, edge)
    ends = [
        _row(partition, id_, {"name": id_, **partition.properties}, named)
        for id_ in (edge.source, edge.target)
    ]
    return {
        "ends": ends,
        "source": ends[0]["key"],
        "type": edge.type,
        "target": ends[1]["key"],
        "properties": _native(edge.properties),
        "claims": [Claim(fact_source, allowed, edge.payload).packed],
    }


def _row(
    partition: Partition, id_: str, properties: dict[str, object], claim: Claim
) -> dict[str, Any]:
    key = key_of(partition, id_)
    return {
        "key": key,
        "id": id_,
        "tenant": partition.tenant_id or "",
        "kb": partition.kb_id or "",
        "properties": {**properties, "id": key, "_id": id_, "_key": key},
        "claims": [claim.packed],
    }


def contents_by_source(rows: Rows, sources: Sequence[str]) -> dict[str, Contents]:
    """Return the nodes and edges of rows as each source writes them."""
    contents = {source: Contents([], []) for source in sources}
    for row in rows:
        edge = None if row["edge"] is None else edge_of(row["edge"])
        claims = _greatest_first(_stored(row))
        for claim in claims:
            document = claim.source.partition(MARK)[0]
            if document not in contents or not claim.content:
                continue
            restriction = {ALLOWED_KEY: claim.allowed} if claim.allowed else {}
            if edge is not None:
                properties = json.loads(claim.content) | restriction
                contents[document].edges.append(Edge.of(*edge.id, properties))
            else:
                stored = _stored_node(row["node"])  # with its embedding
                node = stored if claim is claims[0] else _claimed_node(stored, claim.content)
                node = replace(node, properties={**node.properties, **restriction})
                contents[document].nodes.append(node)
    return contents


def _stored(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the properties of a row with a node or an edge."""
    stored: Mapping[str, Any] = (
        row["edge"][-1] if row["node"] is None else row["node"]["properties"]
    )
    return stored


def greatest_rows(rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """Return the rows to write for rows that are not stored by their greatest claim."""
    nodes, edges = [], []
    for row in rows:
        content = _greatest_first(_stored(row))[0].content
        if row["edge"] is None:
            node = _claimed_node(_stored_node(row["node"]), content)
            nodes.append({**_node_row(node, ""), "claims": []})
        else:
            edge = _claimed_edge(edge_of(row["edge"]), content)
            edges.append({**_edge_row(edge, ""), "claims": []})
    return {"nodes": nodes, "edges": edges}


def _native(properties: Mapping[str, Any]) -> dict[str, object]:
    """Return properties for Neo4j; those without a Neo4j type go to one JSON property."""
    native: dict[str, object] = {}
    others: dict[str, object] = {}
    for key, value in properties.items():
        kinds = {type(item) for item in (value if isinstance(value, list | tuple) else [value])}
        is_native = len(kinds) <= 1 and kinds <= {str, int, float, bool}
        (native if is_native else others)[key] = value
    return {**native, "_json": to_json(others)} if others else native


def _properties(stored: Mapping[str, Any], hidden: Sequence[str]) -> dict[str, Any]:
    properties = {key: value for key, value in stored.items() if key not in hidden}
    packed = stored.get("_json")
    if isinstance(packed, str):
        properties |= json.loads(packed)
    return properties


def node_of(row: Mapping[str, Any], scope: Scope | None = None) -> GraphNode:
    """Return the node of a row with labels and properties, as the scope sees it."""
    stored, node = row["properties"], _stored_node(row)
    content = _shown_content(stored, scope)
    if content is not None:
        node = _claimed_node(node, content)
    claims = [claim for claim in _greatest_first(stored) if claim.content]
    if any(MARK in claim.source for claim in claims):
        facts = [(frozenset(c.allowed), fact_of(json.loads(c.content)[2])) for c in claims]
        return entity_at(node, When.of(scope), facts)
    return entity_at(node, When.of(scope)) if is_dated_entity(node) else node


def _stored_node(row: Mapping[str, Any]) -> GraphNode:
    """Return the node of a row as it is stored, by its greatest claim."""
    stored = row["properties"]
    id_ = stored.get("_id") or stored["id"]
    labels = sorted(set(row["labels"]).difference(_SYSTEM_LABELS))
    properties = _properties(stored, _OF_NODES)
    if "__Entity__" in row["labels"]:
        label, name, text = (labels or ["entity"])[0], stored.get("name") or id_, None
    else:
        named = [label for label in labels if label != _CHUNK]
        label, name, text = (named or [CHUNK_LABEL])[0], id_, stored.get("text") or ""
    return GraphNode(id_, label, name, properties, text, stored.get("embedding"))


def edge_of(row: Sequence[Any], scope: Scope | None = None) -> Edge:
    """Return the edge of a list of source, type, target and properties, as the scope sees it."""
    source, type_, target, stored = row
    properties = _properties(stored, _OF_EDGES)
    # LlamaIndex may have stored dates.
    payload = json.dumps(properties, ensure_ascii=False, default=str)
    edge = Edge(source, type_, target, weight_of(properties), payload)
    if stored.get("_claims") and any(MARK in packed for packed in stored["_claims"]):
        claims = _greatest_first(stored)
        facts = [(frozenset(c.allowed), _claimed_edge(edge, c.content)) for c in claims]
        return claimed_edge(facts) or edge
    content = _shown_content(stored, scope)
    return edge if content is None else _claimed_edge(edge, content)


def without_internal(value: Any) -> Any:  # noqa: ANN401 - what Cypher returns
    """Return a value with the nodes in it, which are mappings, as their documents wrote them."""
    if isinstance(value, Mapping):
        id_ = {"id": value["_id"]} if "_id" in value else {}
        return _properties(value, (*INTERNAL, "embedding")) | id_
    if isinstance(value, list | tuple):
        return [without_internal(item) for item in value]
    return value


def edges_by_id(
    rows: Rows, ids: Sequence[str], hop: Hop, scope: Scope | None
) -> dict[str, list[Edge]]:
    """Return edges by the node they were read at."""
    by_node: dict[str, list[Edge]] = {}
    # For principals, the weight of an edge depends on the visible documents.
    unordered = {row["id"] for row in rows if has_principals(scope)}
    for row in rows:
        if row["id"] in by_node:  # several partitions have a node with this id
            unordered.add(row["id"])
        by_node.setdefault(row["id"], []).extend(edge_of(edge, scope) for edge in row["edges"])
    for id_ in unordered:
        edges = sorted(
            by_node[id_], key=lambda edge: Partition.of(edge.properties).order, reverse=True
        )
        by_node[id_] = hop.first(id_, {edge.id: edge for edge in edges}.values())
    return {id_: by_node[id_] for id_ in ids if id_ in by_node}
