"""Settings of Milvus: one form, which is Milvus's, and nothing that would be ignored."""

from pathlib import Path
from typing import Any

import pytest

from llama_retrieval_ext import KnowledgeBase, open_store
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.milvus.params import MilvusParams
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.cases import cases

pytestmark = pytest.mark.slow

HNSW: dict[str, Any] = {
    "index_type": "HNSW",
    "metric_type": "COSINE",
    "params": {"M": 8, "efConstruction": 64},
}
IVF_PQ: dict[str, Any] = {
    "index_type": "IVF_PQ",
    "metric_type": "COSINE",
    "params": {"nlist": 128, "m": 16},
}


@cases(
    ("params", "reason"),
    [
        ({"bogus": 1}, "no setting 'bogus'.*index_params"),
        ({"index_type": "HNSW"}, r"'index_type'; write index_params=\{'index_type'"),
        ({"index_params": {"M": 8}}, "index_params: there is no setting 'M'"),
        ({"index_params": {"index_type": "HNSW", "params": {"bogus": 1}}}, "'bogus'.*M, efConstr"),
        ({"index_params": {"params": {"M": 8}}}, "without the index_type"),
        ({"search_params": {"params": {"ef": 64}}}, "search_params: there is no setting 'params'"),
    ],
)
def test_settings_that_milvus_would_ignore_are_refused(params: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        MilvusParams.of(params)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"num_partitions": 4}, "num_partitions needs by_tenant=True"),
        (
            {"index_params": {"index_type": "HNSW"}, "search_params": {"nprobe": 4}},
            "search_params of HNSW: there is no setting 'nprobe'.*ef",
        ),
    ],
    ids=str,
)
def test_settings_that_milvus_would_ignore_in_a_collection_are_refused(
    tmp_path: Path, params: Any, reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        open_store(f"milvus:{tmp_path}/kb.db", store_params=params)


def test_an_index_type_that_is_new_in_milvus_is_passed_on() -> None:
    index = {"index_type": "SCANN_NEXT", "params": {"any": 1}}
    assert MilvusParams.of({"index_params": index}).recorded == {"index_params": index}


@pytest.mark.parametrize("distance", [None, "euclid"])
def test_a_metric_other_than_the_distance_is_refused(tmp_path: Path, distance: Any) -> None:
    params = {"index_params": {"metric_type": "IP"}}
    with pytest.raises(ConfigurationError, match=r"metric_type='IP'.*distance='dot'"):
        open_store(f"milvus:{tmp_path}/kb.db", distance=distance, store_params=params)
    with open_store(f"milvus:{tmp_path}/dot.db", distance="dot", store_params=params) as store:
        assert store.distance == "dot"


def test_an_index_that_milvus_lite_does_not_have_is_refused(tmp_path: Path) -> None:
    params = {"index_params": IVF_PQ}
    url = f"milvus:{tmp_path}/kb.db"
    with pytest.raises(ConfigurationError, match=r"Lite has no index_type 'IVF_PQ'.* IVF_SQ8"):
        open_store(url, store_params=params)
    with pytest.raises(ConfigurationError, match="Lite has no index_type 'IVF_PQ'"):
        KnowledgeBase.open(url, embed_model=FakeEmbedding(), store_params=params)
