"""Cypher of our graphs: quoted identifiers, scope conditions, and rows of nodes and edges."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.elements import (
    CHUNK_LABEL,
    Contents,
    Edge,
    GraphNode,
    Hop,
    Partition,
    allowed_of,
    to_json,
    weight_of,
)
from llama_retrieval_ext.query import ALLOWED_KEY, KB_KEY, TENANT_KEY, Scope

# Letters of any script, digits and a few separators; no character that ends an identifier.
_IDENTIFIER: Final = re.compile(r"\w(?:[\w .:/@+-]{0,126}\w)?")


SUPPORT_SEPARATOR = "\0"


def support_of(source: str, properties: Mapping[str, object], said: str = "") -> str:
    """Return the record that a document supports a row: name, who may see the row, what it says.

    Examples:
        >>> support_of("leave", {"allowed": ["group:hr"]}, "{}").split(SUPPORT_SEPARATOR)
        ['leave', 'group:hr', '', '{}']

    """
    content = ["", said] if said else []
    return SUPPORT_SEPARATOR.join([source, *allowed_of(properties), *content])


def parsed_support(support: str) -> tuple[str, list[str], str]:
    """Return the source, the principals and the content in the output of `support_of`."""
    names, _, said = support.partition(2 * SUPPORT_SEPARATOR)
    source, *allowed = names.split(SUPPORT_SEPARATOR)
    return source, allowed, said


def _described(node: GraphNode, content: str) -> GraphNode:
    """Return the node with the content that a document writes; bare if it only names it."""
    if content:
        return GraphNode(node.id, *json.loads(content))
    return GraphNode(node.id, properties=node.partition.properties)


def quoted(identifier: str) -> str:
    """Return a label, relation type or property name, quoted for Cypher.

    Raises:
        ConfigurationError: It has characters other than letters, digits and `` _.:/@+-``.

    Examples:
        >>> quoted("HAS_HAZARD"), quoted("危险源")
        ('`HAS_HAZARD`', '`危险源`')

    """
    if not isinstance(identifier, str) or not _IDENTIFIER.fullmatch(identifier):
        raise ConfigurationError(
            f"got the identifier {identifier!r}; a label, relation type or property name has 1 to "
            "128 letters, digits or any of ' _.:/@+-', and begins and ends with a letter or digit"
        )
    return f"`{identifier}`"


def scope_parameters(scope: Scope | None) -> dict[str, object]:
    """Return the parameters for the conditions of `sees_node` and `sees_edge`."""
    if scope is None:
        return {}
    principals = {} if scope.principals is None else {"scope_principals": [*scope.principals]}
    return {"scope_tenant": scope.tenant_id, "scope_kbs": list(scope.kb_ids or ()), **principals}


def sees_node(variable: str, scope: Scope | None) -> str:
    """Return the condition that a scope sees a node; ``true`` without a scope.

    Examples:
        >>> sees_node("n", Scope("acme"))
        'n.`tenant_id` = $scope_tenant'

    """
    return " AND ".join([*_tests(variable, scope), *_allows(variable, scope)]) or "true"


def sees_edge(variable: str, scope: Scope | None) -> str:
    """Return the condition that a scope sees a relationship between two visible nodes.

    Those that LlamaIndex's store creates itself, such as ``MENTIONS``, name neither a tenant nor a
    knowledge base: they are visible if their ends are.

    Examples:
        >>> sees_edge("r", Scope("acme"))
        '(r.`tenant_id` IS NULL AND r.`kb_id` IS NULL OR r.`tenant_id` = $scope_tenant)'

    """
    unnamed = [f"{variable}.`{key}` IS NULL" for key in (TENANT_KEY, KB_KEY)]
    tests = [*_tests(variable, scope)]
    own = [f"({' AND '.join(unnamed)} OR {' AND '.join(tests)})"] if tests else []
    return " AND ".join([*own, *_allows(variable, scope)]) or "true"


def _tests(variable: str, scope: Scope | None) -> Iterator[str]:
    """Yield the test of each property that a scope restricts."""
    if scope is not None and scope.tenant_id is not None:
        yield f"{variable}.`{TENANT_KEY}` = $scope_tenant"
    if scope is not None and scope.kb_ids:
        yield f"{variable}.`{KB_KEY}` IN $scope_kbs"


def _allows(variable: str, scope: Scope | None) -> Iterator[str]:
    """Yield the test that a row names none or one of the principals, which are a list."""
    if scope is not None and scope.principals is not None:
        allowed = f"{variable}.`{ALLOWED_KEY}`"
        yield (
            f"coalesce(CASE WHEN {allowed} IS :: LIST<STRING NOT NULL> "
            f"THEN any(p_name IN {allowed} WHERE p_name IN $scope_principals) END, "
            f"{allowed} IS NULL)"
        )


_MARK: Final = "'\\u0000'"  # of Cypher: `SUPPORT_SEPARATOR`


def source_in(support: str) -> str:
    """Return the expression for the source of a support, see `support_of`."""
    return f"split({support}, {_MARK})[0]"


def has_content(support: str) -> str:
    """Return the condition that a support has what its source wrote, see `support_of`."""
    return f"{support} CONTAINS {_MARK} + {_MARK}"


def united(variable: str) -> str:
    """Return the clause that derives who may see a row from its supports."""
    name = variable
    names = f"split(s, {_MARK} + {_MARK})[0]"
    return (
        f"SET {name}.`{ALLOWED_KEY}` = CASE WHEN any(s IN {name}._sources WHERE NOT {names} "
        f"CONTAINS {_MARK}) THEN null ELSE COLLECT {{ UNWIND {name}._sources AS s "
        f"UNWIND split({names}, {_MARK})[1..] AS p RETURN DISTINCT p }} END"
    )


def has_principals(scope: Scope | None) -> bool:
    """Return whether what a row says depends on its passages that the scope sees."""
    return scope is not None and scope.principals is not None


def shown(scope: Scope | None, *, embedding: bool = True) -> str:
    """Return the projection of a row to the properties that `node_of` and `edge_of` read."""
    sources = "" if has_principals(scope) else ", _sources: null"
    return f"{{.*{sources}{'' if embedding else ', embedding: null'}}}"


def _said_to(scope: Scope | None, stored: Mapping[str, Any], own: object) -> str | None:
    """Return what the visible documents of a row say; None if that is the row itself.

    Args:
        scope: The rows that are visible.
        stored: Properties of the row; without sources, another program has written it.
        own: What the row itself says, as a JSON value.
    """
    supports = [parsed_support(each) for each in stored.get("_sources") or ()]
    names = None if scope is None else scope.principals
    visible = {
        said
        for _, allowed, said in supports
        if names is None or not allowed or not set(names).isdisjoint(allowed)
    }
    says = [json.loads(said) for said in visible if said]
    # A passage says what its node has: None.
    is_stored = not supports or None in says or own in says
    return None if is_stored else max(visible, default="")


Rows: TypeAlias = list[dict[str, Any]]  # Any: what Cypher returns

_SYSTEM_LABELS: Final = ("__Node__", "__Entity__")
_CHUNK: Final = "Chunk"
_PASSAGE: Final = "null"  # what a passage says of its own node: what is stored
_OF_EDGES: Final = ("_sources", "_json", ALLOWED_KEY)
# Properties of rows that no caller sees.
INTERNAL: Final = (*_OF_EDGES, "_id", "_key")
_OF_NODES: Final = (*INTERNAL, "id", "name", "text", "embedding")


def own_id(variable: str) -> str:
    """Return the expression for the id of a node in its partition.

    A node that we wrote has it in ``_id``, and in ``id`` its key: LlamaIndex's store identifies
    nodes by ``id`` alone, and makes a constraint that it is unique. Its own have only ``id``.
    """
    return f"coalesce({variable}._id, {variable}.id)"


def has_label(variable: str, label: str) -> str:
    """Return the condition that a node has a label; a passage without another has LlamaIndex's."""
    if label == CHUNK_LABEL:
        return f"labels({variable}) IN [['__Node__', '{_CHUNK}'], ['{_CHUNK}', '__Node__']]"
    return f"{variable}:{quoted(label)}"


