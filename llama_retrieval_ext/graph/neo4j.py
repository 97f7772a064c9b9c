"""`Neo4jGraph`: a graph on a Neo4j server, with our own Cypher and without APOC.

It reads what LlamaIndex's ``PropertyGraphIndex`` wrote with ``Neo4jPropertyGraphStore``: nodes
labelled ``__Node__`` with an ``id``, entities also ``__Entity__``, passages ``Chunk``. It
writes the same with more properties: ``_id`` (the id in its partition), ``_key`` (partition and id,
unique, also the ``id`` of a new node), ``_claims`` (what each document writes of the row, the
latest last) and ``_json`` (properties that Neo4j has no type for). Each document also has a node
``__Source__``.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from time import monotonic
from typing import Any, Final, Self, TypeVar
from weakref import WeakKeyDictionary, finalize

from llama_index.core.graph_stores.types import PropertyGraphStore

from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.running import callers
from llama_retrieval_ext.graph.backend import ANY_HOP, WritableGraph, immediate
from llama_retrieval_ext.graph.cypher import (
    DOCUMENT,
    EDGE,
    EDGE_WITH_CLAIMS,
    NODE,
    NODE_WITH_CLAIMS,
    REPLACE,
    Rows,
    has_principals,
    nodes_by_id,
    own_id,
    projected,
    replacing,
    scope_parameters,
    sees_edge,
    sees_node,
)
from llama_retrieval_ext.graph.elements import (
    Contents,
    Direction,
    Edge,
    EdgeId,
    GraphNode,
    Hop,
    Partition,
    check_deletion,
)
from llama_retrieval_ext.graph.neo4j_connection import Neo4jAddress, Neo4jConnection, Statement
from llama_retrieval_ext.graph.neo4j_rows import (
    batch_rows,
    contents_by_source,
    edge_of,
    edges_by_id,
    greatest_rows,
    node_of,
)
from llama_retrieval_ext.graph.validity import MARK, When, facts_at
from llama_retrieval_ext.scope import ANY_TIME, Scope

T = TypeVar("T")

# The connection of each LlamaIndex store, as long as the store is in use.
_connections: Final[WeakKeyDictionary[PropertyGraphStore, Neo4jConnection]] = WeakKeyDictionary()
_opening: Final = Lock()
_BATCH: Final = 2_000
# Marks a graph with dates, which other processes find at this interval.
_DATED: Final = "\x01dated"
_LOOK_EVERY_S: Final = 5.0

_WEIGHT: Final = (
    "CASE WHEN (r.weight IS :: INTEGER NOT NULL OR r.weight IS :: FLOAT NOT NULL) AND r.weight > 0 "
    "THEN toFloat(r.weight) ELSE 1.0 END"
)
_ARROWS: Final = {
    Direction.OUT: "(n)-[r]->(other:__Node__)",
    Direction.IN: "(n)<-[r]-(other:__Node__)",
    Direction.ANY: "(n)-[r]-(other:__Node__)",
}
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
        self._has_dates = False
        self._looked_at_s = -_LOOK_EVERY_S
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
        unique = list(dict.fromkeys(ids))

        def plan() -> Plan[dict[str, GraphNode]]:
            dated = yield self.plan_has_dates()
            statement = (
                f"{nodes_by_id('n', '$ids')} WHERE {sees_node('n', scope)} "
                f"RETURN {NODE.format(projected('n', scope, dated=dated))} AS node"
            )
            rows = yield self.plan_read(statement, {"ids": unique, **scope_parameters(scope)})
            nodes = [node_of(row["node"], scope) for row in rows]
            nodes.sort(key=lambda node: node.partition.order, reverse=True)
            first = {node.id: node for node in nodes}
            return {id_: first[id_] for id_ in unique if id_ in first}

        return _call_of(plan)

    def plan_has_dates(self) -> Call[bool]:
        """Return whether a row has dates, or a relation has one value at a time."""
        if self._has_dates or self.functional or monotonic() < self._looked_at_s + _LOOK_EVERY_S:
            return immediate(lambda: self._has_dates or bool(self.functional))
        return self._recorded_dates()

    def _recorded_dates(self) -> Call[bool]:
        def has_dates(rows: Rows) -> bool:
            self._has_dates, self._looked_at_s = bool(rows), monotonic()
            self.functional |= {type_ for row in rows for type_ in row["functional"] or ()}
            return self._has_dates

        statement = "MATCH (d:__Source__ {_key: $key}) RETURN d.functional AS functional"
        return self.plan_read(statement, {"key": _DATED}).then(has_dates)

    def set_functional(self, relations: Collection[str]) -> None:
        """Record the relations that have one value at a time."""
        self.functional = frozenset(relations)
        recorded = {"key": _DATED, "functional": sorted(relations) or None}
        statement = "MERGE (d:__Source__ {_key: $key}) SET d.functional = $functional"
        self._write((statement, recorded)).function()

    def plan_neighbours(
        self, frontier: Sequence[str], hop: Hop = ANY_HOP, *, scope: Scope | None = None
    ) -> Call[dict[str, list[Edge]]]:
        """Return the visible edges of each node of a frontier, capped and ordered."""
        unique = list(dict.fromkeys(frontier))

        def plan() -> Plan[dict[str, list[Edge]]]:
            if not (yield self.plan_has_dates()):
                rows = yield self._neighbours(unique, hop, scope)
                return edges_by_id(rows, unique, hop, scope)
            rows = yield self._neighbours(unique, replace(hop, fan_out=None), scope, dated=True)
            edges = {row["id"]: [edge_of(edge, scope) for edge in row["edges"]] for row in rows}
            listed = [edge for edges_of in edges.values() for edge in edges_of]
            holding = yield from self._holding(listed, scope)
            by_id: dict[EdgeId, list[Edge]] = defaultdict(list)
            for edge in sorted(holding, key=lambda e: Partition.of(e.properties).order):
                by_id[edge.id].append(edge)
            every = scope is not None and scope.as_of == ANY_TIME
            return {
                id_: hop.first(
                    id_,
                    [
                        edge
                        for edge_id in {edge.id for edge in edges[id_]}
                        for edge in (by_id[edge_id] if every else by_id[edge_id][:1])
                    ],
                )
                for id_ in unique
                if id_ in edges
            }

        return _call_of(plan)

    def _neighbours(
        self, ids: Sequence[str], hop: Hop, scope: Scope | None, *, dated: bool = False
    ) -> Call[Rows]:
        # For principals, the weight of an edge depends on the visible passages.
        is_cut = hop.fan_out is not None and not has_principals(scope)
        limit = " LIMIT $fan_out" if is_cut else ""
        types = "" if hop.types is None else " AND type(r) IN $types"
        edge = EDGE.format(projected("r", scope, dated=dated))
        statement = (
            f"{nodes_by_id('n', '$frontier')} "
            f"WHERE {sees_node('n', scope)} "
            f"RETURN id, COLLECT {{ MATCH {_ARROWS[hop.direction]} "
            f"WHERE {sees_edge('r', scope)} AND {sees_node('other', scope)}{types} "
            # A loop matches once in each direction.
            f"WITH DISTINCT r, other, n RETURN {edge} AS edge "
            f"ORDER BY {_WEIGHT} DESC, {own_id('other')}, type(r), startNode(r) <> n{limit} }} "
            "AS edges"
        )
        parameters = {
            "frontier": ids,
            "fan_out": hop.fan_out,
            "types": None if hop.types is None else sorted(hop.types),
            **scope_parameters(scope),
        }
        return self.plan_read(statement, parameters)

    def _holding(self, edges: Sequence[Edge], scope: Scope | None) -> Plan[list[Edge]]:
        """Return the edges as they hold at the time of a scope; see `facts_at`."""
        ids = {edge.id for edge in edges}
        sources = sorted({edge.source for edge in edges if edge.type in self.functional})
        values: list[Edge] = []
        if sources:
            hop = Hop(Direction.OUT, self.functional)
            rows = yield self._neighbours(sources, hop, scope, dated=True)
            values = [edge_of(edge, scope) for row in rows for edge in row["edges"]]
        others = [edge for edge in edges if edge.type not in self.functional]
        holding = facts_at([*others, *values], When.of(scope), self.functional)
        return [edge for edge in holding if edge.id in ids]

    def plan_contents(
        self, ids: Collection[str] | None = None, *, scope: Scope | None = None
    ) -> Call[Contents]:
        """Return the visible nodes, without embeddings, and the visible edges between them."""

        def plan() -> Plan[Contents]:
            dated = yield self.plan_has_dates()
            rows = yield self._contents(ids, scope, dated=dated)
            nodes = [node_of(row["node"], scope) for row in rows if row["node"] is not None]
            edges = [edge_of(row["edge"], scope) for row in rows if row["edge"] is not None]
            if dated:
                edges = yield from self._holding(list(dict.fromkeys(edges)), scope)
            return Contents(nodes, edges)

        return _call_of(plan)

    def _contents(
        self, ids: Collection[str] | None, scope: Scope | None, *, dated: bool
    ) -> Call[Rows]:
        node = NODE.format(projected("n", scope, embedding=False, dated=dated))
        edge = EDGE.format(projected("r", scope, dated=dated))
        nodes = "MATCH (n:__Node__) WITH n" if ids is None else nodes_by_id("n", "$ids")
        among = "" if ids is None else f" AND {own_id('other')} IN $ids"
        statement = (
            f"CALL () {{ {nodes} WHERE n.id IS NOT NULL AND {sees_node('n', scope)} "
            f"RETURN {node} AS node, null AS edge "
            f"UNION ALL {nodes} MATCH (n)-[r]->(other:__Node__) WHERE n.id IS NOT NULL AND "
            f"other.id IS NOT NULL AND {sees_node('n', scope)} AND {sees_edge('r', scope)} AND "
            f"{sees_node('other', scope)}{among} "
            f"RETURN null AS node, {edge} AS edge }} "
            "RETURN node, edge"
        )
        parameters = {"ids": None if ids is None else list(ids), **scope_parameters(scope)}
        return self.plan_read(statement, parameters)

    def plan_names(self, *, scope: Scope | None = None) -> Call[list[tuple[str, str]]]:
        """Return name and id of every visible entity, one pair per name or alias, sorted."""
        statement = (
            f"MATCH (n:__Entity__) WHERE n.id IS NOT NULL AND {sees_node('n', scope)} "
            f"RETURN {NODE.format(projected('n', scope, embedding=False))} AS node"
        )

        def pairs(rows: Rows) -> list[tuple[str, str]]:
            nodes = [node_of(row["node"], scope) for row in rows]
            return sorted({(name, node.id) for node in nodes for name in node.names})

        return self.plan_read(statement, scope_parameters(scope)).then(pairs)

    def plan_upsert(
        self, nodes: Sequence[GraphNode], edges: Sequence[Edge] = (), *, source: str | None = None
    ) -> Call[None]:
        """Write nodes and edges; see `GraphBackend.upsert`. Each batch is one transaction."""
        rows = batch_rows({source or "": Contents.of(nodes, edges)})
        sources = [{"source": source, "replaces": False}] if source else []
        statements: list[Statement] = []
        for at in range(0, max(len(rows["nodes"]), len(rows["edges"])), _BATCH):
            batch = {key: rows[key][at : at + _BATCH] for key in ("nodes", "edges")}
            ends = {end["key"]: end for row in batch["edges"] for end in row["ends"]}
            statements.append((REPLACE, {"sources": sources, **batch, "ends": [*ends.values()]}))
        return self._write(*statements)

    def plan_replace_sources(self, contents: Mapping[str, Contents]) -> Call[None]:
        """Replace the earlier rows of documents by new ones, in one transaction."""
        return self._write((REPLACE, batch_rows(contents)))

    def plan_claims_of(self, sources: Sequence[str]) -> Call[dict[str, Contents]]:
        """Return the rows that each document writes, in every partition, with embeddings."""
        statement = (
            f"MATCH (n:__Node__) WHERE any(c IN n._claims WHERE {DOCUMENT} IN $sources) "
            f"RETURN {NODE_WITH_CLAIMS} AS node, null AS edge UNION ALL "
            "MATCH (:__Node__)-[r]->(:__Node__) "
            f"WHERE any(c IN r._claims WHERE {DOCUMENT} IN $sources) "
            f"RETURN null AS node, {EDGE_WITH_CLAIMS} AS edge"
        )
        rows = self.plan_read(statement, {"sources": list(sources)})
        return rows.then(lambda rows: contents_by_source(rows, sources))

    def plan_delete_sources(self, sources: Sequence[str], *, scope: Scope | None) -> Call[None]:
        """Remove the rows of documents, except those that another source claims."""
        check_deletion(scope, sources)
        parameters = {**batch_rows({}), "replaced": list(sources), **scope_parameters(scope)}
        # Locked before rows are read, so that a concurrent writer of a document is done, or waits.
        locked = (
            "WITH $replaced AS replaced CALL (replaced) { "
            "MATCH (d:__Source__) WHERE d._key IN replaced WITH d ORDER BY d._key "
            f"{'DELETE d' if scope is None else 'SET d.writes = d.writes + 1'} }}"
        )
        return self._write((replacing(locked, scope), parameters), needs_schema=False)

    def plan_clear(self, *, scope: Scope | None) -> Call[None]:
        """Remove every visible row."""
        check_deletion(scope)
        labels = "__Node__|__Source__" if scope is None else "__Node__"
        statement = (
            f"MATCH (n:{labels}) WHERE {sees_node('n', scope)} "
            "AND NOT (n:__Source__ AND n.functional IS NOT NULL) DETACH DELETE n"
        )
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
                rows: Any = [*parameters.get("edges", ()), *parameters.get("nodes", ())]  # type: ignore[misc]
                claims = (claim for row in rows for claim in row["claims"])
                if not self._has_dates and any(MARK in claim for claim in claims):
                    yield self.connection.write("MERGE (:__Source__ {_key: $key})", {"key": _DATED})
                    yield self._recorded_dates()
                yield self.connection.write(statement, parameters, _storing_greatest)
                self.version += 1

        return _call_of(plan)


def _call_of(plan: Callable[[], Plan[T]]) -> Call[T]:
    """Return several steps as one call."""
    return Call(lambda: run(plan()), lambda: arun(plan()))


def _storing_greatest(rows: Rows) -> Statement | None:
    """Return the statement after one that returned rows: it stores their greatest claims."""
    return (REPLACE, {**batch_rows({}), **greatest_rows(rows)}) if rows else None
