"""Creation and loading of the engine's shard in a store directory."""

import re
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
    VectorStorageDatatype,
)

from llama_retrieval_ext.stores.embedded.files import (
    SOME_BYTES,
    EmbeddedConfig,
    check_room,
    translate_error,
)

DENSE: Final = "dense"
BM25: Final = "bm25"

_DRAFT: Final = "shard.new"
_OLD: Final = "shard.old"
_OURS: Final = re.compile(r"shard(-\d+|\.new|\.old)?")
_DISTANCES: Final = {
    "cosine": Distance.Cosine,
    "dot": Distance.Dot,
    "euclid": Distance.Euclid,
}

# The engine uses integers only in an index, and rescores with the stored floats.
_DATATYPES: Final = {
    "float32": VectorStorageDatatype.Float32,
    "float16": VectorStorageDatatype.Float16,
    "int8": VectorStorageDatatype.Float16,
}


def open_shard(directory: Path, config: EmbeddedConfig) -> EdgeShard | None:
    """Return the config's shard, created if missing; None without a dimension.

    Other shards, which may remain after a crash, are deleted.
    """
    kept = shard_folder(directory, config) if config.dimension else None
    for folder in directory.glob("shard*"):
        if folder != kept and _OURS.fullmatch(folder.name):
            shutil.rmtree(folder, ignore_errors=True)
    if config.dimension is None or kept is None:
        return None
    check_room(directory, needed=SOME_BYTES)
    try:
        if not kept.exists():
            _create(directory, config, config.dimension)
        return EdgeShard.load(str(kept))
    except Exception as error:
        raise translate_error(error, directory) from error


def shard_folder(directory: Path, config: EmbeddedConfig) -> Path:
    """Return the folder of the current shard."""
    suffix = f"-{config.generation}" if config.generation else ""
    return directory / f"shard{suffix}"


def create_shard(directory: Path, config: EmbeddedConfig) -> EdgeShard:
    """Create and open the shard of a config."""
    folder = shard_folder(directory, config)
    for left in (directory / _DRAFT, folder):
        shutil.rmtree(left, ignore_errors=True)
    try:
        _create(directory, config, config.dimension or 1)
        return EdgeShard.load(str(folder))
    except Exception as error:
        raise translate_error(error, directory) from error


def remove_shard(directory: Path, config: EmbeddedConfig) -> None:
    """Delete a closed shard; rename it first, so that a crash leaves no partial shard."""
    shutil.rmtree(directory / _OLD, ignore_errors=True)
    shard_folder(directory, config).rename(directory / _OLD)
    shutil.rmtree(directory / _OLD, ignore_errors=True)


def _create(directory: Path, config: EmbeddedConfig, dimension: int) -> None:
    # Renamed when complete, because a partial shard would look broken.
    shard = EdgeShard.create(
        str(directory / _DRAFT),
        EdgeConfig(
            vectors={
                DENSE: EdgeVectorParams(
                    dimension, _DISTANCES[config.distance], datatype=_DATATYPES[config.vectors]
                )
            },
            sparse_vectors={BM25: EdgeSparseVectorParams(modifier=Modifier.Idf)},
        ),
    )
    shard.close()
    (directory / _DRAFT).rename(shard_folder(directory, config))
