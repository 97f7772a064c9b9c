"""`Neo4jGraph`: a graph on a Neo4j server, with our own Cypher and without APOC.

It reads what LlamaIndex's ``PropertyGraphIndex`` wrote with ``Neo4jPropertyGraphStore``: nodes
labelled ``__Node__`` with an ``id``, entities also ``__Entity__``, passages ``Chunk``. It
writes the same with more properties: ``_id`` (the id in its partition), ``_key`` (partition and id,
unique, also the ``id`` of a new node), ``_sources`` (the documents that a row comes from) and
``_json`` (properties that Neo4j has no type for). Each document also has a node ``__Source__``.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from threading import Lock
from typing import Any, Final, Self
from weakref import WeakKeyDictionary, finalize

from llama_index.core.graph_stores.types import PropertyGraphStore

from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.running import callers
from llama_retrieval_ext.graph.backend import ANY_HOP, WritableGraph
from llama_retrieval_ext.graph.cypher import (
    Rows,
    batch_rows,
    contents_by_source,
    contents_of,
    edges_by_id,
    first_by_id,
    has_content,
    has_principals,
    name_pairs,
    nodes_by_id,
    outdated_rows,
    own_id,
    scope_parameters,
    sees_edge,
    sees_node,
    shown,
    source_in,
    united,
)
from llama_retrieval_ext.graph.elements import (
    Contents,
    Direction,
    Edge,
    GraphNode,
    Hop,
    check_deletion,
)
from llama_retrieval_ext.graph.neo4j_connection import Neo4jAddress, Neo4jConnection, Statement
from llama_retrieval_ext.query import Scope

# The connection of each LlamaIndex store, as long as the store is in use.
_connections: Final[WeakKeyDictionary[PropertyGraphStore, Neo4jConnection]] = WeakKeyDictionary()
_opening: Final = Lock()
_BATCH: Final = 2_000
_EVERYTHING: Final = "{.*}"
_NODE: Final = "{{labels: labels(n), properties: n {0}}}"
_EDGE: Final = f"[{own_id('startNode(r)')}, type(r), {own_id('endNode(r)')}, r {{0}}]"
_WEIGHT: Final = (
    "CASE WHEN (r.weight IS :: INTEGER NOT NULL OR r.weight IS :: FLOAT NOT NULL) AND r.weight > 0 "
    "THEN toFloat(r.weight) ELSE 1.0 END"
)
_ARROWS: Final = {
    Direction.OUT: "(n)-[r]->(other:__Node__)",
    Direction.IN: "(n)<-[r]-(other:__Node__)",
    Direction.ANY: "(n)-[r]-(other:__Node__)",
}


class Neo4jGraph(WritableGraph):
    """Graph backend on a Neo4j server, 5.26 or newer.

    Reads run in READ transactions, one round trip each.

    Args:
        connection: Connection to the database; see `open` and `from_store`.
        url: The URL that it was opened by; empty for a graph from a store.
    """

    engine = "neo4j"

    def __init__(self, connection: Neo4jConnection, url: str = "") -> None:
        self.connection = connection
        self.url = url
        self.version = 0
        self._has_schema = False
        self._store: PropertyGraphStore | None = None

    @classmethod
    def open(cls, url: str) -> Self:
        """Return the graph that a URL names, such as ``neo4j://host:7687/database``.

        Raises:
            ConfigurationError: The URL is invalid, or a named environment variable is not set.
        """
        return cls(Neo4jConnection.open(Neo4jAddress.parse(url)), url)

    @classmethod
    def from_store(cls, store: PropertyGraphStore) -> Self:
        """Return the graph of a LlamaIndex ``Neo4jPropertyGraphStore``, over its async driver.

        All graphs of a store share one connection, because the pooled connections of its driver
        belong to one event loop. It is closed when neither the store nor a graph of it is in use.
        """
        # LlamaIndex creates an async driver without a public name, and never uses it.
        private: Any = store
        driver, database = private._async_driver, private._database  # noqa: SLF001
        with _opening:
            connection = _connections.get(store)
            if connection is None:
                where = "the server of the Neo4jPropertyGraphStore"
                connection = Neo4jConnection(lambda: driver, where, database)
                _connections[store] = connection
                finalize(store, connection.close).atexit = False
        graph = cls(connection)
        graph._store = store
        return graph

    def __repr__(self) -> str:
        return f"Neo4jGraph({self.connection.where!r})"

    def plan_read(self, statement: str, parameters: Mapping[str, object]) -> Call[Rows]:
        """Run a read-only statement; the server refuses a statement that writes."""
        return self.connection.read(statement, parameters)

    read, aread = callers(plan_read)

    def plan_nodes(
        self, ids: Sequence[str], *, scope: Scope | None = None
    ) -> Call[dict[str, GraphNode]]:
        """Return the visible nodes with these ids, by id."""
        statement = (
            f"{nodes_by_id('n', '$ids')} WHERE {sees_node('n', scope)} "
            f"RETURN {_NODE.format(shown(scope))} AS node"
        )
        unique = list(dict.fromkeys(ids))
        rows = self.plan_read(statement, {"ids": unique, **scope_parameters(scope)})
        return rows.then(lambda found: first_by_id(found, unique, scope))

    def plan_neighbours(
        self, frontier: Sequence[str], hop: Hop = ANY_HOP, *, scope: Scope | None = None
    ) -> Call[dict[str, list[Edge]]]:
        """Return the visible edges of each node of a frontier, capped and ordered."""
        # For principals, the weight of an edge depends on the visible passages.
        is_cut = hop.fan_out is not None and not has_principals(scope)
        limit = " LIMIT $fan_out" if is_cut else ""
        types = "" if hop.types is None else " AND type(r) IN $types"
        statement = (
            f"{nodes_by_id('n', '$frontier')} "
            f"WHERE {sees_node('n', scope)} "
            f"RETURN id, COLLECT {{ MATCH {_ARROWS[hop.direction]} "
            f"WHERE {sees_edge('r', scope)} AND {sees_node('other', scope)}{types} "
            # A loop matches once in each direction.
            f"WITH DISTINCT r, other, n RETURN {_EDGE.format(shown(scope))} AS edge "
            f"ORDER BY {_WEIGHT} DESC, {own_id('other')}, type(r), startNode(r) <> n{limit} }} "
            "AS edges"
        )
        unique = list(dict.fromkeys(frontier))
        parameters = {
            "frontier": unique,
            "fan_out": hop.fan_out,
            "types": None if hop.types is None else sorted(hop.types),
            **scope_parameters(scope),
        }
        return self.plan_read(statement, parameters).then(
            lambda rows: edges_by_id(rows, unique, hop, scope)
        )

    def plan_contents(
        self, ids: Collection[str] | None = None, *, scope: Scope | None = None
    ) -> Call[Contents]:
        """Return the visible nodes, without embeddings, and the visible edges between them."""
        node = _NODE.format(shown(scope, embedding=False))
        nodes = "MATCH (n:__Node__) WITH n" if ids is None else nodes_by_id("n", "$ids")
        among = "" if ids is None else f" AND {own_id('other')} IN $ids"
        statement = (
            f"CALL () {{ {nodes} WHERE n.id IS NOT NULL AND {sees_node('n', scope)} "
            f"RETURN {node} AS node, null AS edge "
            f"UNION ALL {nodes} MATCH (n)-[r]->(other:__Node__) WHERE n.id IS NOT NULL AND "
            f"other.id IS NOT NULL AND {sees_node('n', scope)} AND {sees_edge('r', scope)} AND "
            f"{sees_node('other', scope)}{among} "
            f"RETURN null AS node, {_EDGE.format(shown(scope))} AS edge }} "
            "RETURN node, edge"
        )
        parameters = {"ids": None if ids is None else list(ids), **scope_parameters(scope)}
        rows = self.plan_read(statement, parameters)
        return rows.then(lambda found: contents_of(found, scope))

    def plan_names(self, *, scope: Scope | None = None) -> Call[list[tuple[str, str]]]:
        """Return name and id of every visible entity, one pair per name or alias, sorted."""
        statement = (
            f"MATCH (n:__Entity__) WHERE n.id IS NOT NULL AND {sees_node('n', scope)} "
            f"RETURN {_NODE.format(shown(scope, embedding=False))} AS node"
        )
        rows = self.plan_read(statement, scope_parameters(scope))
        return rows.then(lambda found: name_pairs(found, scope))

    def plan_upsert(
        self, nodes: Sequence[GraphNode], edges: Sequence[Edge] = (), *, source: str | None = None
    ) -> Call[None]:
        """Write nodes and edges; see `GraphBackend.upsert`. Each batch is one transaction."""
        rows = batch_rows({source or "": Contents.of(nodes, edges)})
        batches = zip_longest(_batches(rows["nodes"]), _batches(rows["edges"]), fillvalue=())
        sources: Rows = [{"source": source, "replaces": False}] if source else []
        return self._write(*((_REPLACE, _written(sources, *batch)) for batch in batches))

    def plan_replace_sources(self, said: Mapping[str, Contents]) -> Call[None]:
        """Replace the earlier rows of documents by new ones, in one transaction."""
        return self._write((_REPLACE, batch_rows(said)))

    def plan_claims_of(self, sources: Sequence[str]) -> Call[dict[str, Contents]]:
        """Return the rows that each document supports, in every partition, with embeddings."""
        statement = (
            f"CALL () {{ MATCH (n:__Node__) WHERE any(s IN n._sources WHERE {_SOURCE} IN $sources) "
            f"RETURN n._sources AS said, {_NODE.format(_EVERYTHING)} AS node, null AS edge "
            "UNION ALL MATCH (:__Node__)-[r]->(:__Node__) "
            f"WHERE any(s IN r._sources WHERE {_SOURCE} IN $sources) "
            f"RETURN r._sources AS said, null AS node, {_EDGE.format(_EVERYTHING)} AS edge }} "
            f"RETURN [s IN said WHERE {_SOURCE} IN $sources] AS said, node, edge"
        )
        rows = self.plan_read(statement, {"sources": list(sources)})
        return rows.then(lambda found: contents_by_source(found, sources))

    def plan_delete_sources(self, sources: Sequence[str], *, scope: Scope | None) -> Call[None]:
        """Remove the rows of documents, except those that another source supports."""
        check_deletion(scope, sources)
        parameters = {**batch_rows({}), "known": list(sources), **scope_parameters(scope)}
        # Locked before rows are read, so that a concurrent writer of a document is done, or waits.
        locked = (
            "WITH $known AS known CALL (known) { "
            "MATCH (d:__Source__) WHERE d._key IN known WITH d ORDER BY d._key "
            f"{'DELETE d' if scope is None else 'SET d.writes = d.writes + 1'} }}"
        )
        return self._write((_replacing(locked, scope), parameters), needs_schema=False)

    def plan_clear(self, *, scope: Scope | None) -> Call[None]:
        """Remove every visible row."""
        check_deletion(scope)
        labels = "__Node__|__Source__" if scope is None else "__Node__"
        statement = f"MATCH (n:{labels}) WHERE {sees_node('n', scope)} DETACH DELETE n"
        return self._write((statement, scope_parameters(scope)), needs_schema=False)

    def compact(self) -> int:
        """No-op: the server frees its disk space itself."""
        return 0

    def close(self) -> None:
        """Close the connection; no-op on a store's, which other graphs of the store use."""
        if self._store is None:
            self.connection.close()

    def _write(self, *statements: Statement, needs_schema: bool = True) -> Call[None]:
        """Return statements as one call; the first write creates the constraint and the indexes.

        Deletions need neither them nor the right to create them.
        """

        def plan() -> Plan[None]:
            if needs_schema and not self._has_schema:
                for statement in _SCHEMA:
                    yield self.connection.write(statement, {})
                self._has_schema = True
            for statement, parameters in statements:
                yield self.connection.write(statement, parameters, _restoring)
                self.version += 1

        return Call(lambda: run(plan()), lambda: arun(plan()))


