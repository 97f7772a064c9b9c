"""A cluster of one node with two CPUs, on the loopback address."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_retrieval_ext.knowledge_base.ray.ingest import ingest_with_ray
from llama_retrieval_ext.knowledge_base.report import IngestionReport
from tests.knowledge_base.ray.workers import Ingest, ObstructedEmbedding


@pytest.fixture(scope="package")
def cluster() -> Iterator[str]:
    """The address of a cluster that this process is connected to."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield started(ray).address_info["address"]
        ray.shutdown()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()  # what it left open, before another test is blamed for it


def started(ray: Any, *, is_again: bool = False) -> Any:
    try:
        return ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 * 2**20,
            log_to_driver=False,
            logging_level="ERROR",
            _node_ip_address="127.0.0.1",
        )
    except Exception:  # it waits 30 s for its processes, whatever else the machine does
        ray.shutdown()
        if is_again:
            raise
        return started(ray, is_again=True)


@pytest.fixture
def obstructed(tmp_path: Path) -> ObstructedEmbedding:
    return ObstructedEmbedding(dim=16, folder=tmp_path)


@pytest.fixture
def ingest(cluster: str, url: str, obstructed: ObstructedEmbedding) -> Ingest:
    def ingest_(documents: Any, **options: Any) -> IngestionReport:
        options = {"embed_model": obstructed, "show_progress": False, **options}
        return ingest_with_ray(documents, url, **options)

    return ingest_