def nodes_by_id(variable: str, ids: str) -> str:
    """Return the clauses that bind a variable to the nodes with ids, and ``id`` to the id."""
    name = variable
    return (
        f"UNWIND {ids} AS id CALL (id) {{ MATCH ({name}:__Node__ {{_id: id}}) RETURN {name} "
        # toString: Neo4j uses a text index only for values of type string.
        f"UNION ALL MATCH ({name}:__Node__ {{id: toString(id)}}) WHERE {name}._id IS NULL "
        f"RETURN {name} }} WITH {name}, id"
    )


def key_of(partition: Partition, id_: str) -> str:
    """Return the unique key of a node; its id if it has no tenant and no knowledge base."""
    return id_ if partition == Partition() else json.dumps([*partition, id_], ensure_ascii=False)


def _node_row(node: GraphNode, source: str) -> dict[str, Any]:
    allowed, node = node.properties, node.stored()
    own: dict[str, object] = {"text": node.text} if node.is_passage else {"name": node.name}
    if node.embedding is not None:
        own["embedding"] = [float(x) for x in node.embedding]
    kind = _CHUNK if node.is_passage else "__Entity__"
    labels = [kind] if node.is_passage and node.label == CHUNK_LABEL else [kind, node.label]
    properties = {**_native(node.properties), **own}
    said = _PASSAGE if node.is_passage else to_json(_content(node))
    row = _row(node.partition, node.id, properties, support_of(source, allowed, said))
    return {**row, "labels": labels}