_SCHEMA: Final = (
    "CREATE CONSTRAINT llama_retrieval_key IF NOT EXISTS FOR (n:__Node__) REQUIRE n._key IS UNIQUE",
    (
        "CREATE CONSTRAINT llama_retrieval_source IF NOT EXISTS FOR (d:__Source__) "
        "REQUIRE d._key IS UNIQUE"
    ),
    "CREATE INDEX llama_retrieval_own_id IF NOT EXISTS FOR (n:__Node__) ON (n._id)",
    # A range index would conflict with the constraint that LlamaIndex's store creates.
    "CREATE TEXT INDEX llama_retrieval_id IF NOT EXISTS FOR (n:__Node__) ON (n.id)",
)
# Adopts a node of LlamaIndex's store in the same partition.
_ADOPT: Final = (
    "UNWIND $rows AS row MATCH (n:__Node__ {id: toString(row.id)}) "
    "WHERE n._key IS NULL AND coalesce(n.tenant_id, '') = row.tenant "
    "AND coalesce(n.kb_id, '') = row.kb AND NOT EXISTS { MATCH (:__Node__ {_key: row.key}) } "
    "SET n._key = row.key"
)
_SOURCE: Final = source_in("s")


# A SET locks first if the new value contains the property itself.
_LOCK: Final = "SET {0}._sources = coalesce({0}._sources, [])"


