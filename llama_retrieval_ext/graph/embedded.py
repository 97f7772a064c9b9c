"""`EmbeddedGraph`: an in-process graph with adjacency in memory and rows in SQLite."""

from collections import ChainMap, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from operator import attrgetter
from pathlib import Path
from threading import RLock
from typing import Final

from llama_retrieval_ext.errors import StoreClosedError
from llama_retrieval_ext.execution.drivers import in_thread
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.adjacency import (
    Adjacency,
    Changes,
    NodeEntry,
    names_in,
    neighbours_in,
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
from llama_retrieval_ext.graph.loading import entities_at, load, named_entry, read_edges, read_nodes
from llama_retrieval_ext.graph.sqlite_rows import (
    FILE,
    EdgeClaim,
    EdgeKey,
    GraphRows,
    NodeClaim,
    locked,
)
from llama_retrieval_ext.graph.validity import When, as_fact
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.urls import local_path

MEMORY: Final = ":memory:"
# Maximum number of cached nodes.
_CACHED: Final = 50_000


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
        self.url = f"graph:{MEMORY if self.directory == MEMORY else local_path(directory)}"
        self._lock = RLock()
        self._guard = None if self.directory == MEMORY else locked(Path(directory))
        self._rows: GraphRows | None = None
        self._partitions: dict[Partition, Adjacency] = {}
        self._cache: dict[int, GraphNode] = {}  # by the key of the claim
        self.version = 0
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
        return [view.seen_by(scope, self.functional) for view in self._views(scope)]

    def _views(self, scope: Scope | None) -> list[Adjacency]:
        """Return the adjacency of each partition that a scope reaches, for any principal."""
        self._open_rows()
        kb_ids = () if scope is None or scope.tenant_id is None else scope.kb_ids or ()
        if scope is not None and len(kb_ids) == 1:
            view = self._partitions.get(Partition(scope.tenant_id, kb_ids[0]))
            return [] if view is None else [view]
        views = [*self._partitions.values()]
        if scope is not None:
            views = [view for view in views if view.partition.is_in(scope)]
        return sorted(views, key=attrgetter("partition.order"))

    def node(self, view: Adjacency, node_id: str) -> GraphNode | None:
        """Return a node of a view; None if it was deleted meanwhile."""
        return self._nodes([node_id], [view]).get(node_id)

    def plan_nodes(
        self, ids: Sequence[str], *, scope: Scope | None = None
    ) -> Call[dict[str, GraphNode]]:
        """Return the visible nodes with these ids, by id."""

        def read() -> dict[str, GraphNode]:
            return self._nodes(ids, self.views(scope))

        async def coroutine() -> dict[str, GraphNode]:
            if not self._lock.acquire(blocking=False):  # during a write, not on the event loop
                return await in_thread(read)
            try:
                return read()
            finally:
                self._lock.release()

        return Call(read, coroutine)

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

        def replace(write: "_Write") -> None:
            write.delete_claims(contents)
            write.claim(contents.items())

        return Call(lambda: self._change(None, replace))

    def plan_claims_of(self, sources: Sequence[str]) -> Call[dict[str, Contents]]:
        """Return the rows that each document writes, in every partition, with embeddings."""

        def claims() -> dict[str, Contents]:
            with self._lock:
                return {source: self._open_rows().contents_of(source) for source in sources}

        return Call(claims)

    def plan_delete_sources(self, sources: Sequence[str], *, scope: Scope | None) -> Call[None]:
        """Remove the rows of documents, except those that another source claims."""
        check_deletion(scope, sources)
        return Call(lambda: self._change(scope, lambda write: write.delete_claims(sources)))

    def delete_nodes(self, ids: Sequence[str], *, scope: Scope | None) -> None:
        """Remove visible nodes and their edges, whoever claims them."""
        self._change(scope, lambda write: write.delete_nodes(ids))

    def delete_edges(self, edges: Iterable[Edge], *, scope: Scope | None) -> None:
        """Remove visible edges, whoever claims them; their ends stay."""
        self._change(scope, lambda write: write.delete_edges(list(edges)))

    def plan_clear(self, *, scope: Scope | None) -> Call[None]:
        """Remove every visible row."""
        return Call(lambda: self._change(scope, lambda write: write.delete_nodes(None)))

    def set_functional(self, relations: Collection[str]) -> None:
        """Record the relations that have one value at a time."""
        with self._writing() as rows, rows.transaction():
            rows.set_functional(relations)
            self.functional = frozenset(relations)

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

    def _load(self, rows: GraphRows) -> None:
        self._partitions, self._cache = load(rows), {}
        self.functional = rows.functional()

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

    def _change(self, scope: Scope | None, change: Callable[["_Write"], None]) -> None:
        """Make changes on disk in one transaction, then in memory."""
        check_deletion(scope)
        with self._writing() as rows:
            with rows.transaction():
                write = _Write(rows, self._partitions, self._views(scope))
                change(write)
                changes = write.finish()
            # A new dict, because readers may iterate over the old one.
            self._partitions = write.partitions
            for view, changed in changes.items():
                view.apply(changed)

    def _nodes(self, ids: Sequence[str], views: Sequence[Adjacency]) -> dict[str, GraphNode]:
        with suppress(KeyError):  # unless all are in the cache
            return self._at_time(_shown(ids, views, self._cache), views)
        with self._lock:  # no write between the look at memory and the one at the disk
            entries = ((id_, view.nodes.get(id_)) for id_, view in product(ids, views))
            claims = {entry.claim: id_ for id_, entry in entries if entry is not None}
            missing = {claim: id_ for claim, id_ in claims.items() if claim not in self._cache}
            read = self._open_rows().contents(missing)
            nodes = _shown(ids, views, ChainMap(read, self._cache))
            if len(self._cache) > _CACHED:
                self._cache.clear()
            self._cache.update(read)
            return self._at_time(nodes, views)

    def _at_time(
        self, nodes: dict[str, GraphNode], views: Sequence[Adjacency]
    ) -> dict[str, GraphNode]:
        """Return nodes with the properties that hold, each by the first view that has it."""
        dated: dict[int, tuple[GraphNode, When]] = {}
        for view in reversed(views):
            for id_ in view.dated_nodes.intersection(nodes) if view.dated_nodes else ():
                if view.when is not None and nodes[id_].partition == view.partition:
                    dated[view.nodes[id_].key] = nodes[id_], view.when
        if dated:
            with self._lock:
                nodes |= {node.id: node for node in entities_at(self._open_rows(), dated)}
        return nodes

    def _contents(self, views: Sequence[Adjacency], ids: Collection[str] | None) -> Contents:
        """Return contents without the cache, which so many nodes would flush."""
        nodes: list[GraphNode] = []
        with self._lock:  # as in `_nodes`
            for view in views:
                listed = [id_ for id_ in (view.nodes if ids is None else ids) if id_ in view.nodes]
                claims = {view.nodes[id_].claim: id_ for id_ in listed}
                read = self._open_rows().contents(claims, embeddings=False)
                nodes += self._at_time(_shown(listed, [view], read), [view]).values()
        edges = (edge for view in views for edge in view.outgoing())
        return Contents(
            nodes, [e for e in edges if ids is None or (e.source in ids and e.target in ids)]
        )


def _shown(
    ids: Iterable[str], views: Sequence[Adjacency], nodes: Mapping[int, GraphNode]
) -> dict[str, GraphNode]:
    """Return the nodes with ids in the first view that has them; nodes are by claim."""
    shown: dict[str, GraphNode] = {}
    for id_, view in product(ids, views):
        entry = None if id_ in shown else view.nodes.get(id_)
        if entry is not None:
            shown[id_] = nodes[entry.claim] if entry.claim else view.named(id_)
    return shown


class _Write:
    """The changes of one transaction: on disk at once, and in memory after it.

    Attributes:
        partitions: The adjacency of each partition, new ones included.
        views: Those that the scope of the write reaches.
    """

    def __init__(
        self, rows: GraphRows, partitions: Mapping[Partition, Adjacency], views: Sequence[Adjacency]
    ) -> None:
        self.partitions, self.views = dict(partitions), views
        self._rows = rows
        self._last_node, self._last_claim = rows.last_keys()
        self._changes: dict[Adjacency, Changes] = defaultdict(Changes)
        # The nodes that documents name as ends of edges, with the principals.
        self._named: dict[tuple[str, int], Sequence[str]] = {}
        # Rows whose claims are read after the write: not everyone sees the last one, or it is gone.
        self._nodes: dict[int, tuple[Adjacency, str]] = {}
        self._edges: dict[EdgeKey, tuple[Adjacency, EdgeId]] = {}

    def claim(self, claims: Iterable[tuple[str | None, Contents]]) -> None:
        """Write what documents say of nodes and edges; a missing end becomes an entity."""
        node_claims: list[NodeClaim] = []
        edge_claims: list[EdgeClaim] = []
        for source, (nodes, edges) in claims:
            document = source or ""  # rows without a document
            node_claims += [self._node_claim(document, node) for node in nodes]
            edge_claims += [self._edge_claim(document, edge) for edge in edges]
        self._rows.claim_nodes(node_claims)
        self._rows.claim_edges(edge_claims)
        named = enumerate(self._named.items(), start=self._last_claim + 1)
        self._rows.name_nodes((-claim, *names, allowed) for claim, (names, allowed) in named)
        self._last_claim += len(self._named)

    def delete_claims(self, sources: Iterable[str]) -> None:
        """Delete what documents say; rows without another claim are removed."""
        by_key = {view.key: view for view in self.views}
        for source in dict.fromkeys(sources):
            nodes, edges = self._rows.delete_claims(source, by_key.keys())
            self._nodes |= {key: (by_key[home], id_) for key, home, id_ in nodes}
            self._edges |= {key: (by_key[home], id_) for key, home, id_ in edges}

    def delete_nodes(self, ids: Collection[str] | None) -> None:
        """Delete nodes and their edges, whoever claims them; None for all."""
        for view in self.views:
            listed = view.nodes if ids is None else [id_ for id_ in ids if id_ in view.nodes]
            self._nodes |= {view.nodes[id_].key: (view, id_) for id_ in listed}
            self._rows.delete_nodes(view.nodes[id_].key for id_ in listed)

    def delete_edges(self, edges: Collection[Edge]) -> None:
        """Delete edges, whoever claims them."""
        for view in self.views:
            inner = [e for e in edges if e.source in view.nodes and e.target in view.nodes]
            keys = {view.key_of(edge): (view, edge.id) for edge in inner}
            self._rows.delete_edges(keys)
            self._edges |= keys

    def finish(self) -> dict[Adjacency, Changes]:
        """Read the claims that are left, remove rows without one, and return what has changed."""
        self._rows.set_last_claim(self._last_claim)
        ids = {key: id_ for key, (_, id_) in self._nodes.items()}
        entries = read_nodes(self._rows, ids, ids)
        gone: dict[Adjacency, list[str]] = defaultdict(list)
        for key, (view, id_) in self._nodes.items():
            self._changes[view].nodes[id_] = entries.get(key)
            if key not in entries:
                gone[view].append(id_)
        for view, removed in gone.items():
            keys = {view.key_of(edge): (view, edge.id) for edge in view.incident(removed)}
            self._rows.delete_edges(keys)
            self._rows.delete_nodes(view.nodes[id_].key for id_ in removed)
            self._edges |= keys
        for (source, _, target), (_, edge_id) in self._edges.items():
            ids[source], ids[target] = edge_id[0], edge_id[2]
        edges = {
            (source, edge.type, target): edge
            for source, target, edge in read_edges(self._rows, ids, [*self._edges])
        }
        for edge_key, (view, edge_id) in self._edges.items():
            self._changes[view].edges[edge_id] = edges.get(edge_key)
        return self._changes

    def _node_claim(self, document: str, node: GraphNode) -> NodeClaim:
        view, allowed = self._view(node.partition), allowed_of(node.properties)
        claim, node = as_fact(document, node.stored())
        if claim != document:
            self._changes[view].dated_nodes.add(node.id)
        before, key = self._entry(view, node.id)
        self._last_claim += 1
        names = node.label, node.names
        self._changes[view].nodes[node.id] = NodeEntry(key, self._last_claim, *names)
        if allowed or (before is not None and before.claims is not None):
            self._nodes[key] = view, node.id
        return NodeClaim(self._last_claim, claim, key, allowed, node)

    def _edge_claim(self, document: str, edge: Edge) -> EdgeClaim:
        properties = edge.properties
        view, allowed = self._view(Partition.of(properties)), allowed_of(properties)
        document_of_claim, edge = as_fact(document, edge.stored())
        source, target = (self._end(view, i, document, allowed) for i in (edge.source, edge.target))
        ends = source, edge.type, target
        self._changes[view].edges[edge.id] = edge
        if allowed or view.is_restricted or view.is_dated or document_of_claim != document:
            self._edges[ends] = view, edge.id
        self._last_claim += 1
        return EdgeClaim(ends, document_of_claim, self._last_claim, allowed, edge)

    def _end(self, view: Adjacency, id_: str, document: str, allowed: Sequence[str]) -> int:
        """Return the key of the end of an edge, a node that the document names."""
        before, key = self._entry(view, id_)
        if before is None:
            self._changes[view].nodes[id_] = named_entry(key, id_)
        if (allowed and before is None) or (before is not None and before.claims is not None):
            self._nodes[key] = view, id_
        # Rows without a document do not claim the nodes of documents.
        if before is None or document or key in self._nodes:
            self._named[document, key] = allowed
        return key

    def _view(self, partition: Partition) -> Adjacency:
        view = self.partitions.get(partition)
        if view is None:
            view = self.partitions[partition] = Adjacency(partition, len(self.partitions) + 1)
            self._rows.add_partition(view.key, partition)
        return view

    def _entry(self, view: Adjacency, id_: str) -> tuple[NodeEntry | None, int]:
        """Return the entry of a node, if there is one, and its key, which is new if not."""
        before = self._changes[view].nodes.get(id_) or view.nodes.get(id_)
        if before is None:
            self._last_node += 1
            self._rows.add_node(self._last_node, view.key, id_)
        return before, self._last_node if before is None else before.key
