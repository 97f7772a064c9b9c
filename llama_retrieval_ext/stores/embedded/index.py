"""Index building while searches and writes continue.

The shard's files are copied, and a separate process indexes the copy. Later writes are then applied
to the copy, and the config makes it the current shard. If either process dies before that, the old
shard stays current. Nodes added after the build are compared one by one.
"""

import json
import logging
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Final

from qdrant_edge import EdgeShard, Query, QueryRequest, Sample

from llama_retrieval_ext.errors import RetrievalExtError, StoreClosedError, StoreUnavailableError
from llama_retrieval_ext.stores.embedded import build_index
from llama_retrieval_ext.stores.embedded.directory import StoreDirectory
from llama_retrieval_ext.stores.embedded.files import (
    EmbeddedConfig,
    IndexKind,
    VectorType,
    clear_errors,
)
from llama_retrieval_ext.stores.embedded.search import vector_params
from llama_retrieval_ext.stores.embedded.shard import (
    BM25,
    DATATYPES,
    DENSE,
    RESCORED,
    Draft,
    Reweighing,
    count_points,
)
from llama_retrieval_ext.stores.encoding.vectors import SCORES
from llama_retrieval_ext.wording import counted

_logger = logging.getLogger(__name__)

# Minimum number of nodes outside the index that starts a build. Hybrid search of 20,000 takes
# 7.7 ms without it, 4.4 ms with it, and building 16 s, once (`bench_million 20000 float32 hnsw`).
BUILD_FROM: Final = {"auto": 20_000, "hnsw": 10_000}
# Up to this it is the size of the index, so that all builds together take twice the last one.
_MOST_UNINDEXED: Final = 100_000
# From then on a process that opened a store is not one of a single search.
OPEN_FOR_S: Final = 10.0
_LINKS: Final = 16
# Below this total size of filtered vectors, the engine compares them one by one.
FULL_SCAN_KB: Final = 10_000
# Below this number of filtered nodes, and share of all, it compares their terms one by one; through
# the lists of the query's terms, 4,200 of 30,000 were searched in .35 instead of .85 ms.
_FULL_SCAN_TERMS: Final = 5_000
_FULL_SCAN_SHARE: Final = 20
# Writers wait while at most this many last changes are applied to the copy.
_FEW: Final = 1_000
_NOISE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """Storage and index state of a store's embeddings.

    Attributes:
        vectors: Storage type: ``float32``, ``float16``, ``turbo8``, ``int8`` or ``turbo4``.
        index: Condition for building an index: ``auto``, ``hnsw`` or ``exact``.
        nodes: Number of nodes.
        indexed: Number of nodes in the index when it was built, at most `nodes`. Nodes added or
            replaced since then are compared one by one.
        is_building: Whether a build is running or about to begin.

    Examples:
        >>> IndexInfo("int8", "hnsw", nodes=120, indexed=100, is_building=False).used(exact=False)
        'hnsw over int8, rescored: 100 of 120 nodes, the others exactly'

    """

    vectors: VectorType
    index: IndexKind
    nodes: int
    indexed: int
    is_building: bool

    def used(self, *, exact: bool) -> str:
        """Return a description of how a vector search finds nodes."""
        if exact or not self.indexed:
            return "exact"
        integers = f" over {self.vectors}, rescored" if self.vectors in RESCORED else ""
        kind = "scan" if self.index == "exact" else "hnsw"
        unindexed = "" if self.indexed == self.nodes else ", the others exactly"
        return f"{kind}{integers}: {self.indexed} of {counted(self.nodes, 'node')}{unindexed}"


def index_info(directory: StoreDirectory) -> IndexInfo:
    """Return the storage and index state of a store's embeddings."""
    nodes = directory.read(count_points, empty=0)
    config = directory.config
    return IndexInfo(
        config.vectors,
        config.index,
        nodes,
        min(config.indexed, nodes),
        is_building=directory.is_building or directory.is_drafting,
    )


def recall(shard: EdgeShard, config: EmbeddedConfig, *, n: int, top_k: int) -> float:
    """Return the recall of the index for random nodes as queries, in ``[0, 1]``.

    A hit counts if its score is at least that of the last hit of the exact search.
    """
    sample = shard.query(QueryRequest(limit=n, query=Sample.Random, with_vector=[DENSE]))
    n_found = n_true = 0
    for point in sample:
        vector = (point.vector or {})[DENSE]  # type: ignore[call-overload]  # by this name
        near, exact = (
            [
                hit.score
                for hit in shard.query(
                    QueryRequest(
                        limit=top_k + 1,
                        query=Query.Nearest(vector, using=DENSE),
                        params=vector_params(config, top_k, exact=is_exact),
                    )
                )
                if hit.id != point.id
            ][:top_k]
            for is_exact in (False, True)
        )
        n_true += len(exact)
        cut = SCORES[config.distance](exact[-1]) - _NOISE if exact else 0.0
        n_found += min(
            len(exact), sum(SCORES[config.distance](neighbour) >= cut for neighbour in near)
        )
    return n_found / n_true if n_true else 1.0