def _old(variable: str) -> str:
    """Return the clauses that lock a row and bind its supports to ``old``.

    Without the lock, of concurrent writers of one row all but the last would lose their support.
    """
    return f"{_LOCK.format(variable)} WITH {variable}, row, {variable}._sources AS old"


def _supported(variable: str, new: str = "row.sources") -> str:
    """Return the clauses that add supports to a row, or replace those of the same sources."""
    sources = f"[added IN {new} | {source_in('added')}]"
    kept = f"[s IN old WHERE NOT {_SOURCE} IN {sources}]"
    return f"SET {variable}._sources = {kept} + {new} {united(variable)}"


_MERGE_NODES: Final = (
    "UNWIND $rows AS row MERGE (n:__Node__ {_key: row.key}) "
    f"{_old('n')}, coalesce(n.id, row.key) AS stored_id, "
    "[l IN labels(n) WHERE l <> '__Node__'] AS labels REMOVE n:$(labels) "
    # A node of LlamaIndex's store keeps the id that the store knows.
    f"SET n:$(row.labels), n = row.properties, n.id = stored_id {_supported('n')}"
)
_MERGE_ENDS: Final = (
    "UNWIND $rows AS row MERGE (n:__Node__ {_key: row.key}) "
    "ON CREATE SET n:__Entity__:entity, n += row.properties "
    # An edge without a document does not support its ends.
    f"{_old('n')} WITH n, old, "
    f"[s IN row.sources WHERE ({_SOURCE} <> '' OR size(old) = 0) "
    # What a document wrote of the node in an earlier batch stays.
    f"AND none(o IN old WHERE {source_in('o')} = {_SOURCE} AND {has_content('o')})] AS own "
    f"{_supported('n', 'own')}"
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
    "END AS found CALL (row, a, b, found) { UNWIND found AS r RETURN r UNION ALL "
    "WITH * WHERE found = [] CREATE (a)-[r:$(row.type)]->(b) RETURN r } "
    f"{_old('r')} SET r = row.properties {_supported('r')}"
)
# With WHERE alone, Neo4j would read the whole graph before the check.
_UNLESS_NEW: Final = "UNWIND CASE WHEN size(known) > 0 THEN [known] ELSE [] END AS known_once"
_IS_KNOWN: Final = f"{_SOURCE} IN known"


