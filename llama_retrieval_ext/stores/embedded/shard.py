"""Makes and loads the engine's shard in a store directory."""

import shutil
from pathlib import Path
from typing import Final

from qdrant_edge import (
    Distance,
    EdgeConfig,
    EdgeShard,
    EdgeSparseVectorParams,
    EdgeVectorParams,
    Modifier,
)

from llama_retrieval_ext.stores.embedded.disk import SOME_BYTES, check_room
from llama_retrieval_ext.stores.embedded.failures import meaning
from llama_retrieval_ext.stores.points.manifest import Manifest

DENSE: Final = "dense"
BM25: Final = "bm25"

_SHARD: Final = "shard"
_DRAFT: Final = "shard.new"
_OLD: Final = "shard.old"
_DISTANCES: Final = {
    "cosine": Distance.Cosine,
    "dot": Distance.Dot,
    "euclid": Distance.Euclid,
}


def open_shard(directory: Path, manifest: Manifest) -> EdgeShard | None:
    """The shard that a directory should have by its manifest; None before there is a dimension.

    What a crash left of one that was being made or removed is cleared away.

    Raises:
        StoreUnavailableError: The engine cannot open it, or there is no room to.
    """
    for name in (_DRAFT, _OLD) if manifest.dimension else (_DRAFT, _OLD, _SHARD):
        shutil.rmtree(directory / name, ignore_errors=True)
    if manifest.dimension is None:
        return None
    check_room(directory, needed=SOME_BYTES)
    try:
        if not (directory / _SHARD).exists():
            _create(directory, manifest, manifest.dimension)
        return EdgeShard.load(str(directory / _SHARD))
    except Exception as error:
        raise meaning(error, directory) from error


def remove_shard(directory: Path) -> None:
    """Delete a closed shard; a crash meanwhile leaves nothing that looks like one."""
    (directory / _SHARD).rename(directory / _OLD)
    shutil.rmtree(directory / _OLD, ignore_errors=True)


def _create(directory: Path, manifest: Manifest, dimension: int) -> None:
    # Under another name until it is complete: half a shard could not be told from a broken one.
    shard = EdgeShard.create(
        str(directory / _DRAFT),
        EdgeConfig(
            vectors={DENSE: EdgeVectorParams(dimension, _DISTANCES[manifest.distance])},
            sparse_vectors={BM25: EdgeSparseVectorParams(modifier=Modifier.Idf)},
        ),
    )
    shard.close()
    (directory / _DRAFT).rename(directory / _SHARD)
