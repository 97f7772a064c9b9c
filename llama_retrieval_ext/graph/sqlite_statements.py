"""SQL of `GraphRows`: the supports of rows by their sources."""

from typing import Final

# A source is a parameter of its own: SQLite cuts strings in JSON at a NUL character.
NODES_OF: Final = (
    "SELECT node, partition FROM node_sources JOIN nodes ON nodes.key = node WHERE source = ?"
)
EDGES_OF: Final = (
    "SELECT edge, partition FROM edge_sources JOIN edges ON edges.key = edge "
    "JOIN nodes ON nodes.key = edges.source WHERE edge_sources.source = ?"
)
UNSUPPORTED_NODES: Final = (
    "SELECT key FROM nodes WHERE key IN (SELECT value FROM json_each(?)) "
    "AND NOT EXISTS (SELECT 1 FROM node_sources WHERE node = key)"
)
UNSUPPORTED_EDGES: Final = (
    "SELECT key, source, type, target FROM edges WHERE key IN (SELECT value FROM json_each(?)) "
    "AND NOT EXISTS (SELECT 1 FROM edge_sources WHERE edge = key)"
)
_ENDS: Final = (
    "JOIN edges ON edges.key = edge JOIN nodes a ON a.key = edges.source "
    "JOIN nodes b ON b.key = edges.target"
)
UNSAID: Final = (
    "SELECT {0}, max(said) AS said FROM {0}_sources WHERE {0} IN (SELECT value FROM json_each(?)) "
    "GROUP BY {0} HAVING sum(said IS NULL) = 0"
)
UNSAID_EDGES: Final = (
    f"WITH unsaid AS ({UNSAID.format('edge')}) SELECT edge, said, "  # noqa: S608 - constants
    f"edges.source, type, edges.target, a.id, b.id FROM unsaid {_ENDS}"
)
SAID_NODES: Final = (
    "SELECT allowed, said, id, label, name, properties, text, embedding FROM node_sources "
    "JOIN nodes ON nodes.key = node WHERE source = ? AND said IS NOT '' ORDER BY key"
)
SAID_EDGES: Final = (
    "SELECT allowed, a.id, type, b.id, coalesce(said, edges.properties) "  # noqa: S608 - constants
    f"FROM edge_sources {_ENDS} WHERE edge_sources.source = ? ORDER BY edges.key"
)
# Of sources with the same principals, SQLite returns the columns of the one with the maximum.
_BEST: Final = (
    "said, max(CASE WHEN said IS NULL THEN '2' WHEN said = '' THEN '0' ELSE '1' || said END)"
)
_SUPPORT: Final = {
    "node": f"partition, id, allowed, {_BEST} FROM node_sources JOIN nodes ON nodes.key = node",
    "edge": f"a.partition, a.id, type, b.id, allowed, {_BEST} FROM edge_sources {_ENDS}",
}
RESTRICTED: Final = "SELECT {0} FROM {0}_sources WHERE allowed <> '[]'"
GIVEN: Final = "SELECT value FROM json_each(?)"


def support(kind: str, keys: str) -> str:
    """Return the statement for the supports of the nodes or edges with selected keys."""
    own = keys.format(kind)
    return f"SELECT {_SUPPORT[kind]} WHERE {kind} IN ({own}) GROUP BY {kind}, allowed"
