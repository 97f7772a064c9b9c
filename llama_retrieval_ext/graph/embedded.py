"""`EmbeddedGraph`: an in-process graph with adjacency in memory and rows in SQLite."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from threading import RLock
from typing import Final, TypeAlias, TypeVar

from llama_retrieval_ext.errors import StoreClosedError, StoreUnavailableError
from llama_retrieval_ext.execution.drivers import in_thread
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.adjacency import (
    Adjacency,
    NodeEntry,
    VisibleAdjacency,
    load,
    names_in,
    neighbours_in,
)
from llama_retrieval_ext.graph.backend import ANY_HOP, WritableGraph, immediate
from llama_retrieval_ext.graph.elements import (
    Contents,
    Edge,
    GraphNode,
    Hop,
    Partition,
    check_deletion,
)
from llama_retrieval_ext.graph.sqlite_rows import FILE, Doomed, GraphRows, Restrictions
from llama_retrieval_ext.graph.write_batch import WriteBatch
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.embedded.files import DirectoryLock
from llama_retrieval_ext.urls import local_path

MEMORY: Final = ":memory:"
# Maximum number of cached nodes.
_CACHED: Final = 50_000

T = TypeVar("T")
_Views: TypeAlias = Mapping[Partition, Adjacency]


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
        self._partition_keys: dict[Partition, int] = {}
        self._cache: dict[int, GraphNode] = {}
        self._next_key = 1
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
                found = self._partitions.get(partition)
                return [] if found is None else [found]
        visible = self._visible(scope)
        return [visible[partition] for partition in sorted(visible, key=lambda each: each.order)]

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
        return Call(
            lambda: self.write(
                ((source, node) for node in rows.nodes), ((source, edge) for edge in rows.edges)
            )
        )

    def plan_replace_sources(self, said: Mapping[str, Contents]) -> Call[None]:
        """Replace the earlier rows of documents by new ones, in one transaction."""
        return Call(
            lambda: self.write(
                ((source, node) for source, own in said.items() for node in own.nodes),
                ((source, edge) for source, own in said.items() for edge in own.edges),
                replaced=list(said),
            )
        )

    def plan_said_by(self, sources: Sequence[str]) -> Call[dict[str, Contents]]:
        """Return the rows that each document supports, in every partition, with embeddings."""

        def function() -> dict[str, Contents]:
            with self._lock:
                return self._open_rows().said_by(sources)

        return Call(function)

    def plan_delete_sources(self, sources: Sequence[str], *, scope: Scope | None) -> Call[None]:
        """Remove the rows of documents, except those that another source supports."""
        return Call(lambda: self._change(scope, withdrawn=sources))

    def delete_nodes(self, ids: Sequence[str], *, scope: Scope | None) -> None:
        """Remove visible nodes and their edges, even if a source supports them."""

        def doomed(_: GraphRows, views: _Views) -> Doomed:
            own = views.values()
            return Doomed({view.nodes[id_].key for id_ in ids for view in own if id_ in view.nodes})

        self._change(scope, doomed=doomed)

    def delete_edges(self, edges: Iterable[Edge], *, scope: Scope | None) -> None:
        """Remove visible edges, even if a source supports them; their ends stay."""

        def doomed(rows: GraphRows, views: _Views) -> Doomed:
            ends = {
                view.key_of(edge)
                for edge in edges
                for view in views.values()
                if edge.source in view.nodes and edge.target in view.nodes
            }
            return Doomed(edges=rows.edge_keys(ends))

        self._change(scope, doomed=doomed)

    def plan_clear(self, *, scope: Scope | None) -> Call[None]:
        """Remove every visible row."""
        return Call(lambda: self._change(scope, doomed=_every_node))

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
        self._partition_keys, self._partitions = load(rows)
        self._cache, self._next_key = {}, rows.last_key() + 1

    def _open_rows(self) -> GraphRows:
        if self._rows is None:
            raise StoreClosedError(f"the graph {self.directory} was closed; open it again")
        return self._rows

    def _visible(self, scope: Scope | None) -> dict[Partition, Adjacency]:
        return {p: view for p, view in self._partitions.items() if p.is_in(scope)}

    @contextmanager
    def _writing(self) -> Iterator[GraphRows]:
        with self._lock:
            yield self._open_rows()
            self.version += 1

    def write(
        self,
        nodes: Iterable[tuple[str | None, GraphNode]],
        edges: Iterable[tuple[str | None, Edge]],
        *,
        replaced: Sequence[str] = (),
    ) -> None:
        """Write nodes and edges, each with its source, in one transaction.

        The support of ``replaced`` sources for earlier rows is withdrawn first.
        """
        self._change(None, nodes, edges, withdrawn=replaced)

    def _change(
        self,
        scope: Scope | None,
        nodes: Iterable[tuple[str | None, GraphNode]] = (),
        edges: Iterable[tuple[str | None, Edge]] = (),
        *,
        withdrawn: Sequence[str] = (),
        doomed: Callable[[GraphRows, _Views], Doomed] = lambda *_: Doomed(),
    ) -> None:
        """Write rows, and delete those of a scope that are doomed or lose their last source."""
        check_deletion(scope, withdrawn)
        with self._writing() as rows:
            batch = WriteBatch(self._partitions, self._partition_keys, self._next_key)
            for source, node in nodes:
                batch.add_node(node, source)
            for source, edge in edges:
                batch.add_edge(edge, source)
            views = self._visible(scope)
            with rows.transaction():
                lost = rows.withdraw(withdrawn, [self._partition_keys[view] for view in views])
                batch.write(rows)
                batch.restore(rows, *lost)
                found = rows.unsupported(*lost) if withdrawn else doomed(rows, views)
                remove = self._remove(rows, found, views)
                allowed = batch.restrictions(rows, *lost)
            self._next_key = batch.next_key
            self._restrict(allowed, is_written=False)
            self._apply(batch)
            self._restrict(allowed, is_written=True)
            remove()

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
        if not any(isinstance(view, VisibleAdjacency) for view in views):
            return self._shown(ids, views)
        with self._lock:  # a row, who may see it, and what it says to whom change together
            return self._shown(ids, views)

    def _shown(self, ids: Sequence[str], views: Sequence[Adjacency]) -> dict[str, GraphNode]:
        homes: dict[str, Adjacency] = {}
        entries: dict[str, NodeEntry] = {}
        for id_, view in product(ids, views):
            entry = None if id_ in homes else view.nodes.get(id_)
            if entry is not None:
                homes[id_], entries[id_] = view, entry
        return {id_: homes[id_].shown(node) for id_, node in self._fetched(entries).items()}

    def _fetched(self, entries: Mapping[str, NodeEntry]) -> dict[str, GraphNode]:
        """Return nodes by id from cache or disk, without those deleted in the meantime."""
        known = {entry.key: self._cache.get(entry.key) for entry in entries.values()}
        missing = [key for key, node in known.items() if node is None]
        if missing:
            with self._lock:
                read = self._open_rows().nodes(missing)
                if len(self._cache) > _CACHED:
                    self._cache.clear()
                self._cache.update(read)
            known.update(read)
        found = {id_: known[entry.key] for id_, entry in entries.items()}
        return {id_: node for id_, node in found.items() if node is not None}

    def _contents(self, views: Sequence[Adjacency], ids: Collection[str] | None) -> Contents:
        """Return contents without the cache, which so many nodes would flush."""
        nodes: list[GraphNode] = []
        with self._lock:  # as in `_nodes`
            for view in views:
                own = view.nodes if ids is None else [id_ for id_ in ids if id_ in view.nodes]
                keys = [view.nodes[id_].key for id_ in own]
                found = self._open_rows().nodes(keys, embeddings=False)
                nodes += map(view.shown, found.values())
        edges = (edge for view in views for edge in view.outgoing())
        return Contents(
            nodes, [e for e in edges if ids is None or (e.source in ids and e.target in ids)]
        )

    def _apply(self, batch: WriteBatch) -> None:
        """Apply a written batch to memory."""
        for partition, key in batch.partitions.items():
            self._partition_keys[partition] = key
        # A new dict, because readers may iterate over the old one.
        self._partitions = {**self._partitions, **{p: Adjacency() for p in batch.partitions}}
        for partition, nodes in batch.nodes.items():
            entries = {id_: NodeEntry(key, n.label, n.names) for id_, (key, n) in nodes.items()}
            self._partitions[partition].put_nodes(entries)
            for key, _ in nodes.values():
                self._cache.pop(key, None)
        for partition, edges in batch.edges.items():
            self._partitions[partition].put_edges(edge for _, _, edge in edges.values())

    def _restrict(self, allowed: Mapping[int, Restrictions], *, is_written: bool) -> None:
        """Set who may see rows in memory, by the keys of partitions."""
        for partition, key in self._partition_keys.items():
            if key in allowed:
                self._partitions[partition].restrict(allowed[key], is_written=is_written)

    def _remove(self, rows: GraphRows, doomed: Doomed, views: _Views) -> Callable[[], None]:
        """Delete rows and edges of deleted nodes on disk; return the same change for memory."""
        changes = []
        for view in views.values() if doomed.nodes or doomed.edges else ():
            ids = {entry.key: id_ for id_, entry in view.nodes.items()}
            gone = [ids[key] for key in doomed.nodes if key in ids]
            ends = {view.key_of(edge) for edge in view.incident(gone)}
            own = {k: e for k, e in doomed.edges.items() if e[0] in ids} | rows.edge_keys(ends)
            rows.remove([view.nodes[id_].key for id_ in gone], own)
            changes.append((view, gone, [(ids[s], type_, ids[t]) for s, type_, t in own.values()]))

        def apply() -> None:
            for view, gone, edges in changes:
                view.drop_edges(edges)
                for id_ in gone:
                    self._cache.pop(view.nodes[id_].key, None)
                view.drop_nodes(gone)

        return apply


def _every_node(_: GraphRows, views: _Views) -> Doomed:
    return Doomed({entry.key for view in views.values() for entry in view.nodes.values()})


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