def build_if_due(directory: StoreDirectory, *, min_free: int, after_s: float = 0) -> None:
    """Build in the background while enough nodes are not indexed, also those added meanwhile."""
    if directory.is_building or directory.is_drafting or not _claim(directory):
        return

    def build_quietly() -> None:
        try:
            build(directory, min_free=min_free)
            while _claim(directory):
                build(directory, min_free=min_free)
        except StoreClosedError:
            pass
        except RetrievalExtError as error:
            _logger.warning("no index was built in %s: %s", directory.path, error)
        finally:
            directory.is_building = False

    directory.is_building = True
    building = Timer(after_s, build_quietly)
    building.daemon = True
    building.start()


def _claim(directory: StoreDirectory) -> bool:
    """Return whether a build is due; if so, the next one is due some thousands of nodes later."""
    config = directory.config
    least = BUILD_FROM.get(config.index)
    if least is None:
        return False
    nodes = directory.read(count_points, empty=0)
    least = max(least, min(config.indexed, _MOST_UNINDEXED))
    if nodes - config.indexed < least or nodes < directory.build_from:
        return False
    directory.build_from = nodes + least  # also after a failure: not every batch tries again
    return True


def build(directory: StoreDirectory, *, min_free: int) -> None:
    """Index all nodes, after a running build; gives up if the store is emptied or closed."""
    with directory.drafting:
        draft = directory.start_draft(min_free=min_free)
        if draft is None:
            return
        try:
            with clear_errors(directory.path):
                _reweigh(draft)
                _index_files(draft)
                if not draft.is_abandoned:
                    _become_current(directory, draft)
        finally:
            directory.discard_draft(draft)


def _reweigh(draft: Draft) -> None:
    """Compute the keyword weights of the copy for the mean number of terms of its nodes."""
    shard = EdgeShard.load(str(draft.folder))
    try:
        draft.indexed = count_points(shard)
        draft.weights = Reweighing.of(shard, draft.config)
        draft.weights.apply(shard)
        shard.flush()
    finally:
        shard.close()


def _become_current(directory: StoreDirectory, draft: Draft) -> None:
    """Apply later writes to the indexed copy, and make it the current shard."""
    directory.sync_files(draft.config)  # before writers wait
    new = EdgeShard.load(str(draft.folder))
    try:
        info = new.info()
        # The engine's count includes the sparse vectors, which are always indexed.
        indexed = info.indexed_vectors_count - info.points_count
        draft.indexed = max(0, min(indexed, info.points_count))
        while len(draft.points) + len(draft.deletions) > _FEW and not draft.is_abandoned:
            directory.read(lambda old: draft.bring_changes(old, new, directory.lock), empty=None)
        directory.finish_draft(draft, new)
    finally:
        if not directory.is_made_of(draft):
            new.close()


def _index_files(draft: Draft) -> None:
    """Run the process that indexes the copy and wait for it."""
    config = draft.config
    settings = {
        "name": DENSE,
        "sparse": BM25,
        "dimension": config.dimension,
        "distance": config.distance.capitalize(),
        "datatype": DATATYPES[config.vectors],
        "vectors": config.vectors,
        "m": 0 if config.index == "exact" else _LINKS,
        "full_scan_kb": FULL_SCAN_KB,
        "full_scan_terms": min(_FULL_SCAN_TERMS, draft.indexed // _FULL_SCAN_SHARE),
    }
    # -P: the program's folder must not shadow modules of the same name.
    program = [sys.executable, "-P", str(Path(build_index.__file__)), str(draft.folder)]
    with subprocess.Popen(  # noqa: S603 - our own program
        [*program, json.dumps(settings)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        draft.process = process
        if draft.is_abandoned:
            process.kill()
        try:
            _, errors = process.communicate()
        finally:
            process.kill()
    draft.process = None
    if process.returncode and not draft.is_abandoned:
        raise StoreUnavailableError(
            f"the index could not be built in {draft.folder.parent} (exit code "
            f"{process.returncode}): {errors.decode(errors='replace')[-500:].strip()}; searches "
            "stay exact, and nothing was changed"
        )