def _withdrawn(variable: str, rows: str) -> str:
    """Return the clauses that withdraw the support of ``known`` documents from rows.

    They bind ``wrote`` to whether one of these documents wrote the row, not only named it.
    """
    name = variable
    return (
        f"{_UNLESS_NEW} {rows} AND any(s IN {name}._sources WHERE {_IS_KNOWN}) WITH {name}, "
        f"any(s IN {name}._sources WHERE {_IS_KNOWN} AND {has_content('s')}) AS wrote "
        f"SET {name}._sources = [s IN {name}._sources WHERE NOT {_IS_KNOWN}] {united(name)}"
    )


def _replacing(known: str, scope: Scope | None = None) -> str:
    """Return the statement that replaces the rows of documents, which the first clauses bind.

    The earlier rows of the documents lose their support, the new rows are written, and rows without
    support are removed. It returns the remaining rows that the documents had written.
    """
    nodes = f"MATCH (n:__Node__) WHERE {sees_node('n', scope)}"
    sees = f"{sees_node('n', scope)} AND {sees_edge('r', scope)}"
    edges = f"MATCH (n:__Node__)-[r]->(:__Node__) WHERE {sees}"
    is_left = f"size({{0}}._sources) > 0 AND none(s IN {{0}}._sources WHERE {_IS_KNOWN}"
    return (
        f"{known} CALL (known) {{ {_withdrawn('r', edges)} RETURN collect(r) AS edges }} "
        f"CALL (known) {{ {_withdrawn('n', nodes)} "
        "RETURN collect(CASE WHEN size(n._sources) = 0 THEN n END) AS emptied, "
        "collect(CASE WHEN wrote THEN n END) AS written } "
        + " ".join(
            f"CALL () {{ {statement.replace('$rows', rows)} }}"
            for rows, statement in (
                ("$nodes", _MERGE_NODES),
                ("$ends", _MERGE_ENDS),
                ("$edges", _MERGE_EDGES),
            )
        )
        + f" WITH [n IN emptied WHERE size(n._sources) = 0] AS empty, "
        f"[n IN written WHERE {is_left.format('n')} AND {has_content('s')}) | "
        f"{{node: {_NODE.format(_EVERYTHING)}, edge: null}}] + "
        f"[r IN edges WHERE {is_left.format('r')}) | "
        f"{{node: null, edge: {_EDGE.format(_EVERYTHING)}}}] AS left, edges "
        "FOREACH (r IN [r IN edges WHERE size(r._sources) = 0] | DELETE r) "
        "FOREACH (n IN empty | DETACH DELETE n) "
        "WITH left UNWIND left AS row RETURN row.node AS node, row.edge AS edge"
    )


