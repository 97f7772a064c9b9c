"""Cypher of our graphs: quoted identifiers, scope conditions, and statements that write."""

import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.elements import CHUNK_LABEL
from llama_retrieval_ext.graph.validity import MARK
from llama_retrieval_ext.scope import ALLOWED_KEY, KB_KEY, TENANT_KEY, Scope

Rows: TypeAlias = list[dict[str, Any]]  # Any: what Cypher returns

# Letters of any script, digits and a few separators; no character that ends an identifier.
_IDENTIFIER: Final = re.compile(r"\w(?:[\w .:/@+-]{0,126}\w)?")


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
    in_scope = [f"({' AND '.join(unnamed)} OR {' AND '.join(tests)})"] if tests else []
    return " AND ".join([*in_scope, *_allows(variable, scope)]) or "true"


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


def has_principals(scope: Scope | None) -> bool:
    """Return whether what a row says depends on the documents that the scope sees."""
    return scope is not None and scope.principals is not None


_MARK: Final = "'\\u0000'"  # of Cypher: the separator in a claim


def source_in(claim: str) -> str:
    """Return the expression for the source of a claim."""
    return f"split({claim}, {_MARK})[0]"


def document_in(claim: str) -> str:
    """Return the expression for the document of a claim, whose source may also name a fact."""
    return f"split({source_in(claim)}, '\\u{ord(MARK):04x}')[0]"


def has_content(claim: str) -> str:
    """Return the condition that a claim does more than name a node."""
    return f"{claim} CONTAINS {_MARK} + {_MARK}"


def set_allowed(variable: str) -> str:
    """Return the clause that derives who may see a row from its claims."""
    name = variable
    names = f"split(c, {_MARK} + {_MARK})[0]"
    return (
        f"SET {name}.`{ALLOWED_KEY}` = CASE WHEN any(c IN {name}._claims WHERE NOT {names} "
        f"CONTAINS {_MARK}) THEN null ELSE COLLECT {{ UNWIND {name}._claims AS c "
        f"UNWIND split({names}, {_MARK})[1..] AS p RETURN DISTINCT p }} END"
    )


def projected(
    variable: str, scope: Scope | None, *, embedding: bool = True, dated: bool = False
) -> str:
    """Return the projection of a row to the properties that `node_of` and `edge_of` read.

    With `dated` it has all facts of the row.
    """
    claims = f"{variable}._claims"
    # A visible row with one claim is what this says.
    is_read = dated or has_principals(scope)
    seen = f"CASE WHEN size({claims}) > 1 THEN {claims} END" if is_read else "null"
    return f"{variable} {{.*, _claims: {seen}{'' if embedding else ', embedding: null'}}}"


def own_id(variable: str) -> str:
    """Return the expression for the id of a node in its partition.

    A node that we wrote has it in ``_id``, and in ``id`` its key: LlamaIndex's store identifies
    nodes by ``id`` alone, and makes a constraint that it is unique. Its own have only ``id``.
    """
    return f"coalesce({variable}._id, {variable}.id)"


def has_label(variable: str, label: str) -> str:
    """Return the condition that a node has a label; a passage without another has LlamaIndex's."""
    if label == CHUNK_LABEL:
        return f"labels({variable}) IN [['__Node__', 'Chunk'], ['Chunk', '__Node__']]"
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


NODE: Final = "{{labels: labels(n), properties: {0}}}"
EDGE: Final = f"[{own_id('startNode(r)')}, type(r), {own_id('endNode(r)')}, {{0}}]"
NODE_WITH_CLAIMS: Final = NODE.format("n {.*}")
EDGE_WITH_CLAIMS: Final = EDGE.format("r {.*}")
# Adopts a node of LlamaIndex's store in the same partition.
_ADOPT: Final = (
    "UNWIND $rows AS row MATCH (n:__Node__ {id: toString(row.id)}) "
    "WHERE n._key IS NULL AND coalesce(n.tenant_id, '') = row.tenant "
    "AND coalesce(n.kb_id, '') = row.kb AND NOT EXISTS { MATCH (:__Node__ {_key: row.key}) } "
    "SET n._key = row.key"
)
_SOURCE: Final = source_in("c")
DOCUMENT: Final = document_in("c")
# A SET locks first if the new value contains the property itself. Without the lock, of concurrent
# writers of one row all but the last would lose their claim.
_LOCKED: Final = "SET {0}._claims = coalesce({0}._claims, []) WITH {0}, row, {0}._claims AS old"


def _claimed(variable: str, new: str = "row.claims") -> str:
    """Return the clauses that add claims to a row, or replace those of the same sources."""
    sources = f"[added IN {new} | {source_in('added')}]"
    if variable == "r":  # a fact replaces what its document wrote of the edge without dates
        sources += f" + [added IN {new} | {document_in('added')}]"
    others = f"[c IN old WHERE NOT {_SOURCE} IN {sources}]"
    return f"SET {variable}._claims = {others} + {new} {set_allowed(variable)}"


