"""Settings of Elasticsearch: by name, or as the body of "create index"."""

from typing import Any

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.elasticsearch.params import IndexParams

pytestmark = pytest.mark.slow


def field(**mapping: object) -> dict[str, object]:
    return {"body": {"mappings": {"properties": {"one": mapping}}}}


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"shards": 3}, "no setting 'shards'.*number_of_shards"),
        ({"number_of_shards": 0}, "number_of_shards must be at least 1"),
        ({"body": {"settings": {"similarity": {}}}}, "BM25 as on every engine"),
        ({"body": {"mappings": {"dynamic": True}}}, "mappings: there is no setting 'dynamic'"),
        (field(type="keyword"), "field 'one' of the body has the type 'keyword'"),
        (field(type="text", norms=False), "no setting 'norms'"),
        (field(type="dense_vector", index=False), "index=False"),
        (field(type="dense_vector", element_type="byte"), "no setting 'element_type'"),
        ({"number_of_shards": 2, "body": {"settings": {"number_of_shards": 3}}}, "leave one out"),
    ],
    ids=str,
)
def test_settings_that_would_be_ignored_are_refused(params: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        IndexParams.of(params)


def test_a_body_gives_the_same_settings_as_their_names() -> None:
    analysis = {"analyzer": {"folded": {"tokenizer": "standard"}}}
    options = {"type": "int8_hnsw"}
    properties = {
        "embedding": {"type": "dense_vector", "index": True, "index_options": options},
        "content": {"type": "text", "analyzer": "folded"},
    }
    settings = {"index": {"number_of_shards": 3}, "index.number_of_replicas": 0}
    body = {"settings": {**settings, "analysis": analysis}, "mappings": {"properties": properties}}
    assert IndexParams.of({"body": body}) == IndexParams(
        number_of_shards=3,
        number_of_replicas=0,
        analyzer="folded",
        index_options=options,
        settings={"analysis": analysis},
    )