def _edge_row(edge: Edge, source: str) -> dict[str, Any]:
    """Return an edge as a row to write, with rows to create missing ends."""
    properties, edge = edge.properties, edge.stored()
    partition = Partition.of(properties)
    scope = {"tenant_id": partition.tenant_id, "kb_id": partition.kb_id}
    named = {key: value for key, value in scope.items() if value}
    support = support_of(source, properties)
    ends = [
        _row(partition, id_, {"name": id_, **named}, support) for id_ in (edge.source, edge.target)
    ]
    return {
        "ends": ends,
        "source": ends[0]["key"],
        "type": edge.type,
        "target": ends[1]["key"],
        "properties": _native(edge.properties),
        "sources": [support_of(source, properties, edge.payload)],
    }


def _content(node: GraphNode) -> list[object]:
    """Return what a document says of a node, as a JSON value; see `GraphNode.said`."""
    return [node.label, node.name, dict(node.properties), node.text, None]


def _row(
    partition: Partition, id_: str, properties: dict[str, object], support: str
) -> dict[str, Any]:
    key = key_of(partition, id_)
    return {
        "key": key,
        "id": id_,
        "tenant": partition.tenant_id or "",
        "kb": partition.kb_id or "",
        "properties": {**properties, "id": key, "_id": id_, "_key": key},
        "sources": [support],
    }


def batch_rows(said: Mapping[str, Contents]) -> dict[str, list[dict[str, Any]]]:
    """Return the contents of documents as rows to write, each once with all its sources.

    The rows are ordered by key, so concurrent writers cannot deadlock.
    """
    nodes: dict[str, dict[str, Any]] = {}
    edges: dict[tuple[str, ...], dict[str, Any]] = {}
    ends: dict[str, dict[str, Any]] = {}
    named: set[tuple[str, str]] = set()
    for source, own in said.items():
        for node in own.nodes:
            row = _node_row(node, source)
            _add(nodes, row["key"], row)
            named.add((source, row["key"]))
        for edge in own.edges:
            link = _edge_row(edge, source)
            for end in link["ends"]:
                # A node of the same document says itself who may see it.
                if (source, end["key"]) not in named:
                    _add(ends, end["key"], end)
            _add(edges, (link["source"], link["type"], link["target"]), link)
    return {
        "sources": [{"source": source, "replaces": True} for source in sorted(said)],
        "nodes": [row for _, row in sorted(nodes.items())],
        "ends": [row for _, row in sorted(ends.items())],
        "edges": [row for _, row in sorted(edges.items())],
    }


def _add(rows: dict[Any, dict[str, Any]], key: object, row: dict[str, Any]) -> None:
    """Replace the row with the same key, and keep the last support of each source."""
    before = rows[key]["sources"] if key in rows else []
    supports = {parsed_support(each)[0]: each for each in (*before, *row["sources"])}
    rows[key] = {**row, "sources": [*supports.values()]}


def contents_by_source(rows: Rows, sources: Sequence[str]) -> dict[str, Contents]:
    """Return the nodes and edges of rows by the sources that support them."""
    found = {source: Contents([], []) for source in sources}
    for row in rows:
        for support in row["said"]:
            source, allowed, said = parsed_support(support)
            shown = {ALLOWED_KEY: allowed} if allowed else {}
            if row["edge"] is not None:
                source_id, type_, target, _ = row["edge"]
                edge = Edge.of(source_id, type_, target, json.loads(said) | shown)
                found[source].edges.append(edge)
            elif said:  # otherwise it only names the node as the end of an edge
                node = node_of(row["node"])
                is_stored = json.loads(said) in (None, _content(node))
                node = node if is_stored else _described(node, said)
                own = replace(node, properties={**node.properties, **shown})
                found[source].nodes.append(own)
    return found


