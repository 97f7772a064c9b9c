"""Many filters in one request, so that a real server answers hundreds of them in a second."""

from collections.abc import Callable, Sequence

from pydantic_core import to_json

from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.stores.elasticsearch.client import Json, request_of
from llama_retrieval_ext.stores.elasticsearch.filters import LANGUAGE
from llama_retrieval_ext.stores.elasticsearch.store import ElasticsearchVectorStore

Opener = Callable[..., ElasticsearchVectorStore]


def ids_by_condition(
    store: ElasticsearchVectorStore, conditions: Sequence[Condition]
) -> list[set[str]]:
    """The ids of the nodes that each condition finds."""
    return ids_by_query(store, [LANGUAGE.compile(condition) for condition in conditions])


def ids_by_query(store: ElasticsearchVectorStore, queries: Sequence[Json]) -> list[set[str]]:
    """The ids of the nodes that each query finds."""
    lines = []
    for query in queries:
        filtered = {"bool": {"filter": [query]}}
        lines += [
            to_json({"index": store.index}),
            to_json({"query": filtered, "size": 1000, "_source": ["id"]}),
        ]

    responses = store.transport.perform(request_of("POST", "_msearch", body=lines))["responses"]
    assert [part.get("error") for part in responses] == [None] * len(queries)
    return [{hit["_source"]["id"] for hit in part["hits"]["hits"]} for part in responses]