_MERGE_NODES: Final = (
    "UNWIND $rows AS row MERGE (n:__Node__ {_key: row.key}) "
    f"{_LOCKED.format('n')}, coalesce(n.id, row.key) AS stored_id, "
    "[l IN labels(n) WHERE l <> '__Node__'] AS labels REMOVE n:$(labels) "
    # A node of LlamaIndex's store keeps the id that the store knows.
    f"SET n:$(row.labels), n = row.properties, n.id = stored_id {_claimed('n')}"
)
_MERGE_ENDS: Final = (
    "UNWIND $rows AS row MERGE (n:__Node__ {_key: row.key}) "
    "ON CREATE SET n:__Entity__:entity, n += row.properties "
    # An edge without a document does not claim the nodes of documents.
    f"{_LOCKED.format('n')} WITH n, old, "
    f"[c IN row.claims WHERE ({_SOURCE} <> '' OR size(old) = 0) "
    # What a document wrote of the node in an earlier batch stays.
    f"AND none(o IN old WHERE {source_in('o')} = {_SOURCE} AND {has_content('o')})] AS new "
    f"{_claimed('n', 'new')}"
)
# In an almost empty database, Neo4j would plan MERGE as a scan of all edges for each row. With one
# end bound it expands that end: the one with fewer edges, because the other may be a hub. No other
# writer can create the edge meanwhile, because the rows before have locked both ends.
_MERGE_EDGES: Final = (
    "UNWIND $rows AS row "
    "MATCH (a:__Node__ {_key: row.source}) MATCH (b:__Node__ {_key: row.target}) "
    "WITH row, a, b, CASE WHEN COUNT { (a)-->() } <= COUNT { ()-->(b) } "
    "THEN COLLECT { MATCH (a)-[r]->(end) WHERE end = b AND type(r) = row.type RETURN r } "
    "ELSE COLLECT { MATCH (start)-[r]->(b) WHERE start = a AND type(r) = row.type RETURN r } "
    "END AS stored CALL (row, a, b, stored) { UNWIND stored AS r RETURN r UNION ALL "
    "WITH * WHERE stored = [] CREATE (a)-[r:$(row.type)]->(b) RETURN r } "
    f"{_LOCKED.format('r')} SET r = row.properties {_claimed('r')}"
)
# With WHERE alone, Neo4j would read the whole graph before the check.
_UNLESS_NEW: Final = "UNWIND CASE WHEN size(replaced) > 0 THEN [replaced] ELSE [] END AS once"
_IS_REPLACED: Final = f"{DOCUMENT} IN replaced"


def _without_claims(variable: str, rows: str) -> str:
    """Return the clauses that delete the claims of the ``replaced`` documents.

    They bind ``lost`` to whether one of these was the greatest, which the row is stored as.
    """
    name = variable
    greatest = f"last([c IN {name}._claims WHERE {has_content('c')}])"
    return (
        f"{_UNLESS_NEW} {rows} AND any(c IN {name}._claims WHERE {_IS_REPLACED}) "
        f"WITH {name}, {document_in(greatest)} IN replaced AS lost "
        f"SET {name}._claims = [c IN {name}._claims WHERE NOT {_IS_REPLACED}] {set_allowed(name)} "
        f"RETURN collect({name}) AS {name}s, "
        f"collect(CASE WHEN lost THEN {name} END) AS lost_{name}s"
    )


def replacing(replaced: str, scope: Scope | None = None) -> str:
    """Return the statement that replaces the rows of documents, which the first clauses bind.

    The earlier claims of the documents are deleted, the new rows are written, and rows without a
    claim are removed. It returns the rows whose greatest claim is another one now.
    """
    nodes = f"MATCH (n:__Node__) WHERE {sees_node('n', scope)}"
    sees = f"{sees_node('n', scope)} AND {sees_edge('r', scope)}"
    edges = f"MATCH (n:__Node__)-[r]->(:__Node__) WHERE {sees}"
    has_another = (
        f"size({{0}}._claims) > 0 AND none(c IN {{0}}._claims WHERE {_IS_REPLACED} "
        f"AND {has_content('c')})"
    )
    return (
        f"{replaced} CALL (replaced) {{ {_without_claims('r', edges)} }} "
        f"CALL (replaced) {{ {_without_claims('n', nodes)} }} "
        + " ".join(
            f"CALL () {{ {statement.replace('$rows', rows)} }}"
            for rows, statement in (
                ("$nodes", _MERGE_NODES),
                ("$ends", _MERGE_ENDS),
                ("$edges", _MERGE_EDGES),
            )
        )
        + f" WITH rs, ns, [n IN lost_ns WHERE {has_another.format('n')} | "
        f"{{node: {NODE_WITH_CLAIMS}, edge: null}}] + "
        f"[r IN lost_rs WHERE {has_another.format('r')} | "
        f"{{node: null, edge: {EDGE_WITH_CLAIMS}}}] AS changed "
        "FOREACH (r IN [r IN rs WHERE size(r._claims) = 0] | DELETE r) "
        "FOREACH (n IN [n IN ns WHERE size(n._claims) = 0] | DETACH DELETE n) "
        "WITH changed UNWIND changed AS row RETURN row.node AS node, row.edge AS edge"
    )


# The node of each document is locked, and created if it is new, before its rows are read: otherwise
# concurrent writers of a new document would each miss the rows of the other.
REPLACE: Final = replacing(
    f"CALL () {{ {_ADOPT.replace('$rows', '$nodes + $ends')} }} "
    "CALL () { UNWIND $sources AS row MERGE (d:__Source__ {_key: row.source}) "
    "SET d.writes = coalesce(d.writes, 0) + 1 "
    "RETURN collect(CASE WHEN row.replaces AND d.writes > 1 THEN row.source END) AS replaced }"
)
