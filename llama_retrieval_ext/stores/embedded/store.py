"""`EmbeddedVectorStore`: a LlamaIndex vector store on disk, in this process."""

import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Final

from llama_index.core.schema import BaseNode
from pydantic import PrivateAttr
from qdrant_edge import CountRequest, EdgeShard

from llama_retrieval_ext.checks import check_count, of_type
from llama_retrieval_ext.errors import ConfigurationError, StoreClosedError, StoreUnavailableError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.stores.embedded.check_shard import damage_in
from llama_retrieval_ext.stores.embedded.directory import StoreDirectory
from llama_retrieval_ext.stores.embedded.files import (
    MIN_FREE_BYTES,
    EmbeddedConfig,
    EmbeddedRequest,
    IndexKind,
    VectorType,
    bytes_on_disk,
    check_room,
)
from llama_retrieval_ext.stores.embedded.filters import NOTHING
from llama_retrieval_ext.stores.embedded.index import (
    OPEN_FOR_S,
    IndexInfo,
    build,
    build_if_due,
    index_info,
    recall,
)
from llama_retrieval_ext.stores.embedded.nodes import (
    COPIES,
    add_nodes,
    compact,
    delete_matching,
    matching_nodes,
    points_of,
)
from llama_retrieval_ext.stores.embedded.search import EmbeddedSearch
from llama_retrieval_ext.stores.embedded.shard import RESCORED, PointId, scroll
from llama_retrieval_ext.stores.encoding.vectors import BM25_RANGE, SCORE_RANGES, Distance
from llama_retrieval_ext.stores.engine.backend import EngineFeatures
from llama_retrieval_ext.stores.engine.connection import Shared, SharedByPath
from llama_retrieval_ext.stores.engine.filters import Target
from llama_retrieval_ext.stores.qdrant_common.search import fusions_of
from llama_retrieval_ext.text.tokenizer import Tokenizer
from llama_retrieval_ext.urls import local_path

MEMORY: Final = ":memory:"
_PREFIX: Final = "llama-retrieval-ext-"
_PAGE: Final = 1024
# Module state: the engine refuses to open a directory twice.
_directories: Final = SharedByPath(StoreDirectory, StoreDirectory.close)