# The node of each document is locked, and created if it is new, before its rows are read: otherwise
# concurrent writers of a new document would each miss the rows of the other.
_REPLACE: Final = _replacing(
    f"CALL () {{ {_ADOPT.replace('$rows', '$nodes + $ends')} }} "
    "CALL () { UNWIND $sources AS row MERGE (d:__Source__ {_key: row.source}) "
    "SET d.writes = coalesce(d.writes, 0) + 1 "
    "RETURN collect(CASE WHEN row.replaces AND d.writes > 1 THEN row.source END) AS known }"
)


def _restoring(rows: Rows) -> Statement | None:
    """Return the statement after one that returned rows: it writes what documents say of them."""
    outdated = outdated_rows(rows)
    if not any(outdated.values()):
        return None
    return _REPLACE, {**batch_rows({}), **outdated}


def _written(sources: Rows, nodes: Sequence[Any], edges: Sequence[Any]) -> dict[str, object]:
    ends = {end["key"]: end for edge in edges for end in edge["ends"]}
    return {"sources": sources, "nodes": nodes, "ends": [*ends.values()], "edges": edges}


def _batches(rows: Sequence[Any]) -> list[Sequence[Any]]:
    return [rows[at : at + _BATCH] for at in range(0, len(rows), _BATCH)]
