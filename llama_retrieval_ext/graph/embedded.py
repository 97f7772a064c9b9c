"""`EmbeddedGraph`: an in-process graph with adjacency in memory and rows in SQLite."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from threading import RLock
from typing import Final, TypeVar

from llama_retrieval_ext.errors import StoreClosedError, StoreUnavailableError
from llama_retrieval_ext.execution.drivers import in_thread
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.adjacency import (
    Adjacency,
    Changes,
    NodeEntry,
    load,
    named_entry,
    names_in,
    neighbours_in,
    read_edges,
    read_nodes,
)
from llama_retrieval_ext.graph.backend import ANY_HOP, WritableGraph, immediate
from llama_retrieval_ext.graph.elements import (
    Contents,
    Edge,
    EdgeId,
    GraphNode,
    Hop,
    Partition,
    allowed_of,
    check_deletion,
)
from llama_retrieval_ext.graph.sqlite_rows import FILE, EdgeClaim, EdgeKey, GraphRows, NodeClaim
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.embedded.files import DirectoryLock
from llama_retrieval_ext.urls import local_path

MEMORY: Final = ":memory:"
# Maximum number of cached nodes.
_CACHED: Final = 50_000
# The document of rows that are written without one.
_NO_DOCUMENT: Final = ""

T = TypeVar("T")


class EmbeddedGraph(WritableGraph):
    """Graph backend without a server, for one process at a time and any number of threads.

    Reads take microseconds and run on the event loop; writes are one SQLite transaction each.

    Args:
        directory: Directory of the graph, created if missing; ``:memory:`` for a graph that is
            lost when closed.

    Raises:
        StoreUnavailableError: The graph is already open, or cannot be opened.
        StoreFormatError: The directory contains something else, or a newer graph.

    Examples:
        >>> with EmbeddedGraph(":memory:") as graph:
        ...     graph.upsert([], [Edge.of("pit", "HAS_HAZARD", "collapse")])
        ...     graph.names(scope=None)
        [('collapse', 'collapse'), ('pit', 'pit')]

    """

    engine = "embedded"

    def __init__(self, directory: str | Path) -> None:
        self.directory = str(directory)
        resolved = MEMORY if self.directory == MEMORY else local_path(directory)
        self.url = f"graph:{resolved}"
        self._lock = RLock()
        self._guard: DirectoryLock | None = None
        self._rows: GraphRows | None = None
        self._partitions: dict[Partition, Adjacency] = {}
        self._cache: dict[int, GraphNode] = {}  # by the key of the claim
        self.version = 0
        if self.directory != MEMORY:
            self._guard = _locked(Path(directory))
        try:
            self._rows = GraphRows(None if self._guard is None else Path(directory) / FILE)
            self._load(self._rows)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"EmbeddedGraph({self.directory!r})"

    # Reading

    def views(self, scope: Scope | None) -> list[Adjacency]:
        """Return the adjacency of each visible partition, in the order of their names."""
        views = self._views(scope)
        if scope is None or scope.principals is None:
            return views
        return [view.visible_to(scope.principals) for view in views]

    def _views(self, scope: Scope | None) -> list[Adjacency]:
        """Return the adjacency of each partition that a scope reaches, for any principal."""
        self._open_rows()
        if scope is not None and scope.kb_ids and len(scope.kb_ids) == 1:
            partition = Partition(scope.tenant_id, scope.kb_ids[0])
            if scope.tenant_id is not None:
                view = self._partitions.get(partition)
                return [] if view is None else [view]
        views = [view for partition, view in self._partitions.items() if partition.is_in(scope)]
        return sorted(views, key=lambda view: view.partition.order)

    def node(self, view: Adjacency, node_id: str) -> GraphNode | None:
        """Return a node of a view; None if it was deleted meanwhile."""
        return self._nodes([node_id], [view]).get(node_id)

    def plan_nodes(
        self, ids: Sequence[str], *, scope: Scope | None = None
    ) -> Call[dict[str, GraphNode]]:
        """Return the visible nodes with these ids, by id."""
        return self._immediate(lambda: self._nodes(ids, self.views(scope)))

    def plan_neighbours(
        self, frontier: Sequence[str], hop: Hop = ANY_HOP, *, scope: Scope | None = None
    ) -> Call[dict[str, list[Edge]]]:
        """Return the visible edges of each node of a frontier, capped and ordered."""
        return immediate(lambda: neighbours_in(self.views(scope), frontier, hop))

    def plan_contents(
        self, ids: Collection[str] | None = None, *, scope: Scope | None = None
    ) -> Call[Contents]:
        """Return the visible nodes, without embeddings, and the visible edges between them."""
        return Call(lambda: self._contents(self.views(scope), None if ids is None else set(ids)))

    def plan_names(self, *, scope: Scope | None = None) -> Call[list[tuple[str, str]]]:
        """Return name and id of every visible entity, one pair per name or alias, sorted."""
        return Call(lambda: names_in(self.views(scope)))

    # Writing

    def plan_upsert(
        self, nodes: Sequence[GraphNode], edges: Sequence[Edge] = (), *, source: str | None = None
    ) -> Call[None]:
        """Write nodes and edges in one transaction; see `GraphBackend.upsert`."""
        rows = Contents.of(nodes, edges)
        return Call(lambda: self.write([(source, rows)]))

    def plan_replace_sources(self, contents: Mapping[str, Contents]) -> Call[None]:
        """Replace the earlier rows of documents by new ones, in one transaction."""

        def replace_claims(write: "_Write") -> None:
            write.delete_claims([*contents], self._views(None))
            write.claim(contents.items())

        return Call(lambda: self._change(None, replace_claims))

    def plan_claims_of(self, sources: Sequence[str]) -> Call[dict[str, Contents]]:
        """Return the rows that each document writes, in every partition, with embeddings."""

        def function() -> dict[str, Contents]:
            with self._lock:
                rows = self._open_rows()
                return {source: rows.contents_of(source) for source in sources}

        return Call(function)

    def plan_delete_sources(self, sources: Sequence[str], *, scope: Scope | None) -> Call[None]:
        """Remove the rows of documents, except those that another source claims."""
        check_deletion(scope, sources)
        return Call(
            lambda: self._change(
                scope, lambda write: write.delete_claims(sources, self._views(scope))
            )
        )

    def delete_nodes(self, ids: Sequence[str], *, scope: Scope | None) -> None:
        """Remove visible nodes and their edges, whoever claims them."""

        def delete(write: "_Write") -> None:
            for view in self._views(scope):
                write.delete_nodes(view, [id_ for id_ in ids if id_ in view.nodes])

        self._change(scope, delete)

    def delete_edges(self, edges: Iterable[Edge], *, scope: Scope | None) -> None:
        """Remove visible edges, whoever claims them; their ends stay."""

        def delete(write: "_Write") -> None:
            for view, edge in product(self._views(scope), edges):
                if edge.source in view.nodes and edge.target in view.nodes:
                    write.delete_edge(view, edge)

        self._change(scope, delete)

    def plan_clear(self, *, scope: Scope | None) -> Call[None]:
        """Remove every visible row."""

        def delete(write: "_Write") -> None:
            for view in self._views(scope):
                write.delete_nodes(view, [*view.nodes])

        return Call(lambda: self._change(scope, delete))

    @property
    def was_closed(self) -> bool:
        """Whether its file was closed cleanly before it was opened."""
        return self._open_rows().was_closed

    def sources(self) -> set[str]:
        """Return the sources of all nodes."""
        with self._lock:
            return self._open_rows().sources()

    def load(self, directory: Path) -> None:
        """Replace all rows by those of a graph in another directory, maybe open elsewhere."""
        with self._writing() as rows:
            rows.load(directory / FILE)
            self._load(rows)

    def compact(self) -> int:
        """Free the disk space of deleted rows; return the bytes freed."""
        with self._lock:
            return self._open_rows().compact()

    def close(self) -> None:
        """Close the files and release the lock of the directory; a second call does nothing."""
        with self._lock:
            rows, self._rows = self._rows, None
            guard, self._guard = self._guard, None
            if rows is not None:
                rows.close()
            if guard is not None:
                guard.release()

    # Inside

    def _load(self, rows: GraphRows) -> None:
        self._partitions, self._cache = load(rows), {}

    def _open_rows(self) -> GraphRows:
        if self._rows is None:
            raise StoreClosedError(f"the graph {self.directory} was closed; open it again")
        return self._rows

    @contextmanager
    def _writing(self) -> Iterator[GraphRows]:
        with self._lock:
            yield self._open_rows()
            self.version += 1

    def write(self, claims: Iterable[tuple[str | None, Contents]]) -> None:
        """Write rows, each with its source, in one transaction."""
        self._change(None, lambda write: write.claim(claims))

    def _change(self, scope: Scope | None, make: Callable[["_Write"], None]) -> None:
        """Make changes on disk in one transaction, then in memory."""
        check_deletion(scope)
        with self._writing() as rows:
            with rows.transaction():
                write = _Write(rows, self._partitions)
                make(write)
                changes = write.finish()
            # A new dict, because readers may iterate over the old one.
            self._partitions = write.partitions
            for view in write.partitions.values():
                if view.key in changes:
                    view.apply(changes[view.key])

    def _immediate(self, read: Callable[[], T]) -> Call[T]:
        """Return a call that runs on the event loop, or in a thread during a write."""

        async def coroutine() -> T:
            if not self._lock.acquire(blocking=False):
                return await in_thread(read)
            try:
                return read()
            finally:
                self._lock.release()

        return Call(read, coroutine)

    def _nodes(self, ids: Sequence[str], views: Sequence[Adjacency]) -> dict[str, GraphNode]:
        homes: dict[str, tuple[Adjacency, NodeEntry]] = {}
        for id_, view in product(ids, views):
            entry = None if id_ in homes else view.nodes.get(id_)
            if entry is not None:
                homes[id_] = view, entry
        claims = {entry.claim: id_ for id_, (_, entry) in homes.items() if entry.claim}
        nodes = {claim: self._cache.get(claim) for claim in claims}
        missing = {claim: claims[claim] for claim, node in nodes.items() if node is None}
        if missing:
            with self._lock:
                read = self._open_rows().contents(missing)
                if len(self._cache) > _CACHED:
                    self._cache.clear()
                self._cache.update(read)
            nodes.update(read)
        return {
            id_: node
            for id_, (view, entry) in homes.items()
            if (node := nodes[entry.claim] if entry.claim else _named(view, id_)) is not None
        }

    def _contents(self, views: Sequence[Adjacency], ids: Collection[str] | None) -> Contents:
        """Return contents without the cache, which so many nodes would flush."""
        nodes: list[GraphNode] = []
        for view in views:
            entries = {i: e for i, e in view.entries() if ids is None or i in ids}
            claims = {entry.claim: id_ for id_, entry in entries.items() if entry.claim}
            with self._lock:
                nodes += self._open_rows().contents(claims, embeddings=False).values()
            nodes += [_named(view, id_) for id_, entry in entries.items() if not entry.claim]
        edges = (edge for view in views for edge in view.outgoing())
        return Contents(
            nodes, [e for e in edges if ids is None or (e.source in ids and e.target in ids)]
        )


def _named(view: Adjacency, id_: str) -> GraphNode:
    """Return a node that visible documents only name, as the end of an edge."""
    return GraphNode(id_, properties=view.partition.properties)


class _Write:
    """The changes of one transaction: on disk, and what they change in memory.

    Attributes:
        partitions: The adjacency of each partition, new ones included.
    """

    def __init__(self, rows: GraphRows, partitions: Mapping[Partition, Adjacency]) -> None:
        self._rows = rows
        self.partitions = dict(partitions)
        self._last_node, self._last_claim = rows.last_keys()
        self._new_nodes: list[tuple[int, int, str]] = []
        self._node_claims: list[NodeClaim] = []
        self._edge_claims: list[EdgeClaim] = []
        self._named: dict[tuple[str, int], tuple[str, ...]] = {}
        self._changes: dict[int, Changes] = defaultdict(Changes)  # by the key of the partition
        # Rows whose claims are read after the write, with the key of the partition: some callers
        # see another claim than the last, or none is left.
        self._nodes: dict[int, tuple[int, str]] = {}
        self._edges: dict[EdgeKey, tuple[int, EdgeId]] = {}

    def claim(self, claims: Iterable[tuple[str | None, Contents]]) -> None:
        """Write what documents say of nodes and edges; a missing end becomes an entity."""
        for source, (nodes, edges) in claims:
            for node in nodes:
                self._claim_node(source or _NO_DOCUMENT, node)
            for edge in edges:
                self._claim_edge(source or _NO_DOCUMENT, edge)

    def delete_claims(self, sources: Iterable[str], views: Sequence[Adjacency]) -> None:
        """Delete what documents say in partitions; rows without another claim are removed."""
        keys = {view.key for view in views}
        for source in dict.fromkeys(sources):
            nodes, edges = self._rows.delete_claims(source, keys)
            self._nodes |= nodes
            self._edges |= edges

    def delete_nodes(self, view: Adjacency, ids: Sequence[str]) -> None:
        """Delete nodes and their edges, whoever claims them."""
        edges = {view.key_of(edge): (view.key, edge.id) for edge in view.incident(ids)}
        nodes = {view.nodes[id_].key: (view.key, id_) for id_ in ids}
        self._rows.delete(nodes, edges)
        self._nodes |= nodes
        self._edges |= edges

    def delete_edge(self, view: Adjacency, edge: Edge) -> None:
        """Delete an edge, whoever claims it."""
        key = view.key_of(edge)
        self._rows.delete((), [key])
        self._edges[key] = view.key, edge.id

    def finish(self) -> dict[int, Changes]:
        """Write the claims; return the changes for memory by the key of the partition."""
        rows = self._rows
        rows.add_nodes(self._new_nodes)
        rows.claim_nodes(self._node_claims)
        rows.name_nodes(
            (-self._claim_key(), document, node, allowed)
            for (document, node), allowed in self._named.items()
        )
        rows.claim_edges(self._edge_claims)
        rows.set_last_claim(self._last_claim)
        entries = read_nodes(rows, {key: id_ for key, (_, id_) in self._nodes.items()}, self._nodes)
        for key, (partition, id_) in self._nodes.items():
            self._changes[partition].nodes[id_] = entries.get(key)
        ids: dict[int, str] = {}
        for (source, _, target), (_, edge_id) in self._edges.items():
            ids[source], ids[target] = edge_id[0], edge_id[2]
        edges = {
            (source, edge.type, target): edge
            for source, target, edge in read_edges(rows, ids, [*self._edges])
        }
        for ends, (partition, edge_id) in self._edges.items():
            self._changes[partition].edges[edge_id] = edges.get(ends)
        views = {view.key: view for view in self.partitions.values()}
        for partition, changes in self._changes.items():
            gone = [id_ for id_, entry in changes.nodes.items() if entry is None]
            if gone:
                view = views[partition]
                incident = view.incident(gone)
                changes.edges |= dict.fromkeys(edge.id for edge in incident)
                rows.delete([view.nodes[id_].key for id_ in gone], map(view.key_of, incident))
        return self._changes

    def _claim_key(self) -> int:
        self._last_claim += 1
        return self._last_claim

    def _claim_node(self, document: str, node: GraphNode) -> None:
        view, allowed = self._view(node.partition), allowed_of(node.properties)
        node = node.stored()
        before = self._entry(view, node.id)
        key = self._node_key(view, node.id) if before is None else before.key
        claim = NodeClaim(self._claim_key(), document, key, allowed, node)
        self._node_claims.append(claim)
        self._changes[view.key].nodes[node.id] = NodeEntry(key, claim.key, node.label, node.names)
        if allowed or (before is not None and before.claims is not None):
            self._nodes[key] = view.key, node.id

    def _claim_edge(self, document: str, edge: Edge) -> None:
        properties = edge.properties
        view, allowed = self._view(Partition.of(properties)), allowed_of(properties)
        edge = edge.stored()
        source, target = (
            self._end(view, id_, document, allowed) for id_ in (edge.source, edge.target)
        )
        ends = source, edge.type, target
        self._edge_claims.append(EdgeClaim(ends, document, self._claim_key(), allowed, edge))
        self._changes[view.key].edges[edge.id] = edge
        if allowed or view.is_restricted:
            self._edges[ends] = view.key, edge.id

    def _end(self, view: Adjacency, id_: str, document: str, allowed: tuple[str, ...]) -> int:
        """Return the key of an end of an edge; the document of the edge names the node."""
        before = self._entry(view, id_)
        key = self._node_key(view, id_) if before is None else before.key
        if before is None:
            self._changes[view.key].nodes[id_] = named_entry(key, id_)
        if before is None or document or key in self._nodes:
            self._named[document, key] = allowed
        if (allowed and before is None) or (before is not None and before.claims is not None):
            self._nodes[key] = view.key, id_
        return key

    def _view(self, partition: Partition) -> Adjacency:
        view = self.partitions.get(partition)
        if view is None:
            view = self.partitions[partition] = Adjacency(partition, len(self.partitions) + 1)
            self._rows.add_partition(view.key, partition)
        return view

    def _entry(self, view: Adjacency, id_: str) -> NodeEntry | None:
        return self._changes[view.key].nodes.get(id_) or view.nodes.get(id_)

    def _node_key(self, view: Adjacency, id_: str) -> int:
        self._last_node += 1
        self._new_nodes.append((self._last_node, view.key, id_))
        return self._last_node


def _locked(directory: Path) -> DirectoryLock:
    """Create the directory of a graph if missing, lock it, and return the lock."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return DirectoryLock(directory)
    except StoreUnavailableError as error:
        raise StoreUnavailableError(
            f"the graph {directory} is open already, perhaps in another process; close it there, "
            "or use neo4j://, which several can share; in one program, pass on the open graph"
        ) from error
    except OSError as error:
        raise StoreUnavailableError(f"{directory} cannot be a graph's folder: {error}") from error
