"""Program that indexes a copy of a shard, in its own process as the engine holds the GIL.

    python build_index.py FOLDER SETTINGS

It imports only the engine, for a fast start. The settings are JSON: ``name``, ``dimension``,
``distance`` and ``datatype`` of the vectors, the name ``sparse`` of the sparse vectors, ``m`` (0
for no graph), ``full_scan_kb``, ``full_scan_terms`` and the type ``vectors`` of the store.
"""

import ctypes
import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any, Final

from qdrant_edge import (
    Distance,
    EdgeConfig,
    EdgeOptimizersConfig,
    EdgeShard,
    EdgeSparseVectorParams,
    EdgeVectorParams,
    HnswIndexConfig,
    Modifier,
    ScalarQuantizationConfig,
    ScalarType,
    TurboQuantBitSize,
    TurboQuantQuantizationConfig,
    VectorStorageDatatype,
)

_EF_CONSTRUCT: Final = 100
# Clips outliers, which would reduce the precision of all other values.
_QUANTILE: Final = 0.99
# One segment, because a search visits the graph of each segment; 1 KB is the minimum threshold.
_OPTIMIZERS: Final = EdgeOptimizersConfig(
    indexing_threshold=1,
    default_segment_number=1,
    max_segment_size=10**9,
    deleted_threshold=1e-6,
    vacuum_min_vector_number=1,
)
_PR_SET_PDEATHSIG: Final = 1


def index_config(settings: dict[str, Any]) -> EdgeConfig:
    """Return the engine's config of an indexed shard."""
    quantization: dict[str, ScalarQuantizationConfig | TurboQuantQuantizationConfig] = {
        "int8": ScalarQuantizationConfig(ScalarType.Int8, quantile=_QUANTILE, always_ram=True),
        "turbo4": TurboQuantQuantizationConfig(bits=TurboQuantBitSize.Bits4, always_ram=True),
    }
    dense = EdgeVectorParams(
        settings["dimension"],
        getattr(Distance, settings["distance"]),
        datatype=getattr(VectorStorageDatatype, settings["datatype"]),
        hnsw_config=HnswIndexConfig(
            m=settings["m"],
            ef_construct=_EF_CONSTRUCT,
            full_scan_threshold=settings["full_scan_kb"],
        ),
        quantization_config=quantization.get(settings["vectors"]),
    )
    sparse = EdgeSparseVectorParams(
        full_scan_threshold=settings["full_scan_terms"], modifier=Modifier.Idf
    )
    return EdgeConfig(
        vectors={settings["name"]: dense},
        sparse_vectors={settings["sparse"]: sparse},
        optimizers=_OPTIMIZERS,
    )


def main(folder: str, settings: str) -> None:
    """Index the shard in a folder; no other process may have it open."""
    if sys.platform == "linux":  # the kernel kills this process when its parent ends
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with suppress(OSError, AttributeError):
        os.nice(5)
    shard = EdgeShard.load(folder, index_config(json.loads(settings)))
    shard.optimize()
    shard.flush()
    shard.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