class EmbeddedVectorStore(EmbeddedSearch):
    """A serverless vector store in a directory, with keyword search and exact filters.

    The directory is created if missing. Only one process can have it open, with any number of store
    objects. Added nodes survive a crash of the process. The store is thread-safe.

    Similarities are cosine, inner product or negative Euclidean distance, and BM25 for keywords.
    Higher is better in every mode. Without an index (see `index`), a search compares every
    embedding. BM25 has k1 = 1.2 and b = 0.75. The mean text length is that of the first nodes in
    an empty store, smoothed with ten pseudo-documents of 100 terms. `compact` and `build_index`
    take that of all nodes if it differs by a tenth, and nodes added later use it as well.

    Args:
        path: The directory; ``":memory:"`` for a temporary directory, removed by `close`.
        tokenizer: Splits text for keyword search; None for the recorded tokenizer, or `Tokenizer`
            if the store is empty.
        dim: Dimension of the embeddings; None for that of the first added nodes.
        distance: ``cosine``, ``dot`` or ``euclid``; None for the recorded one, or cosine.
        min_free_bytes: Bytes that `add`, `compact` and `build_index` must leave free on the disk.
            Opening, searching and deleting need 4 MB, without which the engine could die, and which
            the file ``reserve`` in the directory gives back on a full disk.
        vectors: Storage type of embeddings: ``float32``; ``float16``, half as large; ``turbo8``, a
            quarter, rotated and rounded to 8 bits; ``int8``: float16, plus 8-bit integers in an
            index, which select the candidates that a search rescores with float16; or ``turbo4``:
            turbo8, plus 4 bits in an index, which select them likewise. None for the recorded
            value, or float32.
        index: ``auto`` builds an HNSW index in the background when 20,000 nodes are not indexed, or
            as many as are, up to 100,000; ``hnsw`` likewise from 10,000; ``exact`` never does. What
            `close` ended begins again when the store has been open for ten seconds. None for the
            recorded value, or ``auto``.
        schema: The fields of keyword search, with weights; None for the recorded ones, or title,
            headings and everything. Other weights than the recorded ones apply to this object; a
            new field is searched after `index_fields`.

    Raises:
        StoreFormatError: The directory contains other files, or a store from a newer release.
        StoreUnavailableError: It cannot be written to, or another process has it open.
        ConfigurationError: The store has another tokenizer or distance.
        DimensionMismatchError: The store has another dimension.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> from llama_index.core.vector_stores.types import VectorStoreQuery
        >>> with EmbeddedVectorStore(":memory:") as store:
        ...     store.add([TextNode(id_="n1", text="25 days of leave", embedding=[1.0, 0.0])])
        ...     store.query(VectorStoreQuery(query_embedding=[0.6, 0.8])).ids
        ['n1']
        ['n1']

    """

    path: str = MEMORY
    min_free_bytes: int = MIN_FREE_BYTES

    _shared: Shared[StoreDirectory] = PrivateAttr()
    _schema: Schema | None = PrivateAttr(default=None)
    _closer: "weakref.finalize[..., EmbeddedVectorStore]" = PrivateAttr()

    def __init__(  # noqa: PLR0913 - what makes a store
        self,
        path: str | Path,
        *,
        tokenizer: Tokenizer | None = None,
        dim: int | None = None,
        distance: Distance | None = None,
        min_free_bytes: int = MIN_FREE_BYTES,
        vectors: VectorType | None = None,
        index: IndexKind | None = None,
        schema: Schema | None = None,
    ) -> None:
        if not isinstance(path, str | Path):
            raise ConfigurationError(f"path must be a directory's, or ':memory:', got {path!r}")
        check_count(min_free_bytes, "min_free_bytes", least=0)
        if tokenizer is not None:
            of_type(tokenizer, Tokenizer, "tokenizer")
        super().__init__(stores_text=True)
        self.path = str(path)
        self.min_free_bytes = min_free_bytes
        if self.path == MEMORY:
            real = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._shared = Shared(real, StoreDirectory(real, temporary=True), users=1)
        else:
            self._shared = _directories.acquire(local_path(path))
        # Also runs at garbage collection and at interpreter exit.
        self._closer = weakref.finalize(self, _directories.release, self._shared)
        self._schema = schema
        request = EmbeddedRequest(
            tokenizer, distance, dim, schema=schema, vectors=vectors, index=index
        )
        try:
            self._directory.open(request)
            build_if_due(self._directory, min_free=min_free_bytes, after_s=OPEN_FOR_S)
        except BaseException:
            self.close()
            raise

    @property
    def client(self) -> EdgeShard | None:
        """The engine's shard; None before the first node."""
        return self._directory.read(lambda shard: shard, empty=None)

    @property
    def field_schema(self) -> Schema:
        """The fields of keyword search, with their weights."""
        return self._schema or self._config.schema

    def use_schema(self, schema: Schema) -> None:
        """Search by another schema; an empty store will index its fields."""
        self._schema = schema

    @property
    def features(self) -> EngineFeatures:
        """All features except async: the engine blocks for milliseconds."""
        return _features(self._config.distance)

    def index_used(self, *, exact: bool) -> str:
        """Return a description of how vector searches find nodes."""
        return self.index_info().used(exact=exact)

    def flush(self) -> None:
        """Make all changes survive a crash of the machine; one of the process loses none.

        Raises:
            StoreUnavailableError: They could not be written; until it is opened again, the store
                is only searched.
            StoreClosedError: The store was closed.
        """
        self._directory.sync()

    def check_room(self, sizes: Iterable[int]) -> None:
        """Raise `StoreUnavailableError` if the disk failed, or cannot hold nodes of these sizes.

        Without any, as before a deletion, a full disk gets the reserve back: a journal in the same
        place is written before the store.
        """
        self._directory.check_disk()
        size, path = COPIES * sum(sizes), self._directory.path
        check_room(path, size=size, min_free=self.min_free_bytes) if size else check_room(path)

    def compact(self) -> int:
        """Free the disk space of deleted and replaced nodes.

        The remaining nodes are copied to new files, which needs space for both and about 0.2 ms per
        node. BM25 gets their mean text length. Searches continue; writers wait. A store with an
        index is indexed again as by `build_index`, and writes continue as well. Nothing is lost if
        the process dies.

        Returns:
            Number of freed bytes.

        Raises:
            StoreUnavailableError: There is no space for the new files, or the engine failed; the
                store is unchanged.
            StoreClosedError: The store was closed.
        """
        before = bytes_on_disk(self._directory.path)
        rebuild = build if self.index_info().indexed else compact  # neither copies deleted nodes
        rebuild(self._directory, min_free=self.min_free_bytes)
        return max(0, before - bytes_on_disk(self._directory.path))

    def build_index(self) -> bool:
        """Index all nodes, regardless of their number; blocks.

        A separate process builds the index. It needs space for a second copy of the files, and one
        to two milliseconds per node on one core. Searches and writes continue; writers wait only
        while the files are copied. Nothing is lost if either process dies. BM25 gets the mean text
        length of all nodes.

        Returns:
            Whether there is an index. False if there are no nodes or too few for the engine, or if
            the store was emptied, compacted or closed meanwhile.

        Raises:
            ConfigurationError: The store has ``index="exact"`` and float vectors, so there is no
                index to build.
            StoreUnavailableError: There is no space, or the engine failed; the store is unchanged.
            StoreClosedError: The store was closed.
        """
        if self._config.index == "exact" and self._config.vectors not in RESCORED:
            raise ConfigurationError(
                f"{self.path} was opened with index='exact', which needs no index; open it with "
                "store_params={'index': 'auto'} or 'hnsw'"
            )
        build(self._directory, min_free=self.min_free_bytes)
        return self.index_info().indexed > 0

    def check_recall(self, n: int = 100, *, top_k: int = 10) -> float:
        """Return the recall of vector searches, in ``[0, 1]``; see `KnowledgeBase`."""
        check_count(n, "n")
        check_count(top_k, "top_k")
        config = self._config
        return self._directory.read(
            lambda shard: recall(shard, config, n=n, top_k=top_k), empty=1.0
        )

    def index_info(self) -> IndexInfo:
        """Return the storage and index state of the embeddings."""
        return index_info(self._directory)

    def load(self, directory: Path) -> None:
        """Replace all nodes by a copy of another store, which must not change meanwhile."""
        self._directory.load(directory)

    @property
    def was_closed(self) -> bool:
        """Whether the files were closed cleanly before they were opened, or are new."""
        return self._shared.resource.was_closed

    def missing(self, node_ids: Iterable[str]) -> list[str]:
        """Return the ids of nodes that the store does not have; reads ids only."""

        def ids(shard: EdgeShard) -> set[PointId]:
            pages = scroll(shard, limit=_PAGE, with_vector=False, with_payload=False)
            return {record.id for page in pages for record in page}

        held = self._directory.read(ids, empty=set[PointId]())
        return [node_id for node_id in node_ids if held.isdisjoint(points_of([node_id]))]

    def damage(self) -> list[str]:
        """Return what searches and filters do not find as it is stored; see `check_shard`."""
        return self._directory.read(
            lambda shard: [*damage_in(shard, most_values=shard.info().points_count)], empty=[]
        )

    @property
    def n_changes(self) -> int:
        """Number of nodes that any store object wrote, and of other changes, since the opening."""
        return self._directory.n_changes

    @property
    def is_shared(self) -> bool:
        """Whether other store objects of this process have the directory open."""
        return self._shared.users > 1

    def remove(self) -> None:
        """Close the store and delete its files, and the directory if it is then empty.

        Raises:
            StoreUnavailableError: Another store object has the directory open, or the files cannot
                be deleted; in the latter case the store is closed.
            StoreClosedError: The store was closed.
        """
        directory = self._directory
        if not _directories.remove(self._shared, StoreDirectory.remove):
            raise StoreUnavailableError(
                f"{directory.path} is open elsewhere in this process; close it first"
            )
        self.close()

    def close(self) -> None:
        """Close the store; unlock the directory if no other store object has it open."""
        self._closer()

    @property
    def _directory(self) -> StoreDirectory:
        if not self._closer.alive:
            raise StoreClosedError(f"the store {self.path} was closed; open it again")
        return self._shared.resource

    @property
    def _config(self) -> EmbeddedConfig:
        return self._directory.config

    def _location(self) -> Mapping[str, object]:
        return {"path": self.path, "nodes": self.count()}

    def _add(self, nodes: Sequence[BaseNode]) -> Call[None]:
        def add() -> None:
            add_nodes(
                self._directory, nodes, min_free=self.min_free_bytes, schema=self.field_schema
            )
            build_if_due(self._directory, min_free=self.min_free_bytes)

        return Call(add)

    def _index_fields(self) -> Call[int]:
        def index() -> int:  # copies the nodes to new files, as `compact` does
            compact(self._directory, min_free=self.min_free_bytes, schema=self.field_schema)
            return self.count()

        return Call(index)

    def _delete(self, target: Target) -> Call[None]:
        matching = self._compile_target(target) or NOTHING
        return Call(lambda: delete_matching(self._directory, matching))

    def _read(self, target: Target, *, embeddings: bool) -> Call[list[BaseNode]]:
        is_by_id = target.node_ids is not None and target == Target(target.node_ids)
        matching = points_of(target.node_ids or ()) if is_by_id else self._compile_target(target)
        nodes = partial(matching_nodes, matching=matching, embeddings=embeddings)
        return Call(lambda: self._directory.read(nodes, empty=[]))

    def _count(self, target: Target) -> Call[int]:
        matching = self._compile_target(target)
        request = CountRequest(exact=True, filter=matching)
        return Call(lambda: self._directory.read(lambda shard: shard.count(request), empty=0))

    def _clear(self) -> Call[None]:
        return Call(self._directory.reset)


@cache
def _features(distance: Distance) -> EngineFeatures:
    dense = SCORE_RANGES[distance]
    return EngineFeatures(
        dense=dense,
        keyword=BM25_RANGE,
        one_round_trip=True,
        fusions=fusions_of(dense.kind),
        mmr=EmbeddedSearch.has_mmr,
        exact=True,
    )