def outdated_rows(rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """Return the rows to write instead of those whose content no document says any more."""
    nodes, edges = [], []
    for row in rows:
        if row["edge"] is not None:
            edge = edge_of(row["edge"])
            said = _said_to(None, row["edge"][-1], edge.properties)
            if said is not None:
                edges.append(
                    {**_edge_row(Edge.of(*edge.id, json.loads(said or "{}")), ""), "sources": []}
                )
        else:
            node = node_of(row["node"])
            said = _said_to(None, row["node"]["properties"], _content(node))
            if said is not None:
                nodes.append({**_node_row(_described(node, said), ""), "sources": []})
    return {"nodes": nodes, "edges": edges}


def _native(properties: Mapping[str, Any]) -> dict[str, object]:
    """Return properties for Neo4j; those without a Neo4j type go to one JSON property."""
    native = {key: value for key, value in properties.items() if _is_native(value)}
    rest = {
        key: value for key, value in properties.items() if key not in native and value is not None
    }
    return {**native, "_json": to_json(rest)} if rest else dict(native)


def _is_native(value: object) -> bool:
    if isinstance(value, list | tuple):
        kinds = {type(item) for item in value}
        return len(kinds) <= 1 and kinds <= {str, int, float, bool}
    return isinstance(value, str | int | float | bool)


def _properties(stored: Mapping[str, Any], own: Sequence[str]) -> dict[str, Any]:
    properties = {key: value for key, value in stored.items() if key not in own}
    packed = stored.get("_json")
    if isinstance(packed, str):
        properties |= json.loads(packed)
    return properties


def node_of(row: Mapping[str, Any], scope: Scope | None = None) -> GraphNode:
    """Return the node of a row with labels and properties, as the scope sees it."""
    stored = row["properties"]
    id_ = stored.get("_id") or stored["id"]
    labels = sorted(set(row["labels"]).difference(_SYSTEM_LABELS))
    properties = _properties(stored, _OF_NODES)
    if "__Entity__" in row["labels"]:
        label, name, text = (labels or ["entity"])[0], stored.get("name") or id_, None
    else:
        named = [label for label in labels if label != _CHUNK]
        label, name, text = (named or [CHUNK_LABEL])[0], id_, stored.get("text") or ""
    node = GraphNode(id_, label, name, properties, text, stored.get("embedding"))
    said = _said_to(scope, stored, _content(node)) if has_principals(scope) else None
    return node if said is None else _described(node, said)


def edge_of(row: Sequence[Any], scope: Scope | None = None) -> Edge:
    """Return the edge of a list of source, type, target and properties, as the scope sees it."""
    source, type_, target, stored = row
    properties = _properties(stored, _OF_EDGES)
    # LlamaIndex may have stored dates.
    payload = json.dumps(properties, ensure_ascii=False, default=str)
    edge = Edge(source, type_, target, weight_of(properties), payload)
    said = _said_to(scope, stored, properties) if has_principals(scope) else None
    return edge if said is None else Edge.of(*edge.id, json.loads(said or "{}"))


def without_internal(value: Any) -> Any:  # noqa: ANN401 - what Cypher returns
    """Return a value with the nodes in it, which are mappings, as their documents wrote them."""
    if isinstance(value, Mapping):
        own = {"id": value["_id"]} if "_id" in value else {}
        return _properties(value, (*INTERNAL, "embedding")) | own
    if isinstance(value, list | tuple):
        return [without_internal(item) for item in value]
    return value


def first_by_id(rows: Rows, ids: Sequence[str], scope: Scope | None) -> dict[str, GraphNode]:
    """Return nodes by id; the first partition wins."""
    found: dict[str, GraphNode] = {}
    for node in sorted(
        (node_of(row["node"], scope) for row in rows), key=lambda n: n.partition.order
    ):
        found.setdefault(node.id, node)
    return {id_: found[id_] for id_ in ids if id_ in found}


def contents_of(rows: Rows, scope: Scope | None) -> Contents:
    """Return the nodes and edges of rows; each row has a node or an edge."""
    return Contents(
        [node_of(row["node"], scope) for row in rows if row["node"] is not None],
        [edge_of(row["edge"], scope) for row in rows if row["edge"] is not None],
    )


def edges_by_id(
    rows: Rows, ids: Sequence[str], hop: Hop, scope: Scope | None
) -> dict[str, list[Edge]]:
    """Return edges by the node they were read at."""
    found: dict[str, list[Edge]] = {}
    # For principals, the weight of an edge depends on the visible passages.
    several = {row["id"] for row in rows if has_principals(scope)}
    for row in rows:
        if row["id"] in found:
            several.add(row["id"])
        found.setdefault(row["id"], []).extend(edge_of(edge, scope) for edge in row["edges"])
    for id_ in several:  # several partitions have a node with this id
        own = sorted(found[id_], key=lambda e: Partition.of(e.properties).order, reverse=True)
        found[id_] = hop.first(id_, {edge.id: edge for edge in own}.values())
    return {id_: found[id_] for id_ in ids if id_ in found}


def name_pairs(rows: Rows, scope: Scope | None) -> list[tuple[str, str]]:
    """Return names and aliases with their ids, sorted."""
    nodes = [node_of(row["node"], scope) for row in rows]
    return sorted({(name, node.id) for node in nodes for name in node.names})
